"""Takes the place of the guest, as root inside, and lies to the host.

python3 liar.py endless | fuzz SEED

Stops process 1 by ptrace, has it close its listener and its connections, and listens in its place.
"""
import ctypes, json, os, random, socket, struct, sys, threading, time

PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
PTRACE_SINGLESTEP, PTRACE_GETREGS, PTRACE_SETREGS = 9, 12, 13
WALL = 0x40000000
CLOSE = 3
SYSCALL = b"\x0f\x05"
# Places in the kernel's `user_regs_struct`, in words of eight bytes.
RAX, RDI, ORIG_RAX, RIP, REGISTERS = 10, 14, 15, 16, 27
PORT = 14
REQUEST, REPLY, FAILURE = 0x02, 0x03, 0x04
STDOUT, STDERR, GAP, EXEC_END = 0x20, 0x21, 0x22, 0x23
FILE_DATA, END, ENTRIES, WATCH_EVENT, ARRIVAL, CALL = 0x30, 0x31, 0x32, 0x33, 0x34, 0x40
libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def trace(request, thread):
    check(libc.ptrace(request, thread, None, None), f"ptrace {request:#x} of {thread}")


def stop_guest():
    """Stops every thread of process 1; threads come and go meanwhile."""
    stopped = set()
    while True:
        new = {int(thread) for thread in os.listdir("/proc/1/task")} - stopped
        if not new:
            return
        for thread in new:
            stopped.add(thread)
            try:
                trace(PTRACE_SEIZE, thread)
                trace(PTRACE_INTERRUPT, thread)
            except (ProcessLookupError, PermissionError):
                # A thread that is ending refuses to be traced.
                pass


def instruction():
    """Finds an instruction of process 1 that makes a system call."""
    with open("/proc/1/maps") as maps, open("/proc/1/mem", "rb") as memory:
        for line in maps:
            place, rights = line.split()[:2]
            first, last = (int(number, 16) for number in place.split("-"))
            if rights.startswith("r-x") and "[" not in line:
                memory.seek(first)
                found = memory.read(last - first).find(SYSCALL)
                if found >= 0:
                    return first + found
    raise RuntimeError("process 1 has no instruction that makes a system call")


def make_it_close(fds):
    """Has the first thread of process 1 close descriptors."""
    os.waitpid(1, WALL)
    registers = (ctypes.c_ulong * REGISTERS)()
    check(libc.ptrace(PTRACE_GETREGS, 1, None, registers), "read the registers")
    place = instruction()
    for fd in fds:
        registers[RAX], registers[RDI], registers[ORIG_RAX], registers[RIP] = CLOSE, fd, 2**64 - 1, place
        check(libc.ptrace(PTRACE_SETREGS, 1, None, registers), "write the registers")
        check(libc.ptrace(PTRACE_SINGLESTEP, 1, None, None), "step")
        os.waitpid(1, WALL)


def sockets():
    for fd in map(int, os.listdir("/proc/1/fd")):
        try:
            if os.readlink(f"/proc/1/fd/{fd}").startswith("socket:"):
                yield fd
        except OSError:
            pass


def take_listener():
    stop_guest()
    print("every thread is stopped", flush=True)
    make_it_close(list(sockets()))
    print("its sockets are closed", flush=True)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # A kernel may take a while to end the listener that was closed.
    for _ in range(1000):
        try:
            listener.bind(("0.0.0.0", PORT))
            break
        except OSError:
            time.sleep(0.01)
    listener.listen(64)
    return listener


def frame(kind, body):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return b"Rw" + bytes([1, kind]) + struct.pack("<I", len(body)) + body


def stat(path="/liar", **more):
    return {"path": path, "kind": "directory", "size": 4096, "mode": 493, "uid": 0, "gid": 0, **more}


def execution(name):
    streams = {"start": 0, "end": 9}
    return {"id": name, "pid": 7, "argv": ["x"], "started_at_ms": 1, "state": "running", "stdout": streams, "stderr": streams}


def requests(stream):
    while True:
        head = stream.read(8)
        if len(head) < 8:
            return
        body = stream.read(struct.unpack("<I", head[4:])[0])
        if head[3] != REQUEST:
            continue
        asked = json.loads(body)
        yield (asked, {}) if isinstance(asked, str) else next(iter(asked.items()))


MANY = frame(ENTRIES, {"entries": [stat(f"/liar/{'x' * 200}{number}", kind="file") for number in range(3000)]})


def endless(conn, what, wanted, state):
    if what == "list":
        conn.sendall(frame(REPLY, {"stat": stat()}))
        while True:
            conn.sendall(MANY)
    if what in ("processes", "exec_list"):
        state[0] += 1
        if what == "processes":
            first = state[0] * 1000
            page = [
                {"pid": first + number, "parent": 1, "name": "x" * 300, "user": "root", "state": "S", "threads": 1,
                 "cpu_us": 0, "resident": 0, "started_at_ms": 0}
                for number in range(1000)
            ]
            return conn.sendall(frame(REPLY, {"processes": page}))
        page = [execution(f"exe_{state[0]:014}{number:012}") for number in range(1000)]
        return conn.sendall(frame(REPLY, {"execs": page}))
    if what in ("read", "archive_out"):
        conn.sendall(frame(REPLY, {"stat": stat(kind="file", size=10)}))
        while True:
            conn.sendall(frame(FILE_DATA, b"x" * 262144))
    if what in ("exec_start", "exec_attach"):
        conn.sendall(frame(REPLY, {"exec": execution(wanted["id"])}))
        offset = 0
        while True:
            conn.sendall(frame(STDOUT, struct.pack("<Q", offset) + b"\0" * 262144))
            offset += 262144
    conn.sendall(frame(REPLY, {"stat": stat()}))


