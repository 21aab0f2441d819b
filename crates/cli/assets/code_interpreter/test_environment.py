"""The environment of code: read from the sandbox, and set for one call."""

import json
import os
import sys
import tempfile
import unittest

import environment

NOWHERE = "http://127.0.0.1:9/envs"


class OfSandbox(unittest.TestCase):
    def test_the_file_tells(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"A": "1", "B": 2}, file)
            file.flush()
            self.assertEqual(environment.of_sandbox(path=file.name, url=NOWHERE), {"A": "1", "B": "2"})

    def test_without_file_and_agent_there_is_none(self):
        self.assertEqual(environment.of_sandbox(path="/nowhere", url=NOWHERE), {})

    def test_a_file_half_written_is_no_failure(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"A"')
            file.flush()
            self.assertEqual(environment.of_sandbox(path=file.name, url=NOWHERE), {})


class OfCall(unittest.TestCase):
    def setUp(self):
        for name in ("CALL_OLD", "CALL_NEW"):
            os.environ.pop(name, None)
            self.addCleanup(os.environ.pop, name, None)

    def run_code(self, code):
        names = {}
        exec(code, names)
        names.pop("__builtins__")
        self.assertEqual(names, {}, "no name is left to the user")

    def test_a_call_leaves_everything_as_it_was(self):
        os.environ["CALL_OLD"] = "before"
        self.run_code(environment.enter({"CALL_OLD": "it's \"mine\"", "CALL_NEW": "ü\n"}))
        self.assertEqual((os.environ["CALL_OLD"], os.environ["CALL_NEW"]), ("it's \"mine\"", "ü\n"))
        self.run_code(environment.leave())
        self.assertEqual(os.environ["CALL_OLD"], "before")
        self.assertNotIn("CALL_NEW", os.environ)
        self.assertFalse(hasattr(sys, "_call_environment"))
        self.run_code(environment.leave())

    def test_a_fork_takes_its_own_for_good(self):
        self.run_code(environment.adopt({"CALL_NEW": "1"}))
        self.run_code(environment.leave())
        self.assertEqual(os.environ["CALL_NEW"], "1")

    def test_what_is_no_environment_is_refused(self):
        self.assertEqual(environment.checked(None), {})
        for wrong in [[], {"A": 1}, {"": "a"}, {"A=B": "c"}, {"A": "\0"}]:
            with self.assertRaises(ValueError):
                environment.checked(wrong)


if __name__ == "__main__":
    unittest.main()
