"""A client on PyPI's mcp 2.x. Usage: python2.py URL streamable|sse TOOL ARGUMENTS"""

import asyncio
import json
import sys

from mcp import Client
from mcp.client.sse import sse_client


async def main(url, transport, tool, arguments):
    async with Client(sse_client(url) if transport == "sse" else url) as client:
        tools = [one.name for one in (await client.list_tools()).tools]
        assert tool in tools, tools
        calls = await asyncio.gather(*(client.call_tool(tool, json.loads(arguments)) for _ in range(10)))
        assert all(not call.is_error and call.content for call in calls), calls


asyncio.run(main(*sys.argv[1:]))
