"""Every tool, every resource, and what is refused."""

import asyncio
import os
import unittest
import unittest.mock

from mcp import MCPError
from support import TOKEN, URL, Tools, by_http, by_pipes, http_with, text_of

LIMITED = os.environ["ROOST_TEST_LIMITED"]
OTHER = "elsewhere"


class EveryTool(unittest.IsolatedAsyncioTestCase):
    async def test_each_is_called(self):
        async with by_http() as client:
            tools = Tools(client)
            await sandboxes(tools)
            await commands(tools)
            await files(tools)
            await moments(tools)
            await sleeping(tools)
            await outside(tools)
            await tools("sandbox_remove", sandbox="box")
            self.assertEqual(await tools.refused("sandbox_info", sandbox="box"), ("sandbox_terminated", unittest.mock.ANY))
            listed = (await client.list_tools()).tools
            self.assertEqual({tool.name for tool in listed}, tools.called)

    async def test_each_says_what_it_does(self):
        async with by_pipes() as client:
            self.assertIn("checkpoint", client.instructions)
            for tool in (await client.list_tools()).tools:
                self.assertTrue(tool.title and tool.description, tool.name)
                self.assertEqual(tool.input_schema["type"], "object", tool.name)
                hints = tool.annotations
                if tool.name in ("sandbox_remove", "restore", "checkpoint_remove"):
                    self.assertTrue(hints.destructive_hint, tool.name)
                if tool.name in ("sandbox_list", "file_read", "why", "diff"):
                    self.assertTrue(hints.read_only_hint, tool.name)

    async def test_the_older_protocol_too(self):
        for way in (by_pipes(mode="legacy"), by_http(mode="legacy")):
            async with way as client:
                _, text = await Tools(client)("templates")
                self.assertIn("mini", text)


async def sandboxes(tools):
    made, text = await tools("sandbox_create", name="box", template="mini", labels={"team": "a"}, env={"COLOUR": "red"})
    assert made["name"] == "box" and "box" in text, (made, text)
    listed, _ = await tools("sandbox_list", labels={"team": "a"})
    assert [one["name"] for one in listed["sandboxes"]] == ["box"], listed
    info, _ = await tools("sandbox_info", sandbox="box")
    assert info["sandbox"]["env"]["COLOUR"] == "red" and info["stats"]["memory_limit"] > 0, info
    templates, _ = await tools("templates")
    assert "mini" in templates["templates"], templates
    assert (await tools.refused("sandbox_create", name="box"))[0] == "name_taken"
    assert (await tools.refused("sandbox_create", name="Not A Name"))[0] == "invalid_name"
    assert (await tools.refused("sandbox_create", template="nope"))[0] == "template_not_found"
    code, message = await tools.refused("sandbox_info", sandbox="bxo")
    assert code == "sandbox_not_found" and "bxo" in message, message
    assert "did you mean `box`" in text_of(await tools.ask("sandbox_info", sandbox="bxo"))
    assert "sandbox_list" in text_of(await tools.ask("sandbox_info", sandbox="something-else"))
    code, message = await tools.refused("run", sandbox="box")
    assert code == "bad_request" and "command" in message, message
    code, message = await tools.refused("run", sandbox="box", command="true", colour="red")
    assert code == "bad_request" and "colour" in message, message


async def commands(tools):
    assert await tools.run("box", "echo $COLOUR $SIZE", env={"SIZE": "big"}) == "red big"
    assert await tools.run("box", "cat", stdin="from outside") == "from outside"
    facts, text = await tools("run", sandbox="box", command="echo out; echo err >&2; exit 3")
    assert facts["exit_code"] == 3 and "out" in text and "err" in text, text
    facts, text = await tools("run", sandbox="box", command="sleep 60", timeout_seconds=1)
    assert facts["timed_out"] and "time was over" in text, text
    facts, text = await tools("run", sandbox="box", command="sleep 61", timeout_seconds=1, on_timeout="leave")
    assert facts["running"] and facts["exec"] in text, text
    left = facts["exec"]
    listed, _ = await tools("exec_list", sandbox="box")
    assert left in [exec["exec"] for exec in listed["execs"] if exec["running"]], listed
    running, text = await tools("processes", sandbox="box")
    sleeper = [process for process in running["processes"] if process["argv"] == ["sleep", "61"]]
    assert [process["exec"] for process in sleeper] == [left] and f"sleep 61 ({left})" in text, text
    await tools("exec_signal", sandbox="box", exec=left)
    ended, _ = await tools("exec_output", sandbox="box", exec=left, wait_seconds=30)
    assert ended["exit_code"] == 128 + 15, ended

    facts, text = await tools("run", sandbox="box", command="seq 1 100000", tail_bytes=1000)
    assert facts["truncated"] and text.rstrip().endswith("100000") and len(text) < 1500, text[:300]
    assert f"exec={facts['exec']} offset=0" in text, text[:300]
    whole, offset = "", 0
    while offset < facts["stdout_bytes"]:
        piece, text = await tools("exec_output", sandbox="box", exec=facts["exec"], offset=offset, limit=100000)
        whole += text.partition("\n\n")[2]
        offset = piece["next_offset"]
    assert whole == "".join(f"{number}\n" for number in range(1, 100001))
    last, text = await tools("exec_output", sandbox="box", exec=facts["exec"], limit=10)
    assert text.endswith("99\n100000\n"), text

    cat, _ = await tools("exec_start", sandbox="box", command="cat", stdin=True)
    await tools("exec_input", sandbox="box", exec=cat["exec"], text="one\n")
    await tools("exec_input", sandbox="box", exec=cat["exec"], text="two\n", close=True)
    facts, text = await tools("exec_output", sandbox="box", exec=cat["exec"], offset=0, wait_seconds=30)
    assert facts["exit_code"] == 0 and text.endswith("one\ntwo\n"), text
    assert (await tools.refused("exec_output", sandbox="box", exec="exe_none"))[0] == "exec_not_found"
    assert (await tools.refused("exec_signal", sandbox="box", exec=cat["exec"], signal="NOPE"))[0] == "bad_request"
    assert (await tools.refused("exec_start", sandbox="box", command="true", cwd="/nowhere"))[0] == "cwd_not_found"


