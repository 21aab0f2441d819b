"""Making, finding, listing and ending sandboxes, and what happens when their time is up."""

import datetime
import time
import unittest
import urllib.parse

import httpx
from e2b import Sandbox, SandboxNotFoundException, SandboxQuery, SandboxState
from e2b.exceptions import SandboxNotRunningException

import support


class Lives(support.WithSandboxes):
    def test_a_sandbox_is_made_known_and_ended(self):
        sandbox = self.create(metadata={"team": "a b&c=ü"}, timeout=120)
        info = sandbox.get_info()
        self.assertEqual((info.sandbox_id, info.state, info.metadata), (sandbox.sandbox_id, SandboxState.RUNNING, {"team": "a b&c=ü"}))
        self.assertEqual((info.name, Sandbox.get_info(sandbox.sandbox_id).template_id), ("base", info.template_id))
        self.assertAlmostEqual((info.end_at - info.started_at).total_seconds(), 120, delta=5)
        self.assertGreater(info.cpu_count * info.memory_mb, 0)
        self.assertRegex(sandbox.sandbox_id, "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "it is part of host names")
        self.assertEqual(sandbox.get_host(8000).split(".")[0], f"8000-{sandbox.sandbox_id}")
        self.assertTrue(sandbox.is_running())
        self.assertTrue(sandbox.kill())
        self.assertFalse(sandbox.kill())
        self.assertFalse(sandbox.is_running())
        for act in (Sandbox.get_info, Sandbox.connect, Sandbox.pause, Sandbox.fork, Sandbox.create_snapshot):
            with self.assertRaises(SandboxNotFoundException):
                act(sandbox.sandbox_id)
        with self.assertRaises(SandboxNotFoundException):
            Sandbox.set_timeout(sandbox.sandbox_id, 60)

    def test_a_context_ends_with_its_sandbox(self):
        with Sandbox.create(timeout=60) as sandbox:
            self.assertTrue(sandbox.is_running())
        self.assertFalse(sandbox.is_running())

    def test_another_process_connects_by_id(self):
        sandbox = self.create()
        sandbox.files.write("a", "x")
        other = Sandbox.connect(sandbox.sandbox_id)
        self.assertEqual(other.files.read("a"), "x")

    def test_time_is_set_and_extended(self):
        sandbox = self.create(timeout=30)
        left = lambda: (sandbox.get_info().end_at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
        sandbox.set_timeout(500)
        self.assertAlmostEqual(left(), 500, delta=10)
        sandbox.set_timeout(100)
        self.assertAlmostEqual(left(), 100, delta=10)
        # Whoever connects does not take time away.
        sandbox.connect(timeout=20)
        self.assertAlmostEqual(left(), 100, delta=10)
        sandbox.connect(timeout=300)
        self.assertAlmostEqual(left(), 300, delta=10)

    def test_time_that_is_up_ends_it(self):
        sandbox = self.create(timeout=1)
        support.becomes_true("it is gone", lambda: not sandbox.is_running())
        with self.assertRaises(SandboxNotRunningException):
            sandbox.commands.run("true")

    def test_measurements(self):
        sandbox = self.create()
        sandbox.commands.run("true")
        metrics = support.becomes_true("there are figures", sandbox.get_metrics)
        last = metrics[-1]
        self.assertGreater(last.mem_total, last.mem_used)
        self.assertGreater(last.disk_total, last.disk_used)
        self.assertGreater(last.cpu_count, 0)
        self.assertGreaterEqual(last.cpu_used_pct, 0)

    def test_without_the_internet_there_is_none(self):
        sandbox = self.create(allow_internet_access=False)
        line = "python3 -c \"import socket; socket.create_connection(('9.9.9.9', 53), 3)\" 2>/dev/null || echo refused"
        self.assertEqual(sandbox.commands.run(line).stdout, "refused\n")
        self.assertIs(sandbox.get_info().allow_internet_access, False)

    def test_the_network_can_be_closed_and_opened(self):
        sandbox = self.create()
        sandbox.update_network({"allow_internet_access": False})
        self.assertIs(sandbox.get_info().allow_internet_access, False)
        self.assertEqual(sandbox.commands.run("echo still here").stdout, "still here\n")
        sandbox.update_network({"allow_internet_access": True})
        self.assertIsNot(sandbox.get_info().allow_internet_access, False)

    def test_ports_that_are_not_public_take_a_token(self):
        sandbox = self.create(network={"allow_public_traffic": False})
        sandbox.commands.run("python3 -m http.server 8000 -d /usr/share/zoneinfo", background=True, timeout=0)
        headers = {"Host": f"8000-{sandbox.sandbox_id}.{sandbox.sandbox_domain}", "Accept": "application/json"}
        get = lambda **more: httpx.get(support.api_url() + "/UTC", headers=headers | more, timeout=30).status_code
        self.assertEqual(get(), 403)
        self.assertEqual(get(**{"E2B-Traffic-Access-Token": "wrong"}), 403)
        self.assertEqual(get(**{"E2B-Traffic-Access-Token": sandbox.traffic_access_token}), 200)

    def test_a_key_makes_one_sandbox_only(self):
        key = f"key-{time.time_ns()}"
        first, second = self.create(idempotency_key=key), self.create(idempotency_key=key)
        self.assertEqual(first.sandbox_id, second.sandbox_id)


class Lists(support.WithSandboxes):
    def test_pages_order_and_filters(self):
        mark = f"list {time.time_ns()}"
        made = [self.create(metadata={"mark": mark, "number": str(i)}) for i in range(5)]
        ids = [sandbox.sandbox_id for sandbox in made]
        query = SandboxQuery(metadata={"mark": mark})
        pages, paginator = [], Sandbox.list(query=query, limit=2)
        while paginator.has_next:
            pages.append([found.sandbox_id for found in paginator.next_items()])
        self.assertEqual([len(page) for page in pages], [2, 2, 1])
        self.assertEqual(sum(pages, []), list(reversed(ids)))
        found = Sandbox.list(query=query, order="asc").next_items()
        self.assertEqual([one.sandbox_id for one in found], ids)
        one = Sandbox.list(query=SandboxQuery(metadata={"mark": mark, "number": "3"})).next_items()
        self.assertEqual([found.sandbox_id for found in one], [ids[3]])
        made[0].pause()
        states = lambda *states: [
            found.sandbox_id
            for found in Sandbox.list(query=SandboxQuery(metadata={"mark": mark}, state=list(states)), order="asc").next_items()
        ]
        self.assertEqual(states(SandboxState.PAUSED), ids[:1])
        self.assertEqual(states(SandboxState.RUNNING), ids[1:])
        self.assertEqual(states(SandboxState.RUNNING, SandboxState.PAUSED), ids)
        later = made[2].get_info().started_at
        after = SandboxQuery(metadata={"mark": mark}, started_after=later)
        self.assertEqual([found.sandbox_id for found in Sandbox.list(query=after, order="asc").next_items()][-2:], ids[3:])
        of_template = SandboxQuery(metadata={"mark": mark}, template="base")
        self.assertEqual(len(Sandbox.list(query=of_template).next_items()), 5)


class TimeIsUp(support.WithSandboxes):
    PAUSE = {"on_timeout": "pause", "auto_resume": True}

    def asleep(self, sandbox):
        sandbox.set_timeout(1)
        support.becomes_true("it is paused", lambda: sandbox.get_info().state == SandboxState.PAUSED)

    def test_a_call_of_the_package_wakes_it(self):
        sandbox = self.create(lifecycle=self.PAUSE)
        handle = sandbox.commands.run("sleep 1000", background=True, timeout=0)
        boot = support.boot_id(sandbox)
        self.assertEqual(sandbox.get_info().lifecycle, {"on_timeout": "pause", "auto_resume": True})
        for _ in range(2):
            self.asleep(sandbox)
            self.assertEqual(support.boot_id(sandbox), boot)
            self.assertIn(handle.pid, [found.pid for found in sandbox.commands.list()])
            self.assertEqual(sandbox.get_info().state, SandboxState.RUNNING)
        self.asleep(sandbox)
        sandbox.files.write("woken", "by a write")
        self.assertEqual(sandbox.files.read("woken"), "by a write")

    def test_a_request_to_a_port_wakes_it(self):
        sandbox = self.create(lifecycle=self.PAUSE)
        sandbox.files.write("site/index.html", "served")
        sandbox.commands.run("python3 -m http.server 8000 -d site", background=True, timeout=0)
        base = urllib.parse.urlsplit(support.api_url())
        host = f"8000-{sandbox.sandbox_id}.{sandbox.sandbox_domain}"

        def get():
            try:
                answer = httpx.get(support.api_url() + "/", headers={"Host": host}, timeout=30)
            except httpx.TransportError:
                return None
            return answer.text if answer.status_code == 200 else None

        self.assertTrue(base.hostname)
        self.assertEqual(support.becomes_true("the server is up", get), "served")
        self.asleep(sandbox)
        self.assertEqual(httpx.get(support.api_url() + "/", headers={"Host": host}, timeout=30).text, "served")
        self.assertEqual(sandbox.get_info().state, SandboxState.RUNNING)

    def test_without_auto_resume_it_stays_asleep(self):
        sandbox = self.create(lifecycle={"on_timeout": "pause"})
        self.asleep(sandbox)
        self.assertFalse(sandbox.is_running())
        with self.assertRaises(SandboxNotRunningException):
            sandbox.commands.run("true")
        self.assertEqual(sandbox.get_info().state, SandboxState.PAUSED)
        sandbox.connect()
        self.assertEqual(sandbox.commands.run("echo awake").stdout, "awake\n")

    def test_only_its_files_if_so_told(self):
        sandbox = self.create(lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"}})
        sandbox.files.write("kept", "x")
        boot = support.boot_id(sandbox)
        self.asleep(sandbox)
        sandbox.connect()
        self.assertNotEqual(support.boot_id(sandbox), boot)
        self.assertEqual(sandbox.files.read("kept"), "x")


if __name__ == "__main__":
    unittest.main()
