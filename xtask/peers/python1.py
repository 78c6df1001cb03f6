"""A client on PyPI's mcp 1.x. Usage: python1.py URL streamable|sse TOOL ARGUMENTS"""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamablehttp_client


async def main(url, transport, tool, arguments):
    connect = sse_client if transport == "sse" else streamablehttp_client
    async with connect(url) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        tools = [one.name for one in (await session.list_tools()).tools]
        assert tool in tools, tools
        # Several at once, on one session.
        calls = await asyncio.gather(*(session.call_tool(tool, json.loads(arguments)) for _ in range(10)))
        assert all(not call.isError and call.content for call in calls), calls
        await session.send_ping()


asyncio.run(main(*sys.argv[1:]))
