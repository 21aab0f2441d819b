"""Numbered blocks from one process to another: `stream.py pipe|tcp|flood`.

A pipe is always full, and so is the connection of a flood; that of `tcp` has a little on the way in both directions.
"""
import os
import socket
import sys
import time

BLOCK = 64


def produce(file):
    number = 0
    while True:
        file.write(b"%0*d\n" % (BLOCK - 1, number))
        number += 1


def produce_on_demand(connection):
    demand, file = connection.makefile("rb"), connection.makefile("wb")
    number = 0
    while demand.read(1):
        file.write(b"%0*d\n" % (BLOCK - 1, number))
        file.flush()
        number += 1


def consume(file, state, demand=lambda: None):
    """Keeps the count in a file; a block that is lost, repeated or torn stops it for ever."""
    number = 0
    state = os.open(state, os.O_WRONLY | os.O_CREAT, 0o644)
    while True:
        block = file.read(BLOCK)
        if block != b"%0*d\n" % (BLOCK - 1, number):
            os.pwrite(state, b"broken after %d: %r" % (number, block), 0)
            return
        number += 1
        demand()
        if number % 64 == 0:
            os.pwrite(state, b"%020d" % number, 0)
            time.sleep(0.01)


kind = sys.argv[1]
state = f"/home/user/w/{kind}.state"
if kind == "pipe":
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        produce(os.fdopen(writer, "wb"))
    os.close(writer)
    consume(os.fdopen(reader, "rb"), state)
else:
    port = {"tcp": 8002, "flood": 8003}[kind]
    listener = socket.create_server(("127.0.0.1", port))
    if os.fork() == 0:
        accepted = listener.accept()[0]
        if kind == "flood":
            produce(accepted.makefile("wb"))
        produce_on_demand(accepted)
    connection = socket.create_connection(("127.0.0.1", port))
    if kind == "tcp":
        connection.sendall(b"." * 16)
    consume(connection.makefile("rb"), state, lambda: kind == "tcp" and connection.send(b"."))