async def files(tools):
    path = "/root/work/text.txt"
    await tools("file_write", sandbox="box", path=path, content="one\ntwo\n")
    await tools("file_write", sandbox="box", path=path, content="three\n", append=True, mode="0640")
    facts, text = await tools("file_read", sandbox="box", path=path)
    assert facts["size"] == 14 and text.endswith("\n\none\ntwo\nthree\n"), text
    facts, text = await tools("file_read", sandbox="box", path=path, offset=4, limit=3)
    assert text.endswith("\n\ntwo") and facts["next_offset"] == 7 and "offset=7" in text, text
    await tools("file_edit", sandbox="box", path=path, old="two", new="2")
    assert await tools.run("box", f"cat {path}; stat -c %a {path}", user="root") == "one\n2\nthree\n640"
    code, message = await tools.refused("file_edit", sandbox="box", path=path, old="e", new="x")
    assert code == "conflict" and "3 times" in message, message
    assert (await tools.refused("file_edit", sandbox="box", path=path, old="ten", new="x"))[0] == "conflict"
    await tools("file_edit", sandbox="box", path=path, old="e", new="E", count=3)
    await tools("file_write", sandbox="box", path="/root/work/deep/code.py", content="def find_me():\n    pass\n")
    found, _ = await tools("file_search", sandbox="box", path="/root", content="find_me", name="*.py")
    assert found["matches"] == ["/root/work/deep/code.py:1:def find_me():"], found
    found, _ = await tools("file_search", sandbox="box", path="/root", name="*.txt")
    assert found["matches"] == [path], found
    found, _ = await tools("file_search", sandbox="box", path="/root/work", content="^(onE|thrEE)$", regex=True, limit=1)
    assert len(found["matches"]) == 1 and found["truncated"], found
    assert (await tools.refused("file_search", sandbox="box", path="/nowhere"))[0] == "path_not_found"
    listed, _ = await tools("file_list", sandbox="box", path="/root/work", depth=2)
    assert "/root/work/deep/code.py" in [entry["path"] for entry in listed["entries"]], listed
    assert (await tools.refused("file_read", sandbox="box", path="/nowhere"))[0] == "path_not_found"
    assert (await tools.refused("file_read", sandbox="box", path="/root"))[0] == "is_a_directory"


async def moments(tools):
    first, _ = await tools("checkpoint", sandbox="box", files_only=True, comment="first")
    await tools.run("box", "echo new > /root/new", user="root")
    second, _ = await tools("checkpoint", sandbox="box", files_only=True)
    listed, text = await tools("checkpoint_list", sandbox="box")
    assert len(listed["checkpoints"]) == 2 and "first" in text, text
    between = {"from": first["checkpoint"], "to": second["checkpoint"]}
    changes, _ = await tools("diff", **between)
    assert {"path": "/root/new", "kind": "added", "size": 4} in changes["files"], changes
    forks, _ = await tools("fork", sandbox="box", names=["twin"], **{"from": first["checkpoint"]})
    assert forks["forks"][0]["sandbox"]["name"] == "twin", forks
    await tools("sandbox_remove", sandbox="twin")
    await tools("restore", sandbox="box", checkpoint=first["checkpoint"])
    assert (await tools.refused("file_read", sandbox="box", path="/root/new"))[0] == "path_not_found"
    await tools("checkpoint_remove", checkpoint=second["checkpoint"])
    assert (await tools.refused("diff", **between))[0] == "checkpoint_not_found"
    assert (await tools.refused("fork", sandbox="box", count=21))[0] == "bad_request"


