"""The code interpreter: kernels whose variables live through calls, pauses and forks."""

import base64
import concurrent.futures
import time
import unittest

from e2b import NotFoundException, SandboxException, TimeoutException
from e2b_code_interpreter import Sandbox

import support


class CodeInterpreter(unittest.TestCase):
    def setUp(self):
        self.sandbox = Sandbox.create(timeout=600, envs={"GREETING": "hello"})
        self.addCleanup(self.sandbox.kill)

    def run_(self, code, **how):
        return self.sandbox.run_code(code, **how)

    def test_variables_stay_from_call_to_call(self):
        first = self.run_("x = 1")
        self.assertEqual((first.results, first.error, first.execution_count), ([], None, 1))
        second = self.run_("x += 1\nprint('out')\nimport sys; print('err', file=sys.stderr)\nx")
        self.assertEqual((second.text, second.execution_count), ("2", 2))
        self.assertEqual(("".join(second.logs.stdout), "".join(second.logs.stderr)), ("out\n", "err\n"))
        self.assertEqual(self.run_("'a string'").text, "a string")
        self.assertEqual(self.run_("!echo from a shell").logs.stdout, ["from a shell\r\n"])
        self.assertEqual(self.run_("import os; os.getcwd()").text, "/home/user")

    def test_what_is_told_comes_at_once(self):
        seen = []
        began = time.monotonic()
        self.run_("import time\nfor i in range(3):\n  print(i, flush=True)\n  time.sleep(0.3)",
                  on_stdout=lambda message: seen.append((message.line, time.monotonic() - began)))
        self.assertEqual("".join(line for line, _ in seen), "0\n1\n2\n")
        self.assertGreater(seen[-1][1] - seen[0][1], 0.2)
        results, errors = [], []
        self.run_("display(1)\n1/0", on_result=results.append, on_error=errors.append)
        self.assertEqual((results[0].text, errors[0].name), ("1", "ZeroDivisionError"))

    def test_a_traceback(self):
        error = self.run_("def f():\n    raise ValueError('why')\nf()").error
        self.assertEqual((error.name, error.value), ("ValueError", "why"))
        self.assertIn("in f()", error.traceback.replace("\x1b[0m", "").replace("\x1b[0;36m", "").replace("\x1b[0;34m", ""))
        self.assertEqual(self.run_("1 +").error.name, "SyntaxError")

    def test_pictures_and_tables(self):
        drawn = self.run_("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
        png = base64.b64decode(drawn.results[0].png)
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        table = self.run_("import pandas as pd\npd.DataFrame({'a': [1, 2]})").results[0]
        self.assertTrue(table.is_main_result)
        self.assertIn("<table", table.html)

    def test_rich_formats(self):
        code = """
from IPython.display import display, HTML, Markdown, SVG, Latex, JSON, Javascript
for shown in (HTML("<b>a</b>"), Markdown("# a"), SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"), Latex("$a$"),
              JSON({"a": 1}), Javascript("a()")):
    display(shown)
class Paper:
    def _repr_pdf_(self): return b"%PDF"
    def _repr_jpeg_(self): return b"jpeg"
display(Paper())
"""
        results = self.run_(code).results
        formats = [set(result.formats()) - {"text"} for result in results]
        self.assertEqual(formats[:6], [{"html"}, {"markdown"}, {"svg"}, {"latex"}, {"json"}, {"javascript"}])
        self.assertEqual(formats[6], {"pdf", "jpeg"})
        self.assertEqual(results[4].json, {"a": 1})
        self.assertEqual(base64.b64decode(results[6].pdf), b"%PDF")

    def test_environment_of_sandbox_and_call(self):
        code = "import os; (os.environ.get('GREETING'), os.environ.get('ONCE'))"
        self.assertEqual(self.run_(code).text, "('hello', None)")
        self.assertEqual(self.run_(code, envs={"ONCE": "1", "GREETING": "bye"}).text, "('bye', '1')")
        self.assertEqual(self.run_(code).text, "('hello', None)")

    def test_contexts_are_apart(self):
        context = self.sandbox.create_code_context(cwd="/tmp")
        self.assertEqual((context.language, context.cwd), ("python", "/tmp"))
        self.run_("y = 5", context=context)
        self.assertEqual(self.run_("import os; (y, os.getcwd())", context=context).text, "(5, '/tmp')")
        self.assertEqual(self.run_("y").error.name, "NameError")
        self.assertEqual(len(self.sandbox.list_code_contexts()), 2)
        self.sandbox.restart_code_context(context)
        self.assertEqual(self.run_("y", context=context).error.name, "NameError")
        self.sandbox.remove_code_context(context)
        with self.assertRaises(NotFoundException):
            self.run_("1", context=context)
        with self.assertRaisesRegex(SandboxException, "language 'r' is not installed"):
            self.run_("1", language="r")
        self.assertEqual(self.run_("2", language="python").text, "2")

    def test_pauses_and_forks_keep_variables(self):
        self.run_("import itertools\nnumbers = itertools.count(7)\nnext(numbers)")
        self.sandbox.pause()
        self.sandbox.connect()
        self.assertEqual(self.run_("next(numbers)").text, "8")
        for fork in self.sandbox.fork(count=2):
            self.addCleanup(fork.kill)
            self.assertEqual(fork.run_code("next(numbers)").text, "9")
        self.assertEqual(self.run_("next(numbers)").text, "9")

    def test_who_leaves_interrupts(self):
        with self.assertRaises(TimeoutException):
            self.run_("import time\nbegan = True\nwhile True:\n  time.sleep(0.05)", timeout=1.5)
        execution = self.run_("began", timeout=20)
        self.assertEqual(execution.text, "True")

    def test_a_kernel_that_ends_is_told_and_replaced(self):
        error = self.run_("import os\nos._exit(1)").error
        self.assertEqual(error.name, "KernelDied")
        self.assertEqual(self.run_("1 + 1").text, "2")

    def test_calls_take_turns(self):
        self.run_("seen = []")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda i: self.run_(f"seen.append({i})"), range(8)))
        self.assertEqual(self.run_("sorted(seen)").text, str(list(range(8))))

    def test_what_is_written_is_there_for_commands(self):
        self.run_("open('made', 'w').write('by code')")
        self.assertEqual(self.sandbox.files.read("made"), "by code")
        self.assertEqual(self.sandbox.commands.run("ls -l made | cut -d' ' -f3").stdout, "user\n")

    def test_after_a_pause_without_memory_a_new_kernel_is_there(self):
        self.run_("x = 1")
        self.sandbox.pause(mode="filesystem")
        self.sandbox.connect()

        def answered():
            try:
                return self.run_("1 + 1")
            except (SandboxException, TimeoutException):
                return None

        self.assertEqual(support.becomes_true("the server is up", answered).text, "2")
        self.assertEqual(self.run_("x").error.name, "NameError")


if __name__ == "__main__":
    unittest.main()
