"""Pause and connect, again and again: nothing is lost."""

import unittest

from e2b import Sandbox, SandboxState
from e2b.exceptions import SandboxNotRunningException

import support

CYCLES = 30
# Counts as long as it lives, and keeps a number of its own in memory.
WITNESS = """
import itertools, os, secrets, time
print(os.getpid(), secrets.token_hex(8), flush=True)
for number in itertools.count():
    with open("count.new", "w") as file:
        file.write(str(number))
    os.replace("count.new", "count")
    time.sleep(0.01)
"""


class Pauses(support.WithSandboxes):
    def test_thirty_pauses_lose_nothing(self):
        sandbox = self.create()
        sandbox.files.write("witness.py", WITNESS)
        handle = sandbox.commands.run("exec python3 witness.py > witness.log", background=True, timeout=0)
        counting = "test -e count && cat witness.log || true"
        born = support.becomes_true("the witness counts", lambda: sandbox.commands.run(counting).stdout)
        boot = support.boot_id(sandbox)
        token = sandbox._envd_access_token
        counted = 0
        for cycle in range(CYCLES):
            sandbox.commands.run(f"mkdir -p tree/{cycle} && head -c 20000 /dev/urandom > tree/{cycle}/data && "
                                 f"(cd tree && sha256sum {cycle}/data >> sums)")
            self.assertTrue(sandbox.pause())
            if cycle % 10 == 0:
                self.assertEqual(sandbox.get_info().state, SandboxState.PAUSED)
            other = Sandbox.connect(sandbox.sandbox_id, timeout=600)
            self.assertEqual(other._envd_access_token, token)
            state = other.commands.run("cat witness.log; cat /proc/sys/kernel/random/boot_id; cat count; echo; "
                                       "cd tree && sha256sum --quiet -c sums && wc -l < sums").stdout
            self.assertTrue(state.startswith(born), f"cycle {cycle}: {state}")
            lines = state.removeprefix(born).split()
            self.assertEqual((lines[0], int(lines[2])), (boot.strip(), cycle + 1), f"cycle {cycle}")
            self.assertGreaterEqual(int(lines[1]), counted, f"cycle {cycle}")
            counted = int(lines[1])
            self.assertIn(handle.pid, [found.pid for found in other.commands.list()], f"cycle {cycle}")
        before = counted
        support.becomes_true("it goes on counting", lambda: int(sandbox.files.read("count")) > before)

    def test_a_command_is_followed_over_a_pause(self):
        sandbox = self.create()
        handle = sandbox.commands.run("read x; echo got $x; exit 3", background=True, stdin=True, timeout=0)
        handle.disconnect()
        sandbox.pause()
        sandbox.connect()
        again = sandbox.commands.connect(handle.pid)
        sandbox.commands.send_stdin(handle.pid, "it\n")
        with self.assertRaises(Exception) as caught:
            again.wait()
        self.assertEqual((caught.exception.exit_code, caught.exception.stdout), (3, "got it\n"))

    def test_a_pause_without_memory_starts_anew_from_the_files(self):
        sandbox = self.create()
        sandbox.files.write("kept", "x")
        handle = sandbox.commands.run("sleep 1000", background=True, timeout=0)
        boot, token = support.boot_id(sandbox), sandbox._envd_access_token
        self.assertTrue(sandbox.pause(mode="filesystem"))
        sandbox.connect()
        self.assertEqual(sandbox.files.read("kept"), "x")
        self.assertNotEqual(support.boot_id(sandbox), boot)
        self.assertEqual(sandbox._envd_access_token, token)
        self.assertNotIn(handle.pid, [found.pid for found in sandbox.commands.list()])

    def test_memory_can_be_left_behind_when_it_goes_on(self):
        sandbox = self.create()
        sandbox.files.write("kept", "x")
        boot = support.boot_id(sandbox)
        sandbox.pause()
        sandbox.connect(on_resume="reboot")
        self.assertNotEqual(support.boot_id(sandbox), boot)
        self.assertEqual(sandbox.files.read("kept"), "x")

    def test_paused_means_paused(self):
        sandbox = self.create()
        self.assertTrue(sandbox.pause())
        self.assertFalse(sandbox.pause())
        self.assertFalse(sandbox.is_running())
        with self.assertRaises(SandboxNotRunningException):
            sandbox.commands.run("true")
        self.assertEqual(sandbox.get_info().state, SandboxState.PAUSED)
        self.assertTrue(sandbox.kill())
        self.assertFalse(sandbox.kill())


if __name__ == "__main__":
    unittest.main()
