"""Commands: their output, input, ends, limits, and coming back to them."""

import concurrent.futures
import threading
import unittest

from e2b import CommandExitException, InvalidArgumentException, NotFoundException, TimeoutException
from e2b.exceptions import AuthenticationException, SandboxNotRunningException

import support


class Commands(support.WithSandbox):
    def run_(self, line, **how):
        return self.sandbox.commands.run(line, **how)

    def test_output_and_code_come_back(self):
        result = self.run_("echo out; echo err >&2")
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("out\n", "err\n", 0))
        self.assertFalse(result.error)

    def test_a_failure_is_an_exception_with_everything_in_it(self):
        with self.assertRaises(CommandExitException) as caught:
            self.run_("echo before; echo why >&2; exit 3")
        error = caught.exception
        self.assertEqual((error.exit_code, error.stdout, error.stderr), (3, "before\n", "why\n"))
        self.assertEqual(error.error, "exit status 3")
        with self.assertRaises(CommandExitException) as caught:
            self.run_("nosuchcommand")
        self.assertEqual(caught.exception.exit_code, 127)

    def test_user_folder_and_environment(self):
        self.assertEqual(self.run_("id -un; pwd; echo $HOME $USER").stdout, "user\n/home/user\n/home/user user\n")
        self.assertEqual(self.run_("id -un; pwd; echo $HOME", user="root").stdout, "root\n/root\n/root\n")
        self.assertEqual(self.run_("pwd", cwd="/tmp").stdout, "/tmp\n")
        self.assertEqual(self.run_("echo $A-$B", envs={"A": "1", "B": "two words"}).stdout, "1-two words\n")
        self.assertEqual(self.run_("sudo id -u").stdout, "0\n")
        self.assertEqual(self.run_("echo $E2B_SANDBOX").stdout, "true\n")

    def test_what_cannot_be_is_refused(self):
        with self.assertRaisesRegex(InvalidArgumentException, "cwd '/nowhere' does not exist"):
            self.run_("true", cwd="/nowhere")
        with self.assertRaisesRegex(AuthenticationException, "nobody-here"):
            self.run_("true", user="nobody-here")
        with self.assertRaises(NotFoundException):
            self.sandbox.commands.connect(999999)
        with self.assertRaises(NotFoundException):
            self.sandbox.commands.send_stdin(999999, "x")
        self.assertFalse(self.sandbox.commands.kill(999999))

    def test_output_is_streamed_in_order(self):
        seen = []
        result = self.run_("for i in 1 2 3; do echo $i; sleep 0.1; done", on_stdout=seen.append)
        self.assertEqual("".join(seen), "1\n2\n3\n")
        self.assertGreater(len(seen), 1, "it came in one piece")
        self.assertEqual(result.stdout, "1\n2\n3\n")
        errors = []
        self.run_("echo oh >&2", on_stderr=errors.append)
        self.assertEqual(errors, ["oh\n"])

    def test_unicode_is_whole_wherever_it_is_cut(self):
        text = "aü€😀" * 40000
        result = self.run_("python3 -c \"import sys; sys.stdout.write('aü€😀' * 40000)\"")
        self.assertEqual(result.stdout, text)
        cut = "printf '\\xf0\\x9f'; sleep 0.2; printf '\\x98\\x80'"
        seen = []
        self.assertEqual(self.run_(cut, on_stdout=seen.append).stdout, "😀")
        self.assertEqual("".join(seen), "😀")
        self.assertEqual(self.run_("printf 'a\\xff'").stdout, "a�")

    def test_much_output_is_whole(self):
        result = self.run_("seq 1 400000")
        self.assertEqual(result.stdout, "".join(f"{i}\n" for i in range(1, 400001)))

    def test_a_command_without_output_retained(self):
        seen = []
        result = self.run_("echo a", retain_output=False, on_stdout=seen.append)
        self.assertEqual((result.stdout, seen), (None, ["a\n"]))

    def test_standard_input_is_fed_and_closed(self):
        handle = self.run_("cat", background=True, stdin=True)
        handle.send_stdin("hello ")
        self.sandbox.commands.send_stdin(handle.pid, "wörld\n")
        handle.close_stdin()
        self.assertEqual(handle.wait().stdout, "hello wörld\n")

    def test_input_can_be_a_stream(self):
        handle = self.run_("wc -c", background=True, stdin=True)
        self.sandbox.commands.stream_input(handle.pid, (b"x" * 10000 for _ in range(50)))
        self.sandbox.commands.close_stdin(handle.pid)
        self.assertEqual(handle.wait().stdout.strip(), "500000")

    def test_without_input_a_reader_sees_the_end(self):
        self.assertEqual(self.run_("cat; echo done", timeout=10).stdout, "done\n")

    def test_a_limit_ends_the_command_and_its_process(self):
        with self.assertRaises(TimeoutException):
            self.run_("sleep 4321", timeout=1)
        support.becomes_true("the process is gone", lambda: not self.processes("sleep 4321"))

    def processes(self, line):
        return [found for found in self.sandbox.commands.list() if line in " ".join(found.args)]

    def test_a_background_command_is_listed_and_killed(self):
        handle = self.run_("sleep 1234", background=True, envs={"MARK": "1"}, cwd="/tmp")
        found = next(found for found in self.sandbox.commands.list() if found.pid == handle.pid)
        self.assertEqual((found.cmd, found.args[:2], found.cwd), ("/bin/bash", ["-l", "-c"], "/tmp"))
        self.assertEqual(found.envs.get("MARK"), "1")
        self.assertTrue(handle.kill())
        with self.assertRaises(CommandExitException) as caught:
            handle.wait()
        self.assertEqual(caught.exception.error, "signal: killed")
        self.assertFalse(self.sandbox.commands.kill(handle.pid))
        self.assertFalse(self.processes("sleep 1234"))

    def test_one_leaves_and_comes_back(self):
        handle = self.run_("for i in $(seq 30); do echo tick $i; sleep 0.1; done; exit 7", background=True, timeout=0)
        handle.disconnect()
        again = self.sandbox.commands.connect(handle.pid)
        with self.assertRaises(CommandExitException) as caught:
            again.wait()
        self.assertEqual(caught.exception.exit_code, 7)
        self.assertIn("tick 30\n", caught.exception.stdout)

    def test_an_end_is_remembered_for_those_who_come_late(self):
        handle = self.run_("exit 5", background=True)
        with self.assertRaises(CommandExitException):
            handle.wait()
        with self.assertRaises(CommandExitException) as caught:
            self.sandbox.commands.connect(handle.pid).wait()
        self.assertEqual(caught.exception.exit_code, 5)

    def test_two_listen_to_one(self):
        first = self.run_("read x; seq 1000", background=True, stdin=True)
        second = self.sandbox.commands.connect(first.pid)
        first.send_stdin("\n")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            ends = [pool.submit(handle.wait) for handle in (first, second)]
            self.assertEqual({end.result().stdout for end in ends}, {"".join(f"{i}\n" for i in range(1, 1001))})

    def test_iterating_gives_pieces(self):
        handle = self.run_("echo a; echo b >&2", background=True)
        out, err = "", ""
        for stdout, stderr, _ in handle:
            out, err = out + (stdout or ""), err + (stderr or "")
        self.assertEqual((out, err), ("a\n", "b\n"))

    def test_twenty_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            results = pool.map(lambda i: self.run_(f"sleep 0.2; echo {i}").stdout, range(20))
            self.assertEqual(list(results), [f"{i}\n" for i in range(20)])

    def test_what_a_command_leaves_behind_does_not_hold_it_up(self):
        self.assertEqual(self.run_("nohup sleep 600 >/dev/null 2>&1 & echo started", timeout=10).stdout, "started\n")


