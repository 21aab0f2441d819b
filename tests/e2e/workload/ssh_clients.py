"""Two more clients: paramiko and asyncssh do what people write with them. PORT and KEY are arguments."""

import asyncio
import hashlib
import io
import os
import sys

import asyncssh
import paramiko

PORT, KEY = int(sys.argv[1]), sys.argv[2]


def with_paramiko():
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect("127.0.0.1", PORT, "web", key_filename=KEY, look_for_keys=False, allow_agent=False)
    # Commands with their own streams and codes, several on one connection.
    _, out, err = client.exec_command("echo out; echo err >&2; exit 3")
    assert out.read() == b"out\n" and err.read() == b"err\n"
    assert out.channel.recv_exit_status() == 3
    stdin, out, _ = client.exec_command("tr a-z A-Z")
    stdin.write("hello")
    stdin.channel.shutdown_write()
    assert out.read() == b"HELLO"
    # A terminal.
    shell = client.invoke_shell(term="vt100", width=100, height=30)
    shell.send("stty size; echo t=$TERM; exit\n")
    shown = b""
    while piece := shell.recv(4096):
        shown += piece
    assert b"30 100" in shown and b"t=vt100" in shown, shown
    # Files.
    sftp = client.open_sftp()
    content = os.urandom(3_000_000)
    sftp.putfo(io.BytesIO(content), "paramiko.bin")
    assert sftp.stat("paramiko.bin").st_size == len(content)
    with sftp.open("paramiko.bin", "r+b") as file:
        file.seek(100)
        file.write(b"in the middle")
        file.seek(0)
        file.prefetch()
        back = file.read()
    assert back[100:113] == b"in the middle" and back[:100] == content[:100] and back[113:] == content[113:]
    sftp.mkdir("folder")
    sftp.rename("paramiko.bin", "folder/moved.bin")
    sftp.symlink("moved.bin", "folder/link")
    assert sorted(sftp.listdir("folder")) == ["link", "moved.bin"]
    assert sftp.readlink("folder/link") == "moved.bin"
    assert sftp.normalize(".").startswith("/")
    try:
        sftp.stat("nowhere")
        raise AssertionError("nowhere is somewhere")
    except FileNotFoundError:
        pass
    # A port of the sandbox.
    client.exec_command("python3 -m http.server 8123 --directory folder")
    client.exec_command("until grep -q :1FBB /proc/net/tcp; do sleep 0.05; done")[1].channel.recv_exit_status()
    tunnel = client.get_transport().open_channel("direct-tcpip", ("localhost", 8123), ("127.0.0.1", 1))
    tunnel.sendall(b"GET /moved.bin HTTP/1.0\r\n\r\n")
    answer = b""
    while piece := tunnel.recv(65536):
        answer += piece
    assert answer.partition(b"\r\n\r\n")[2] == back
    client.close()
    # A key that nobody knows.
    other = paramiko.RSAKey.generate(2048)
    stranger = paramiko.SSHClient()
    stranger.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    try:
        stranger.connect("127.0.0.1", PORT, "web", pkey=other, look_for_keys=False, allow_agent=False)
        raise AssertionError("a stranger was let in")
    except paramiko.AuthenticationException:
        pass


async def with_asyncssh():
    async with asyncssh.connect("127.0.0.1", PORT, username="web", client_keys=[KEY], known_hosts=None) as line:
        done = await asyncio.gather(*(line.run(f"echo {n}; exit {n}") for n in range(8)))
        assert [(d.stdout, d.exit_status) for d in done] == [(f"{n}\n", n) for n in range(8)]
        killed = await line.run("kill -TERM $$")
        assert killed.exit_signal and killed.exit_signal[0] == "TERM", killed
        # A signal from here.
        sleeper = await line.create_process("trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
        assert await sleeper.stdout.readline() == "ready\n"
        sleeper.send_signal("USR1")
        assert await sleeper.stdout.readline() == "caught\n"
        await sleeper.wait_closed()
        assert sleeper.exit_status == 5
        # A terminal that changes its size.
        term = await line.create_process("sh", term_type="xterm", term_size=(80, 24))
        term.change_terminal_size(132, 50)
        term.stdin.write("stty size; exit\n")
        assert "50 132" in await term.stdout.read()
        # Files, and one to check the sums of.
        async with line.start_sftp_client() as sftp:
            data = os.urandom(1_000_000)
            async with sftp.open("asyncssh.bin", "wb") as file:
                await file.write(data)
            async with sftp.open("asyncssh.bin", "rb") as file:
                assert await file.read() == data
            await sftp.posix_rename("asyncssh.bin", "asyncssh-2.bin")
            assert (await sftp.statvfs(".")).bsize > 0
        told = await line.run("sha256sum asyncssh-2.bin")
        assert told.stdout.split()[0] == hashlib.sha256(data).hexdigest()

        # Out of the sandbox: somebody inside talks to us here.
        async def answer(reader, writer):
            writer.write(b"heard " + await reader.read())
            writer.write_eof()

        listener = await line.start_server(lambda host, port: answer, "localhost", 0)
        ask = f"import socket;s=socket.create_connection(('localhost',{listener.get_port()}));s.sendall(b'x');s.shutdown(1);print(s.recv(9))"
        told = await line.run(f'python3 -c "{ask}"')
        assert told.stdout == "b'heard x'\n", told
    try:
        await asyncssh.connect("127.0.0.1", PORT, username="web", client_keys=[asyncssh.generate_private_key("ssh-ed25519")], known_hosts=None)
        raise AssertionError("a stranger was let in")
    except asyncssh.PermissionDenied:
        pass


with_paramiko()
asyncio.run(with_asyncssh())
print("both are content")
