"""A scripted agent: it makes a sandbox, writes a project, breaks it, goes back, tries three ways and keeps the best."""

import unittest

from support import Tools, by_http, by_pipes

SERVER = """
import http.server
import words

asked = 0

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        asked += 1
        body = f"{words.greeting()} {asked}".encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.HTTPServer(("0.0.0.0", 8000), Page).serve_forever()
"""

# Asks until the server is up: it begins to listen a moment after it was started.
ASK = """python3 - <<'END'
import time, urllib.request
for attempt in range(200):
    try:
        print(urllib.request.urlopen("http://127.0.0.1:8000/", timeout=5).read().decode())
        break
    except OSError:
        time.sleep(0.05)
else:
    raise SystemExit("nobody answers")
END"""

# What Python keeps beside its sources is no change of the project.
QUIET = {"PYTHONDONTWRITEBYTECODE": "1"}
WAYS = {"list": "sorted([3, 1, 2])", "tuple": "sorted((3, 1, 2))", "wrong": "[3, 1, 2]"}


async def agent(client, site):
    tools = Tools(client)
    made, _ = await tools("sandbox_create", name=site, template="base", env=QUIET)
    assert made["state"] == "active", made

    await tools("file_write", sandbox=site, path="/root/site/server.py", content=SERVER)
    words = 'def greeting():\n    return "hello"\n'
    await tools("file_write", sandbox=site, path="/root/site/words.py", content=words)
    server, _ = await tools("exec_start", sandbox=site, command="exec python3 server.py", cwd="/root/site", user="root")
    assert await tools.run(site, ASK) == "hello 1"
    ports, _ = await tools("ports", sandbox=site)
    assert 8000 in [port["port"] for port in ports["ports"]], ports

    good, _ = await tools("checkpoint", sandbox=site, comment="it works")
    await tools.run(site, "rm -r /root/site", user="root")
    await tools("exec_signal", sandbox=site, exec=server["exec"], signal="KILL")
    facts, _ = await tools("run", sandbox=site, command="ls /root/site", user="root")
    assert facts["exit_code"] != 0, facts

    back, _ = await tools("restore", sandbox=site, checkpoint=good["checkpoint"])
    assert back["replaced"], "what was broken is kept, too"
    # The very process: it goes on counting.
    assert await tools.run(site, ASK) == "hello 2"

    names = [f"{site}-{way}" for way in WAYS]
    forks, _ = await tools("fork", sandbox=site, names=names)
    assert [fork["sandbox"]["name"] for fork in forks["forks"]] == names, forks
    outcomes = {}
    for (way, expression), name in zip(WAYS.items(), names):
        assert await tools.run(name, ASK) == "hello 3", "each goes on by itself"
        await tools("file_edit", sandbox=name, path="/root/site/words.py", old='"hello"', new=expression)
        result = await tools.run(name, "python3 -c 'import words; print(words.greeting())'", cwd="/root/site", user="root")
        kept, _ = await tools("checkpoint", sandbox=name, comment=way, files_only=True)
        changes, _ = await tools("diff", **{"from": good["checkpoint"]}, to=kept["checkpoint"], path="/root/site")
        changed = [change["path"] for change in changes["files"] if change["kind"] == "changed"]
        assert changed == ["/root/site/words.py"], changes
        outcomes[name] = result == "[1, 2, 3]"
    assert outcomes == {f"{site}-list": True, f"{site}-tuple": True, f"{site}-wrong": False}, outcomes

    best = next(name for name, fits in outcomes.items() if fits)
    for name in [site, *names]:
        if name != best:
            await tools("sandbox_remove", sandbox=name)
    left, _ = await tools("sandbox_list", name_contains=site)
    assert [one["name"] for one in left["sandboxes"]] == [best], left
    assert await tools.run(best, ASK) == "hello 4"
    await tools("sandbox_remove", sandbox=best)


class Agent(unittest.IsolatedAsyncioTestCase):
    async def test_by_pipes(self):
        async with by_pipes() as client:
            await agent(client, "pipes")

    async def test_by_http(self):
        async with by_http() as client:
            await agent(client, "http")


if __name__ == "__main__":
    unittest.main()