class Killed(support.WithSandboxes):
    def test_a_sandbox_killed_during_a_command_says_so(self):
        sandbox = self.create()
        handle = sandbox.commands.run("echo ready; sleep 300", background=True)
        ready = threading.Event()
        outcome = []

        def listen():
            try:
                outcome.append(handle.wait(on_stdout=lambda _: ready.set()))
            except Exception as error:  # noqa: BLE001 - any will do, it is looked at below.
                outcome.append(error)

        listener = threading.Thread(target=listen)
        listener.start()
        self.assertTrue(ready.wait(support.PATIENCE))
        self.assertTrue(sandbox.kill())
        listener.join(support.PATIENCE)
        self.assertIsInstance(outcome[0], SandboxNotRunningException)
        self.assertIn(support.KILLED, str(outcome[0]))

    def test_a_killed_sandbox_runs_nothing(self):
        sandbox = self.create()
        self.assertTrue(sandbox.is_running())
        sandbox.kill()
        self.assertFalse(sandbox.is_running())
        with self.assertRaisesRegex(SandboxNotRunningException, "was not found"):
            sandbox.commands.run("true")

    def test_the_sandbox_s_environment_is_every_command_s(self):
        sandbox = self.create(envs={"GREETING": "hello"})
        self.assertEqual(sandbox.commands.run("echo $GREETING").stdout, "hello\n")
        self.assertEqual(sandbox.commands.run("echo $GREETING", envs={"GREETING": "bye"}).stdout, "bye\n")


if __name__ == "__main__":
    unittest.main()
