"""A server that keeps any number of upgraded connections, and says what it hears: idle.py PORT"""
import asyncio, sys


async def serve(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
    while piece := await reader.read(4096):
        writer.write(piece)
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", int(sys.argv[1]), backlog=4096, limit=4096)
    await server.serve_forever()


asyncio.run(main())
