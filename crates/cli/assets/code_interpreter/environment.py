"""The environment that code sees: the sandbox's own, and what a single call adds for its time."""

import json
import os
import urllib.request

# The sandbox tells its processes who it is in this folder; the file changes with a fork.
SANDBOX_FILE = "/run/roost/env.json"
# Where an agent inside would answer the same question; most sandboxes have none.
SANDBOX_URL = "http://localhost:49983/envs"


def of_sandbox(access_token=None, path=SANDBOX_FILE, url=SANDBOX_URL):
    """What the sandbox was made with; nothing if nobody tells."""
    for read in (lambda: _from_file(path), lambda: _from_agent(url, access_token)):
        try:
            found = read()
        except (OSError, ValueError):
            continue
        if isinstance(found, dict):
            return {str(name): str(value) for name, value in found.items()}
    return {}


def _from_file(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _from_agent(url, access_token):
    request = urllib.request.Request(url, headers={"X-Access-Token": access_token} if access_token else {})
    # Straight to the loopback, whatever proxy the sandbox is told to use.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=1) as answer:
        return json.load(answer)


def for_kernel(sandbox):
    """The environment that a kernel starts with."""
    env = dict(os.environ)
    env.update(sandbox)
    return env


# Code that the kernel runs in silence before and after a call. It leaves no name in the user's namespace; what it has to
# remember in between lies in the module `sys`.
_ENTER = """
import os, sys
sys._call_environment = {name: os.environ.get(name) for name in values}
os.environ.update(values)
"""
_LEAVE = """
import os, sys
for name, value in sys.__dict__.pop("_call_environment", {}).items():
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
"""
_ADOPT = """
import os
os.environ.update(values)
"""


def _code(text, values):
    return f"__import__('builtins').exec({text!r}, {{'values': {values!r}}})"


def enter(values):
    """Code that sets variables and remembers what they were."""
    return _code(_ENTER, values)


def leave():
    """Code that puts back what `enter` found."""
    return _code(_LEAVE, {})


def adopt(values):
    """Code that sets variables for good."""
    return _code(_ADOPT, values)


def checked(values):
    """Variables of a request; raises ValueError if they are none."""
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ValueError("env_vars is an object of names and values")
    for name, value in values.items():
        if not isinstance(value, str):
            raise ValueError(f"the value of environment variable {name!r} is not a string")
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} is not a valid environment variable")
    return values