async def sleeping(tools):
    _, text = await tools("suspend", sandbox="box", level="ram")
    assert "sleeps to ram" in text, text
    why, _ = await tools("why", sandbox="box")
    assert why["state"] == "suspended" and why["level"] == "ram", why
    await tools("wake", sandbox="box")
    held, _ = await tools("hold", sandbox="box", seconds=600, reason="a test")
    assert held["hold"]["reason"] == "a test", held
    released, _ = await tools("hold", sandbox="box", seconds=0)
    assert released == {"released": "agent"}, released
    await tools("suspend", sandbox="box", level="disk")
    asleep, text = await tools("processes", sandbox="box")
    assert asleep["state"] == "suspended" and asleep["processes"] == [] and "when it is awake" in text, text
    assert await tools.run("box", "echo awake again") == "awake again"


async def outside(tools):
    server = "while true; do printf 'HTTP/1.0 200 OK\\r\\n\\r\\nhi' | nc -l -p 8000; done"
    await tools("exec_start", sandbox="box", command=server)
    facts, text = await tools("port_link", sandbox="box", port=8000, expires_seconds=60)
    assert "roost_link=" in text and facts["port"]["access"] == "private", text
    facts, _ = await tools("port_link", sandbox="box", port=8000, access="public")
    assert facts["port"]["access"] == "public", facts
    ports, text = await tools("ports", sandbox="box")
    assert 8000 in [port["port"] for port in ports["ports"]], text
    assert (await tools.refused("port_link", sandbox="box", port=0))[0] == "bad_request"


class Streams(unittest.IsolatedAsyncioTestCase):
    async def test_progress_tells_of_the_output(self):
        for way in (by_pipes(), by_http()):
            async with way as client:
                tools = Tools(client)
                await tools("sandbox_create", name="slow", template="mini")
                told = asyncio.Queue()

                async def hear(progress, total, message):
                    await told.put((progress, message))

                # It goes on only when its first word has been heard.
                command = "echo working; until [ -e /tmp/heard ]; do sleep 0.05; done; echo done"
                call = asyncio.create_task(
                    client.call_tool("run", {"sandbox": "slow", "command": command}, progress_callback=hear)
                )
                progress, message = await asyncio.wait_for(told.get(), 60)
                self.assertEqual((progress, message), (8, "working"))
                await tools.run("slow", "touch /tmp/heard")
                result = await call
                self.assertTrue(text_of(result).endswith("working\ndone\n"), text_of(result))
                await tools("sandbox_remove", sandbox="slow")

    async def test_a_call_that_is_given_up_leaves_its_command(self):
        for way in (by_pipes(), by_http()):
            async with way as client:
                tools = Tools(client)
                await tools("sandbox_create", name="given", template="mini")
                begun = asyncio.Event()

                async def hear(progress, total, message):
                    begun.set()

                call = asyncio.create_task(
                    client.call_tool("run", {"sandbox": "given", "command": "echo up; sleep 1000"}, progress_callback=hear)
                )
                await asyncio.wait_for(begun.wait(), 60)
                call.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await call
                listed, _ = await tools("exec_list", sandbox="given")
                running = [exec for exec in listed["execs"] if exec["running"] and "sleep 1000" in exec["command"]]
                self.assertEqual(len(running), 1, listed)
                await tools("sandbox_remove", sandbox="given")


class Resources(unittest.IsolatedAsyncioTestCase):
    async def test_files_and_events(self):
        async with by_http() as client:
            tools = Tools(client)
            await tools("sandbox_create", name="shelf", template="mini")
            await tools("file_write", sandbox="shelf", path="/root/a b.txt", content="€ and more\n")
            await tools.run("shelf", "printf '\\0\\377' > /root/raw", user="root")
            listed = [resource.uri for resource in (await client.list_resources()).resources]
            self.assertIn("roost://sandbox/shelf/files/", listed)
            self.assertIn("roost://sandbox/shelf/events", listed)
            templates = (await client.list_resource_templates()).resource_templates
            self.assertEqual(len(templates), 2)

            async def read(uri):
                return (await client.read_resource(uri)).contents[0]

            self.assertEqual((await read("roost://sandbox/shelf/files/root/a%20b.txt")).text, "€ and more\n")
            self.assertEqual((await read("roost://sandbox/shelf/files/root/raw")).blob, "AP8=")
            self.assertIn("a b.txt\n", (await read("roost://sandbox/shelf/files/root")).text)
            self.assertIn("creating", (await read("roost://sandbox/shelf/events")).text)
            for unknown in ("roost://sandbox/nobody/events", "roost://sandbox/shelf/files/nowhere", "roost://other"):
                with self.assertRaises(MCPError):
                    await read(unknown)
            await tools("sandbox_remove", sandbox="shelf")


