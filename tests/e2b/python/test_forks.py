"""Forks and snapshots."""

import unittest

import httpx
from e2b import Sandbox, SandboxException
from e2b.exceptions import NotFoundException

import support


class Forks(support.WithSandboxes):
    def test_five_go_on_from_one_moment(self):
        sandbox = self.create(metadata={"kind": "parent"}, envs={"A": "1"})
        handle = sandbox.commands.run("read x; echo got $x", background=True, stdin=True, timeout=0)
        sandbox.files.write("shared", "before")
        boot = support.boot_id(sandbox)
        forks = sandbox.fork(count=5, timeout=300)
        self.assertEqual(len(forks), 5)
        for number, fork in enumerate(forks):
            self.assertIsInstance(fork, Sandbox, fork)
            self.addCleanup(fork.kill)
            self.assertEqual(fork.files.read("shared"), "before")
            fork.files.write("shared", f"fork {number}")
            self.assertEqual(fork.commands.run("echo $A").stdout, "1\n")
            self.assertNotEqual(support.boot_id(fork), boot)
        self.assertEqual(len({fork.sandbox_id for fork in forks} | {sandbox.sandbox_id}), 6)
        self.assertEqual(len({fork._envd_access_token for fork in forks} | {sandbox._envd_access_token}), 6)
        # Each has the process of its own, under the number that it had.
        for number, fork in enumerate(forks):
            self.assertEqual(fork.files.read("shared"), f"fork {number}")
            again = fork.commands.connect(handle.pid)
            fork.commands.send_stdin(handle.pid, f"{number}\n")
            self.assertEqual(again.wait().stdout, f"got {number}\n")
        self.assertEqual(sandbox.files.read("shared"), "before")
        sandbox.commands.send_stdin(handle.pid, "parent\n")
        self.assertEqual(handle.wait().stdout, "got parent\n")

    def test_a_token_opens_its_own_sandbox_only(self):
        sandbox = self.create()
        (fork,) = sandbox.fork()
        self.addCleanup(fork.kill)
        self.assertEqual(self.listed(fork, fork), 200)
        self.assertEqual(self.listed(sandbox, sandbox), 200)
        self.assertEqual(self.listed(fork, sandbox), 401)
        self.assertEqual(self.listed(sandbox, fork), 401)

    def listed(self, sandbox, owner):
        """What a list of processes in one sandbox with the token of another is answered with."""
        headers = {
            "E2b-Sandbox-Id": sandbox.sandbox_id,
            "E2b-Sandbox-Port": "49983",
            "X-Access-Token": owner._envd_access_token,
        }
        return httpx.post(f"{support.api_url()}/process.Process/List", headers=headers, json={}).status_code

    def test_too_many_are_refused(self):
        sandbox = self.create()
        with self.assertRaises(Exception):
            sandbox.fork(count=21)


class Snapshots(support.WithSandboxes):
    def test_a_snapshot_outlives_its_sandbox(self):
        sandbox = self.create()
        sandbox.files.write("a", "kept")
        handle = sandbox.commands.run("sleep 1000", background=True, timeout=0)
        snapshot = sandbox.create_snapshot()
        sandbox.files.write("a", "changed")
        sandbox.kill()
        first, second = self.create(snapshot.snapshot_id), self.create(snapshot.snapshot_id, envs={"NEW": "1"})
        for born in (first, second):
            self.assertEqual(born.files.read("a"), "kept")
            self.assertIn(handle.pid, [found.pid for found in born.commands.list()])
        self.assertEqual(second.commands.run("echo $NEW").stdout, "1\n")
        first.files.write("a", "mine")
        self.assertEqual(second.files.read("a"), "kept")
        self.assertTrue(Sandbox.delete_snapshot(snapshot.snapshot_id))
        self.assertFalse(Sandbox.delete_snapshot(snapshot.snapshot_id))
        self.assertEqual(first.files.read("a"), "mine")
        with self.assertRaises((NotFoundException, SandboxException)):
            self.create(snapshot.snapshot_id)

    def test_snapshots_are_listed_and_named(self):
        sandbox = self.create()
        named = sandbox.create_snapshot(name="suite-snapshot")
        self.addCleanup(Sandbox.delete_snapshot, named.snapshot_id)
        plain = sandbox.create_snapshot(mode="filesystem")
        self.addCleanup(Sandbox.delete_snapshot, plain.snapshot_id)
        self.assertTrue(any("suite-snapshot" in name for name in named.names), named)
        paginator, found = sandbox.list_snapshots(limit=1), []
        while paginator.has_next:
            found += [one.snapshot_id for one in paginator.next_items()]
        self.assertEqual(set(found), {named.snapshot_id, plain.snapshot_id})
        self.assertEqual(len(found), 2)
        self.assertIn(named.snapshot_id, [one.snapshot_id for one in Sandbox.list_snapshots().next_items()])
        self.assertEqual(self.create("suite-snapshot").commands.run("echo up").stdout, "up\n")
        self.assertEqual(self.create(plain.snapshot_id).commands.run("echo up").stdout, "up\n")


if __name__ == "__main__":
    unittest.main()
