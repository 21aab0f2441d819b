"""The code interpreter: runs code in kernels and streams what comes of it, over HTTP on port 49999.

    POST   /execute                 {code, context_id?, language?, env_vars?} -> a stream of JSON lines
    POST   /contexts                {language?, cwd?} -> {id, language, cwd}
    GET    /contexts                -> [{id, language, cwd}]
    POST   /contexts/{id}/restart
    DELETE /contexts/{id}
    GET    /health
"""

import asyncio
import json
import os

import tornado.web

import environment
import outputs
from contexts import Contexts, Refused, Unknown

PORT = 49999
# Proxies between client and server may close a connection on which nothing moves.
KEEPALIVE_EVERY = 5
LARGEST_REQUEST = 100 * 1024 * 1024


class Handler(tornado.web.RequestHandler):
    def initialize(self, contexts):
        self.contexts = contexts

    def body(self):
        """The request as an object; an empty one counts."""
        try:
            value = json.loads(self.request.body or b"{}")
        except ValueError as error:
            raise Refused(f"the body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise Refused("the body is not a JSON object")
        return value

    async def sandbox(self):
        token = self.request.headers.get("X-Access-Token")
        return await asyncio.to_thread(environment.of_sandbox, token)

    def write_error(self, status, **info):
        error = info.get("exc_info", (None, None, None))[1]
        if isinstance(error, Unknown):
            status = 404
        elif isinstance(error, Refused):
            status = 400
        self.set_status(status)
        self.finish({"code": status, "message": str(error) or self._reason})

    def log_exception(self, kind, value, trace):
        if not isinstance(value, (Unknown, Refused)):
            super().log_exception(kind, value, trace)


class Health(Handler):
    def get(self):
        self.finish("OK")


class Execute(Handler):
    def prepare(self):
        self.gone = asyncio.Event()

    def on_connection_close(self):
        self.gone.set()

    async def post(self):
        wanted = self.body()
        code = wanted.get("code")
        if not isinstance(code, str):
            raise Refused("code is missing")
        try:
            env = environment.checked(wanted.get("env_vars"))
        except ValueError as error:
            raise Refused(str(error)) from error
        context = self.contexts.find(wanted.get("context_id"), wanted.get("language"))
        sandbox = await self.sandbox()
        events = asyncio.Queue()
        run = asyncio.ensure_future(context.run(code, env, sandbox, events.put_nowait, self.gone))
        run.add_done_callback(lambda _: events.put_nowait(None))
        self.set_header("Content-Type", "application/x-ndjson")
        self.set_header("Cache-Control", "no-store")
        try:
            await self.stream(events)
        except tornado.iostream.StreamClosedError:
            self.gone.set()
        await run

    async def stream(self, events):
        while True:
            try:
                event = await asyncio.wait_for(events.get(), KEEPALIVE_EVERY)
            except asyncio.TimeoutError:
                event = outputs.KEEPALIVE
            if event is None:
                return
            self.write(outputs.line(event))
            await self.flush()


class AllContexts(Handler):
    def get(self):
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps([context.view() for context in self.contexts.all.values()]))

    async def post(self):
        wanted = self.body()
        context = await self.contexts.create(wanted.get("language"), wanted.get("cwd"), await self.sandbox())
        self.set_status(201)
        self.finish(context.view())


class OneContext(Handler):
    async def delete(self, context_id):
        await self.contexts.remove(context_id)
        self.set_status(204)


class RestartContext(Handler):
    async def post(self, context_id):
        await self.contexts.find(context_id).restart()
        self.set_status(204)


def application(contexts):
    shared = {"contexts": contexts}
    return tornado.web.Application(
        [
            (r"/health", Health, shared),
            (r"/execute", Execute, shared),
            (r"/contexts", AllContexts, shared),
            (r"/contexts/([^/]+)", OneContext, shared),
            (r"/contexts/([^/]+)/restart", RestartContext, shared),
        ]
    )


async def main():
    contexts = Contexts()
    await contexts.open(environment.of_sandbox())
    application(contexts).listen(PORT, max_body_size=LARGEST_REQUEST, max_buffer_size=LARGEST_REQUEST)
    print(f"code interpreter: listening on port {PORT}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    os.chdir(os.path.expanduser("~"))
    asyncio.run(main())
