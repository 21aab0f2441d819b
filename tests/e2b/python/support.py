"""What the scripts share. They see the packages only: where the daemon is stands in E2B_API_URL and E2B_SANDBOX_URL."""

import os
import time
import unittest

from e2b import Sandbox

KILLED = "The sandbox was killed or reached its end of life while the request was in flight."
# What has not come true by then will not.
PATIENCE = 30


def becomes_true(what, probe):
    """Asks until the probe says yes, and returns what it said."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"never came true: {what}")
        time.sleep(0.02)


def boot_id(sandbox):
    return sandbox.commands.run("cat /proc/sys/kernel/random/boot_id").stdout


def api_url():
    return os.environ["E2B_API_URL"]


async def end(sandbox):
    """Ends a sandbox of the asynchronous half; `kill` itself is no function that unittest takes for a coroutine's."""
    await sandbox.kill()


class WithSandbox(unittest.TestCase):
    """Tests that share one sandbox."""

    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(timeout=600)

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.kill()


class WithSandboxes(unittest.TestCase):
    """Tests that make sandboxes of their own, which are gone afterwards."""

    def create(self, *args, **kwargs):
        kwargs.setdefault("timeout", 600)
        sandbox = Sandbox.create(*args, **kwargs)
        self.addCleanup(sandbox.kill)
        return sandbox
