"""The code interpreter by the asynchronous half of its package."""

import asyncio
import unittest

from e2b_code_interpreter import AsyncSandbox

import support


class CodeInterpreter(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.sandbox = await AsyncSandbox.create(timeout=600)
        self.addAsyncCleanup(support.end, self.sandbox)

    async def test_variables_contexts_and_callbacks(self):
        seen = []
        await self.sandbox.run_code("x = 1; print('a')", on_stdout=lambda message: seen.append(message.line))
        self.assertEqual(seen, ["a\n"])
        self.assertEqual((await self.sandbox.run_code("x + 1")).text, "2")
        context = await self.sandbox.create_code_context()
        self.assertEqual((await self.sandbox.run_code("x", context=context)).error.name, "NameError")
        self.assertEqual(len(await self.sandbox.list_code_contexts()), 2)
        await self.sandbox.remove_code_context(context)

    async def test_a_cancelled_call_is_interrupted(self):
        started = asyncio.Event()
        call = asyncio.create_task(
            self.sandbox.run_code(
                "print('on', flush=True)\nimport time\nwhile True:\n  time.sleep(0.05)",
                on_stdout=lambda _: started.set(),
            )
        )
        await asyncio.wait_for(started.wait(), 30)
        call.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await call
        self.assertEqual((await asyncio.wait_for(self.sandbox.run_code("40 + 2"), 30)).text, "42")


if __name__ == "__main__":
    unittest.main()