class Limits(unittest.IsolatedAsyncioTestCase):
    """A token that reaches `agent-…`, may have two sandboxes and destroy nothing."""

    async def test_a_limited_token_limits_every_tool(self):
        async with by_http() as client:
            await Tools(client)("sandbox_create", name=OTHER, template="mini")
            kept, _ = await Tools(client)("checkpoint", sandbox=OTHER, files_only=True)
        for way in (by_pipes, by_http):
            async with way(token=LIMITED) as client:
                await self.sees_nothing_of_others(client, kept["checkpoint"])
        async with by_http(token=LIMITED) as client:
            await self.has_two_and_keeps_them(client)

    async def sees_nothing_of_others(self, client, checkpoint):
        tools = Tools(client)
        one = {"sandbox": OTHER}
        for tool, arguments in {
            "sandbox_info": one,
            "sandbox_remove": one,
            "run": {**one, "command": "true"},
            "exec_start": {**one, "command": "true"},
            "exec_list": one,
            "exec_output": {**one, "exec": "exe_1"},
            "exec_signal": {**one, "exec": "exe_1"},
            "exec_input": {**one, "exec": "exe_1", "text": ""},
            "processes": one,
            "file_read": {**one, "path": "/etc/passwd"},
            "file_write": {**one, "path": "/root/x", "content": ""},
            "file_edit": {**one, "path": "/etc/passwd", "old": "root", "new": "me"},
            "file_list": {**one, "path": "/"},
            "file_search": {**one, "path": "/"},
            "checkpoint": one,
            "checkpoint_list": one,
            "checkpoint_remove": {"checkpoint": checkpoint},
            "restore": {**one, "checkpoint": checkpoint},
            "fork": one,
            "diff": {"from": checkpoint, "to": checkpoint},
            "suspend": one,
            "wake": one,
            "why": one,
            "hold": one,
            "ports": one,
            "port_link": {**one, "port": 80},
            "sandbox_create": {"name": "mine"},
        }.items():
            code, message = await tools.refused(tool, **arguments)
            self.assertEqual(code, "forbidden", f"{tool}: {message}")
            self.assertIn("this token", message)
        with self.assertRaises(MCPError):
            await client.read_resource(f"roost://sandbox/{OTHER}/files/etc/passwd")
        self.assertEqual((await client.list_resources()).resources, [])
        self.assertEqual((await tools("sandbox_list"))[0]["sandboxes"], [])
        listed = {tool.name for tool in (await client.list_tools()).tools}
        self.assertEqual(listed - tools.called, {"templates"}, "a tool that nobody tried")

    async def has_two_and_keeps_them(self, client):
        tools = Tools(client)
        made, _ = await tools("sandbox_create", template="mini")
        name = made["name"]
        self.assertTrue(name.startswith("agent-"), name)
        mine, _ = await tools("checkpoint", sandbox=name, files_only=True)
        for tool, arguments in {
            "sandbox_remove": {"sandbox": name},
            "restore": {"sandbox": name, "checkpoint": mine["checkpoint"]},
            "checkpoint_remove": {"checkpoint": mine["checkpoint"]},
        }.items():
            code, message = await tools.refused(tool, **arguments)
            self.assertEqual(code, "forbidden", message)
            self.assertIn("may destroy nothing", message)
        code, message = await tools.refused("fork", sandbox=name, count=2)
        self.assertEqual(code, "forbidden")
        self.assertIn("may have 2 sandboxes, has 1", message)
        await tools("fork", sandbox=name, **{"from": mine["checkpoint"]})
        self.assertEqual((await tools.refused("sandbox_create"))[0], "forbidden")

    async def test_no_token_opens_nothing(self):
        for token, said in ((None, "a token is needed"), ("rst_wrong", "not valid")):
            async with http_with(token) as http:
                for method in ("GET", "POST", "DELETE"):
                    answer = await http.request(method, f"{URL}/mcp", headers={"Mcp-Session-Id": "guessed"})
                    self.assertEqual(answer.status_code, 401, method)
                    self.assertIn(said, answer.json()["error"]["message"])

    async def test_a_token_that_is_taken_back_ends_what_it_began(self):
        for way in (by_pipes, by_http):
            async with http_with(TOKEN) as http:
                made = (await http.post(f"{URL}/v1/tokens", json={"name": "short-lived"})).json()
                async with way(token=made["secret"]) as client:
                    await Tools(client)("sandbox_list")
                    gone = await http.delete(f"{URL}/v1/tokens/{made['token']['id']}")
                    self.assertEqual(gone.status_code, 204)
                    with self.assertRaises(MCPError):
                        await Tools(client).ask("sandbox_list")


if __name__ == "__main__":
    unittest.main()
