"""Lives of sandboxes by the asynchronous half of the package."""

import asyncio
import unittest

from e2b import AsyncSandbox, SandboxNotFoundException, SandboxQuery, SandboxState

import support


class Lives(unittest.IsolatedAsyncioTestCase):
    async def create(self, **how):
        sandbox = await AsyncSandbox.create(timeout=600, **how)
        self.addAsyncCleanup(support.end, sandbox)
        return sandbox

    async def test_a_life(self):
        sandbox = await self.create(metadata={"life": "one"}, envs={"A": "1"})
        self.assertEqual((await sandbox.commands.run("echo $A")).stdout, "1\n")
        self.assertEqual((await sandbox.get_info()).metadata, {"life": "one"})
        found = await AsyncSandbox.list(query=SandboxQuery(metadata={"life": "one"})).next_items()
        self.assertEqual([one.sandbox_id for one in found], [sandbox.sandbox_id])
        await sandbox.set_timeout(300)
        self.assertTrue(await sandbox.is_running())
        self.assertTrue(await sandbox.kill())
        self.assertFalse(await sandbox.is_running())
        with self.assertRaises(SandboxNotFoundException):
            await AsyncSandbox.connect(sandbox.sandbox_id)

    async def test_pause_and_connect(self):
        sandbox = await self.create()
        handle = await sandbox.commands.run("sleep 1000", background=True, timeout=0)
        self.assertTrue(await sandbox.pause())
        self.assertFalse(await sandbox.pause())
        self.assertEqual((await sandbox.get_info()).state, SandboxState.PAUSED)
        await sandbox.connect()
        self.assertIn(handle.pid, [found.pid for found in await sandbox.commands.list()])

    async def test_forks_and_snapshots(self):
        sandbox = await self.create()
        await sandbox.files.write("a", "x")
        forks = await sandbox.fork(count=2)
        for fork in forks:
            self.addAsyncCleanup(support.end, fork)
            self.assertEqual(await fork.files.read("a"), "x")
        snapshot = await sandbox.create_snapshot()
        born = await self.create(template=snapshot.snapshot_id)
        self.assertEqual(await born.files.read("a"), "x")
        self.assertTrue(await AsyncSandbox.delete_snapshot(snapshot.snapshot_id))

    async def test_ten_are_made_at_once(self):
        made = await asyncio.gather(*(self.create() for _ in range(10)))
        self.assertEqual(len({sandbox.sandbox_id for sandbox in made}), 10)
        said = await asyncio.gather(*(sandbox.commands.run("echo here") for sandbox in made))
        self.assertEqual({result.stdout for result in said}, {"here\n"})


if __name__ == "__main__":
    unittest.main()
