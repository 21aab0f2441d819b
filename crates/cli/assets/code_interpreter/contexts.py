"""Contexts: each has a kernel of its own, in which variables stay from call to call."""

import asyncio
import os
import shutil
import tempfile
import time
import uuid

from jupyter_client import AsyncKernelManager

import environment
import outputs

LANGUAGE = "python"
HOME = os.path.expanduser("~")
# How long a kernel may take to come up, and how often one that should stop is told so.
START_LIMIT = 60
INTERRUPT_EVERY = 1
# Between two looks whether a kernel that says nothing still lives.
LOOK_EVERY = 2


class Unknown(Exception):
    """No context has that id."""


class Refused(Exception):
    """The request asks for what cannot be."""


class Context:
    """A kernel, and the turn of those who want to use it."""

    def __init__(self, cwd):
        self.id = str(uuid.uuid4())
        self.cwd = cwd
        self.turn = asyncio.Lock()
        self.environment = {}
        # Unix sockets in a folder of its own: nothing of a kernel's listens on a port that somebody could take for a
        # server's, and no kernel answers in the place of another.
        self.folder = tempfile.mkdtemp(prefix="code-interpreter-")
        self.manager = AsyncKernelManager(
            kernel_name="python3", transport="ipc", connection_file=os.path.join(self.folder, "kernel.json")
        )
        self.client = None

    def view(self):
        return {"id": self.id, "language": LANGUAGE, "cwd": self.cwd}

    async def start(self, sandbox):
        self.environment = dict(sandbox)
        await self.manager.start_kernel(cwd=self.cwd, env=environment.for_kernel(sandbox))
        await self._greet()

    async def restart(self):
        async with self.turn:
            await self._bring_back()

    async def stop(self):
        if self.client is not None:
            self.client.stop_channels()
        await self.manager.shutdown_kernel(now=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    async def run(self, code, env, sandbox, emit, gone):
        """Runs code and hands every event to `emit`. Once `gone` is set, nobody listens: the code is interrupted."""
        async with self.turn:
            if gone.is_set():
                return
            if not await self.manager.is_alive():
                await self._bring_back()
            if sandbox != self.environment:
                # A fork has another environment than the one that its kernel was started with.
                await self._quietly(environment.adopt(sandbox))
                self.environment = dict(sandbox)
            if env:
                await self._quietly(environment.enter(env))
            try:
                await self._execute(code, emit, gone)
            finally:
                if env and await self.manager.is_alive():
                    await self._quietly(environment.leave())

    async def _execute(self, code, emit, gone):
        request = self.client.execute(code, store_history=True, allow_stdin=False)
        left = asyncio.ensure_future(self._interrupt_when(gone))
        try:
            async for message in self._answers(request):
                event = outputs.event_of(message, time.time_ns())
                if event is not None and not gone.is_set():
                    emit(event)
        except KernelEnded:
            emit(outputs.error("KernelDied", "the kernel ended while it ran the code; variables are lost", ""))
            await self._bring_back()
        finally:
            left.cancel()

    async def _interrupt_when(self, gone):
        await gone.wait()
        # More than once: a kernel that has not begun yet does not hear it.
        while True:
            await self.manager.interrupt_kernel()
            await asyncio.sleep(INTERRUPT_EVERY)

    async def _answers(self, request):
        """What the kernel says to a request until it is through with it."""
        while True:
            try:
                message = await self.client.get_iopub_msg(timeout=LOOK_EVERY)
            except Exception as silent:  # noqa: BLE001 - `queue.Empty`, which the client does not name as its own.
                if type(silent).__name__ != "Empty":
                    raise
                if not await self.manager.is_alive():
                    raise KernelEnded from None
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            yield message
            if outputs.is_idle(message):
                return

    async def _quietly(self, code):
        """Runs code of ours: no output, no number, no trace in the history."""
        request = self.client.execute(code, silent=True, store_history=False, allow_stdin=False)
        try:
            async for _ in self._answers(request):
                pass
        except KernelEnded:
            pass

    async def _bring_back(self):
        """A new kernel in the place of the old one."""
        self.client.stop_channels()
        await self.manager.restart_kernel(now=True)
        await self._greet()

    async def _greet(self):
        self.client = self.manager.client()
        self.client.start_channels()
        try:
            await self.client.wait_for_ready(timeout=START_LIMIT)
            # What a kernel does for the first time takes longer; it shall not be the first call that waits.
            await self._quietly("pass")
        except RuntimeError:
            await self.stop()
            raise


class KernelEnded(Exception):
    """The kernel's process is no more."""


class Contexts:
    """All contexts of a sandbox, the default one among them."""

    def __init__(self):
        self.all = {}
        self.default = None

    async def open(self, sandbox):
        self.default = await self.create(None, None, sandbox)

    async def create(self, language, cwd, sandbox):
        check_language(language)
        cwd = os.path.join(HOME, cwd or "")
        if not os.path.isdir(cwd):
            raise Refused(f"cwd '{cwd}' does not exist")
        context = Context(os.path.normpath(cwd))
        await context.start(sandbox)
        self.all[context.id] = context
        return context

    def find(self, context_id, language=None):
        """The context that a call names; the default one if it names none."""
        check_language(language)
        if context_id is None:
            context_id = self.default.id
        if context_id not in self.all:
            raise Unknown(f"Context {context_id} not found")
        return self.all[context_id]

    async def remove(self, context_id):
        context = self.find(context_id)
        if context is self.default:
            # Whoever names no context must find one: it is emptied instead.
            await context.restart()
            return
        del self.all[context_id]
        await context.stop()


def check_language(language):
    if language is not None and language.lower() not in (LANGUAGE, "py"):
        raise Refused(f"language '{language}' is not installed in this template; '{LANGUAGE}' is")
