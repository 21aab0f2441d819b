"""Runs a module of tests, and ends without taking the interpreter apart.

The packages' HTTP client has threads of its own that Python does not know. About once in sixty times one of them is at work
when the interpreter is taken apart, and ends the process by SIGABRT after all tests held (curioswitch/pyqwest#164). No server
has a part in that. What the tests found is known by then, and is what this process ends with.
"""

import os
import sys
import unittest

if __name__ == "__main__":
    outcome = unittest.main(module=None, argv=["unittest", "--verbose", *sys.argv[1:]], exit=False).result
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if outcome.wasSuccessful() and outcome.testsRun else 1)