class Fuzz:
    def __init__(self, seed):
        self.chance = random.Random(seed)

    def honest(self, wanted):
        name = wanted.get("id", "exe_0")
        chance = self.chance
        number = chance.choice([0, 1, 7, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
        text = chance.choice(["", "x", "\u0000", "x" * 100000, "\ud800", "/" * 5000])
        short = text[:2000]
        replies = [
            "done", {"pong": {"version": text, "protocol": 1, "uptime_ms": number, "generation": number}},
            {"exec": execution(name)}, {"exec": {**execution(name), "stdout": {"start": number, "end": number}}},
            {"exec": {**execution(name), "argv": [text] * 5, "started_at_ms": number, "pid": -1}},
            {"exec": {**execution(name), "state": {"exited": {"signal": 2147483647, "at_ms": number}}}},
            {"execs": [execution(name)] * 3}, {"execs": []}, {"stat": stat(text, size=number, modified_ms=-5)},
            {"stat": stat(kind="file", size=number)}, {"link": text}, {"processes": []}, {"services": []},
            {"processes": [{"pid": pid, "parent": 0, "name": text, "user": "", "state": text, "threads": 0, "cpu_us": number,
                            "resident": number, "started_at_ms": number} for pid in (3, 2, 1)]},
            {"ports": [{"port": 1, "address": short, "process": short}] * 100},
            {"activity": {"running_execs": 1, "attached": 1, "cpu_us": number, "listening_ports": 1,
                          "talks": [{"peer": short, "said_ms": number, "heard_ms": number, "connecting": True}] * 200}},
            {"cron_jobs": [{"schedule": chance.choice(["* * * * *", "0 0 30 2 *", short]), "tz": short[:100]}] * 300},
            {"listening": {"listener": 1, "port": 1}}, {"hostname": text},
        ]
        follow = [
            frame(ENTRIES, {"entries": [stat(text)] * 5}), frame(ENTRIES, {"entries": []}), frame(FILE_DATA, b"data"),
            frame(END, {"count": number, "abort": chance.random() < 0.5}), frame(GAP, {"stream": "stdout", "from": number, "to": 5}),
            frame(STDOUT, struct.pack("<Q", number) + b"text"), frame(STDERR, b"short"), frame(EXEC_END, execution(name)),
            frame(EXEC_END, {**execution(name), "state": {"exited": {"code": 0}}}),
            frame(WATCH_EVENT, {"kind": "created", "path": text}), frame(CALL, {"id": number, "call": "info"}),
            frame(CALL, {"id": 1, "call": {"hold": {"reason": text, "for": text}}}), frame(ARRIVAL, {"number": number}),
            frame(FAILURE, {"code": "path_not_found", "message": text}),
        ]
        first = chance.choice(replies) if chance.random() < 0.9 else None
        parts = [frame(REPLY, first)] if first is not None else []
        parts += [chance.choice(follow) for _ in range(chance.randrange(5))]
        return b"".join(parts)

    def damaged(self, lie):
        lie, chance = bytearray(lie), self.chance
        for _ in range(chance.randrange(1, 8)):
            if lie:
                lie[chance.randrange(len(lie))] = chance.choice([0, 1, 0x22, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        return bytes(lie)

    def __call__(self, conn, what, wanted, state):
        chance = self.chance
        lie = self.honest(wanted)
        if chance.random() < 0.4:
            lie = self.damaged(lie)
        manner = chance.random()
        if manner < 0.6:
            conn.sendall(lie)
        elif manner < 0.7:
            for byte in lie[:40]:
                conn.sendall(bytes([byte]))
                time.sleep(0.01)
            conn.sendall(lie[40:])
        elif manner < 0.8:
            conn.sendall(lie)
            conn.shutdown(socket.SHUT_WR)
        elif manner < 0.9:
            conn.sendall(b"Rw" + bytes([1, chance.randrange(0x45)]) + struct.pack("<I", chance.choice([1 << 20, 2**32 - 1])) + lie)
        else:
            until = time.monotonic() + 0.5
            while lie and time.monotonic() < until:
                conn.sendall(lie)
        # A half of the connections end here; on the others the host may find what it did not ask for, or wait for more.
        # Closing would not end them: the reader of requests holds the same socket, and a removal may take ten minutes.
        if chance.random() < 0.5:
            hang_up(conn)
        else:
            threading.Timer(0.5, hang_up, [conn]).start()


def hang_up(conn):
    try:
        conn.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def serve(conn, answer):
    state = [0]
    try:
        for what, wanted in requests(conn.makefile("rb")):
            if what == "stat" and wanted.get("path") == "/liar":
                conn.sendall(frame(REPLY, {"stat": stat()}))
            else:
                answer(conn, what, wanted, state)
    except (OSError, ValueError):
        pass
    finally:
        conn.close()


def main():
    answer = endless if sys.argv[1] == "endless" else Fuzz(int(sys.argv[2]))
    listener = take_listener()
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=serve, args=(conn, answer), daemon=True).start()


main()
