"""Answers each request with its head in hexadecimal, and with the headers that its query names in hexadecimal: mirror.py PORT"""
import socketserver, sys


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline()
            if not line:
                return
            head += line
        query = head.split(b" ")[1].partition(b"?")[2].partition(b"&")[0]
        try:
            wanted = bytes.fromhex(query.decode())
        except ValueError:
            wanted = b""
        body = head.hex().encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), wanted, body))


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


Server(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
