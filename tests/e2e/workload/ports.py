"""A server that speaks most of what HTTP can: ports.py PORT [ADDRESS]"""
import base64, hashlib, http.server, json, sys, time, urllib.parse

BLOCK = open("/home/user/block", "rb").read()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0

    def log_message(self, *arguments):
        pass

    def plain(self, text, status=200):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Keep-Alive", "timeout=5")
        self.send_header("X-Own", "1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def pieces(self):
        """The body, however it is framed."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            left = int(self.headers.get("Content-Length", 0))
            while left:
                piece = self.rfile.read(min(left, 1 << 20))
                left -= len(piece)
                yield piece

    def echo(self, query):
        body = b"".join(self.pieces())
        headers = {name.lower(): value for name, value in self.headers.items()}
        known = {"method": self.command, "path": self.path, "headers": headers, "body": body.decode(), "peer": self.client_address}
        self.plain(json.dumps(known))

    def hello(self, query):
        self.plain("hello")

    def slow(self, query):
        time.sleep(int(query["ms"]) / 1000)
        self.plain("slow " + query["ms"])

    def check(self, query):
        """Whether blocks arrive as they are: each is its number and the rest of the block."""
        rest, number, right = b"", 0, True
        for piece in self.pieces():
            rest += piece
            while len(rest) >= len(BLOCK):
                right = right and rest[: len(BLOCK)] == number.to_bytes(8, "little") + BLOCK[8:]
                rest, number = rest[len(BLOCK) :], number + 1
        self.plain(json.dumps({"blocks": number, "right": right and not rest}))

    def blocks(self, query):
        count = int(query["n"])
        self.send_response(200)
        if "chunked" in query:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(count * len(BLOCK)))
        self.end_headers()
        for number in range(count):
            piece = number.to_bytes(8, "little") + BLOCK[8:]
            if "chunked" in query:
                piece = b"%x\r\n%s\r\n" % (len(piece), piece)
            self.wfile.write(piece)
        if "chunked" in query:
            self.wfile.write(b"0\r\n\r\n")

    def trailers(self, query):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Trailer", "X-Sum")
        self.end_headers()
        self.wfile.write(b"3\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n")

    def events(self, query):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        number = 0
        while True:
            self.wfile.write(b"data: %d\n\n" % number)
            number += 1
            time.sleep(0.02)

    def upgrade(self, query):
        """Echoes frames of a WebSocket, or the bytes of anything else."""
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", self.headers["Upgrade"])
        key = self.headers.get("Sec-WebSocket-Key")
        if key:
            digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
        self.end_headers()
        self.close_connection = True
        while not key and (piece := self.rfile.read1(65536)):
            self.wfile.write(piece.upper())
        while key:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            length = head[1] & 127
            if length == 126:
                length = int.from_bytes(self.rfile.read(2), "big")
            elif length == 127:
                length = int.from_bytes(self.rfile.read(8), "big")
            mask, data = self.rfile.read(4), self.rfile.read(length)
            whole = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
            size = bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2, "big")
            self.wfile.write(head[:1] + size + whole)

    def any(self):
        address = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(address.query, keep_blank_values=True))
        name = address.path.strip("/") or "hello"
        known = ["hello", "echo", "slow", "check", "blocks", "trailers", "events", "upgrade"]
        if name in known:
            getattr(self, name)(query)
        else:
            b"".join(self.pieces())
            self.plain("no", 404)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_PURGE = any


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


Server((sys.argv[2] if len(sys.argv) > 2 else "0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
