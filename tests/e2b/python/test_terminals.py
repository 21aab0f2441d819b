"""Terminals: input, size, leaving and coming back."""

import threading
import unittest

from e2b import CommandExitException, NotFoundException, PtySize

import support


class Terminals(support.WithSandbox):
    def test_a_shell_in_a_terminal(self):
        terminal = self.sandbox.pty.create(PtySize(rows=24, cols=80), cwd="/tmp", envs={"MARK": "here"})
        self.sandbox.pty.send_stdin(terminal.pid, b"stty size; pwd; echo $MARK-$TERM; id -un; exit\n")
        got = bytearray()
        self.assertEqual(terminal.wait(on_pty=got.extend).exit_code, 0)
        for text in (b"24 80\r\n", b"/tmp\r\n", b"here-xterm-256color\r\n", b"user\r\n"):
            self.assertIn(text, bytes(got))

    def test_its_size_changes_while_it_runs(self):
        terminal = self.sandbox.pty.create(PtySize(rows=24, cols=80))
        self.sandbox.pty.resize(terminal.pid, PtySize(rows=50, cols=132))
        self.sandbox.pty.stream_input(terminal.pid, [b"stty size\n", b"exit 3\n"])
        got = bytearray()
        with self.assertRaises(CommandExitException) as caught:
            terminal.wait(on_pty=got.extend)
        self.assertEqual(caught.exception.exit_code, 3)
        self.assertIn(b"50 132\r\n", bytes(got))

    def test_one_leaves_and_comes_back(self):
        terminal = self.sandbox.pty.create(PtySize(rows=24, cols=80), timeout=0)
        terminal.disconnect()
        again = self.sandbox.pty.connect(terminal.pid)
        self.sandbox.pty.send_stdin(terminal.pid, b"echo $((6*7)); exit\n")
        got = bytearray()
        again.wait(on_pty=got.extend)
        self.assertIn(b"42\r\n", bytes(got))

    def test_killing_and_control_characters(self):
        terminal = self.sandbox.pty.create(PtySize(rows=24, cols=80))
        self.assertIn(terminal.pid, [found.pid for found in self.sandbox.commands.list()])
        got = bytearray()
        listener = threading.Thread(target=terminal.wait, kwargs={"on_pty": got.extend})
        listener.start()
        self.sandbox.pty.send_stdin(terminal.pid, b"PS1='next> '; echo beg''un; sleep 100\n")
        support.becomes_true("it has begun", lambda: b"begun\r\n" in bytes(got))
        self.sandbox.pty.send_stdin(terminal.pid, b"\x03")
        support.becomes_true("the prompt is back", lambda: b"next> " in bytes(got).partition(b"begun\r\n")[2])
        self.sandbox.pty.send_stdin(terminal.pid, b"exit 0\n")
        listener.join(support.PATIENCE)
        self.assertFalse(listener.is_alive())
        self.assertFalse(self.sandbox.pty.kill(terminal.pid))
        with self.assertRaises(NotFoundException):
            self.sandbox.pty.resize(999999, PtySize(rows=1, cols=1))
        other = self.sandbox.pty.create(PtySize(rows=24, cols=80))
        self.assertTrue(self.sandbox.pty.kill(other.pid))
        with self.assertRaises(CommandExitException):
            other.wait()


if __name__ == "__main__":
    unittest.main()
