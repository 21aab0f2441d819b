"""Says something first, then gives back what it heard, backwards, once all of it is there: backwards.py PORT"""
import socket, sys, threading


def serve(connection):
    connection.sendall(b"ready ")
    heard = b""
    while piece := connection.recv(65536):
        heard += piece
    connection.sendall(heard[::-1])
    connection.close()


listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
