"""Files by the asynchronous half of the package."""

import asyncio
import unittest

from e2b import AsyncSandbox, FileNotFoundException, FilesystemEventType, FileType

import support


class Files(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.sandbox = await AsyncSandbox.create(timeout=600)
        self.addAsyncCleanup(support.end, self.sandbox)
        self.files = self.sandbox.files

    async def test_in_and_out(self):
        await self.files.write("a/b.txt", "hällo")
        self.assertEqual(await self.files.read("a/b.txt"), "hällo")
        self.assertEqual([entry.name for entry in await self.files.list("a")], ["b.txt"])
        self.assertTrue(await self.files.exists("a/b.txt"))
        self.assertEqual((await self.files.get_info("a")).type, FileType.DIR)
        self.assertTrue(await self.files.make_dir("c"))
        await self.files.rename("a/b.txt", "c/d.txt")
        await self.files.remove("a")
        with self.assertRaises(FileNotFoundException):
            await self.files.read("a/b.txt")
        pieces = [piece async for piece in await self.files.read("c/d.txt", format="stream")]
        self.assertEqual(b"".join(pieces), "hällo".encode())
        written = await self.files.write_files([{"path": f"m/{i}", "data": str(i)} for i in range(5)])
        self.assertEqual(len(written), 5)

    async def test_a_watch_tells_as_things_happen(self):
        await self.files.make_dir("watched")
        events = []
        left = []
        watch = await self.files.watch_dir("watched", on_event=events.append, on_exit=left.append)
        await self.files.write("watched/new.txt", "x")
        deadline = asyncio.get_running_loop().time() + support.PATIENCE
        while len(events) < 3:
            self.assertLess(asyncio.get_running_loop().time(), deadline, events)
            await asyncio.sleep(0.02)
        await watch.stop()
        kinds = [event.type for event in events]
        self.assertEqual(
            kinds, [FilesystemEventType.CREATE, FilesystemEventType.CHMOD, FilesystemEventType.WRITE]
        )
        self.assertEqual({event.name for event in events}, {"new.txt"})

    async def test_ten_at_once(self):
        await asyncio.gather(*(self.files.write(f"p/{i}", str(i) * 1000) for i in range(10)))
        texts = await asyncio.gather(*(self.files.read(f"p/{i}") for i in range(10)))
        self.assertEqual(texts, [str(i) * 1000 for i in range(10)])


if __name__ == "__main__":
    unittest.main()
