"""The side of E2B's Python package: does what it is told on standard input, a line each, and says how long it took.

    create     a sandbox, and its first command; the one before is ended first, off the clock
    run        `true` in that sandbox
"""

import sys
import time

from e2b import Sandbox

template = sys.argv[1]
sandbox = None


def create():
    global sandbox
    sandbox = Sandbox.create(template, timeout=600)
    sandbox.commands.run("true")


def run():
    sandbox.commands.run("true")


try:
    for line in sys.stdin:
        act = {"create": create, "run": run}[line.strip()]
        if act is create and sandbox is not None:
            sandbox.kill()
        began = time.perf_counter()
        act()
        print((time.perf_counter() - began) * 1e3, flush=True)
finally:
    if sandbox is not None:
        sandbox.kill()
