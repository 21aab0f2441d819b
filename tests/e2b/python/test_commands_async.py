"""Commands by the asynchronous half of the package."""

import asyncio
import unittest

from e2b import AsyncSandbox, CommandExitException, PtySize, TimeoutException
from e2b.exceptions import SandboxNotRunningException

import support


class Commands(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.sandbox = await AsyncSandbox.create(timeout=600)
        self.addAsyncCleanup(support.end, self.sandbox)

    async def test_output_codes_and_users(self):
        result = await self.sandbox.commands.run("echo out; echo err >&2")
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("out\n", "err\n", 0))
        with self.assertRaises(CommandExitException) as caught:
            await self.sandbox.commands.run("exit 3")
        self.assertEqual(caught.exception.exit_code, 3)
        self.assertEqual((await self.sandbox.commands.run("id -un", user="root")).stdout, "root\n")

    async def test_input_callbacks_and_listing(self):
        seen = []
        handle = await self.sandbox.commands.run("cat", background=True, stdin=True, on_stdout=seen.append)
        self.assertIn(handle.pid, [found.pid for found in await self.sandbox.commands.list()])
        await handle.send_stdin("aü€😀")
        await self.sandbox.commands.close_stdin(handle.pid)
        self.assertEqual((await handle.wait()).stdout, "aü€😀")
        self.assertEqual("".join(seen), "aü€😀")

    async def test_one_leaves_and_comes_back(self):
        handle = await self.sandbox.commands.run("read x; echo got $x", background=True, stdin=True)
        await handle.disconnect()
        again = await self.sandbox.commands.connect(handle.pid)
        await self.sandbox.commands.send_stdin(handle.pid, "it\n")
        self.assertEqual((await again.wait()).stdout, "got it\n")

    async def test_limits_and_kills(self):
        with self.assertRaises(TimeoutException):
            await self.sandbox.commands.run("sleep 100", timeout=1)
        handle = await self.sandbox.commands.run("sleep 100", background=True)
        self.assertTrue(await handle.kill())
        with self.assertRaises(CommandExitException) as caught:
            await handle.wait()
        self.assertEqual(caught.exception.error, "signal: killed")
        self.assertFalse(await self.sandbox.commands.kill(handle.pid))

    async def test_twenty_at_once(self):
        results = await asyncio.gather(*(self.sandbox.commands.run(f"sleep 0.2; echo {i}") for i in range(20)))
        self.assertEqual([result.stdout for result in results], [f"{i}\n" for i in range(20)])

    async def test_a_sandbox_killed_during_a_command_says_so(self):
        ready = asyncio.Event()
        handle = await self.sandbox.commands.run(
            "echo ready; sleep 300", background=True, on_stdout=lambda _: ready.set()
        )
        waiting = asyncio.create_task(handle.wait())
        await asyncio.wait_for(ready.wait(), support.PATIENCE)
        await self.sandbox.kill()
        with self.assertRaises(SandboxNotRunningException) as caught:
            await asyncio.wait_for(waiting, support.PATIENCE)
        self.assertIn(support.KILLED, str(caught.exception))

    async def test_the_terminal(self):
        got = bytearray()
        terminal = await self.sandbox.pty.create(PtySize(rows=24, cols=80), on_data=lambda data: got.extend(data))
        await self.sandbox.pty.resize(terminal.pid, PtySize(rows=40, cols=100))
        await self.sandbox.pty.send_stdin(terminal.pid, b"stty size; exit 4\n")
        with self.assertRaises(CommandExitException) as caught:
            await terminal.wait()
        self.assertEqual(caught.exception.exit_code, 4)
        self.assertIn(b"40 100", got)


if __name__ == "__main__":
    unittest.main()
