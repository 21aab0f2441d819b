"""Memory, an open file without a name and a watch, all asked about over HTTP."""
import ctypes
import hashlib
import http.server
import os
import select
import struct

memory = bytearray(os.urandom(64 << 20))

nameless = open(os.environ["NAMELESS"], "w+b")
nameless.write(os.urandom(1 << 20))
nameless.flush()
os.unlink(os.environ["NAMELESS"])

libc = ctypes.CDLL(None, use_errno=True)
IN_CREATE = 0x100
os.makedirs("/home/user/w/watched", exist_ok=True)
watch = libc.inotify_init1(os.O_CLOEXEC)
if watch < 0 or libc.inotify_add_watch(watch, b"/home/user/w/watched", IN_CREATE) < 0:
    raise OSError(ctypes.get_errno(), "inotify")
touched = 0


def watched():
    """Makes a file and waits until the watch tells of it."""
    global touched
    touched += 1
    name = f"file-{touched}"
    open(f"/home/user/w/watched/{name}", "w").close()
    while select.select([watch], [], [], 10)[0]:
        told, position = os.read(watch, 65536), 0
        while position < len(told):
            length = struct.unpack_from("iIII", told, position)[3]
            if told[position + 16 : position + 16 + length].rstrip(b"\0").decode() == name:
                return "told"
            position += 16 + length
    return f"nobody told of {name}"


def poke():
    """Changes memory in a way that no other copy of it does."""
    memory[:64] = os.urandom(64)
    return "poked"


answers = {
    "/memory": lambda: hashlib.sha256(memory).hexdigest(),
    "/nameless": lambda: hashlib.sha256(os.pread(nameless.fileno(), 2 << 20, 0)).hexdigest(),
    "/watched": watched,
    "/poke": poke,
    "/": lambda: "here",
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        answer = answers[self.path]().encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
