"""A daemon as the official MCP client reaches it: by pipes and by HTTP."""

import os
from contextlib import asynccontextmanager

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

URL = os.environ["ROOST_TEST_URL"]
TOKEN = os.environ["ROOST_TEST_TOKEN"]
ROOST = os.environ["ROOST_BIN"]
SOCKET = os.environ["ROOST_SOCKET"]


@asynccontextmanager
async def by_pipes(token=None, mode="auto"):
    """`roost mcp`, as an agent's program starts it; with a token, to a daemon that may be elsewhere."""
    env = {"ROOST_URL": URL, "ROOST_TOKEN": token} if token else {"ROOST_SOCKET": SOCKET}
    async with Client(StdioServerParameters(command=ROOST, args=["mcp"], env=env), mode=mode) as client:
        yield client


def http_with(token):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(60, read=300))


@asynccontextmanager
async def by_http(token=TOKEN, mode="auto"):
    """`/mcp` with a token."""
    async with http_with(token) as http:
        async with Client(streamable_http_client(f"{URL}/mcp", http_client=http), mode=mode) as client:
            yield client


class Tools:
    """Calls tools, and remembers which."""

    def __init__(self, client):
        self.client = client
        self.called = set()

    async def ask(self, tool, /, **arguments):
        self.called.add(tool)
        return await self.client.call_tool(tool, arguments)

    async def __call__(self, tool, /, **arguments):
        """The facts and the text of a call that must go well."""
        result = await self.ask(tool, **arguments)
        assert not result.is_error, f"{tool} {arguments}: {text_of(result)}"
        return result.structured_content, text_of(result)

    async def refused(self, tool, /, **arguments):
        """The code and the message of a call that must be refused, as a result that a model reads."""
        result = await self.ask(tool, **arguments)
        assert result.is_error, f"{tool} {arguments} went well: {text_of(result)}"
        error = result.structured_content["error"]
        assert text_of(result).startswith(f"{error['code']}: {error['message']}"), text_of(result)
        return error["code"], error["message"]

    async def run(self, sandbox, command, **more):
        """The output of a command that must go well."""
        facts, text = await self("run", sandbox=sandbox, command=command, **more)
        assert facts["exit_code"] == 0, text
        return text.partition("\n\n")[2].strip()


def text_of(result):
    return "".join(part.text for part in result.content)
