"""A client on PyPI's mcp 2.x. Usage: client.py URL auto|legacy TOOL"""

import asyncio
import sys
import warnings

import mcp_types as types
from mcp import Client

warnings.simplefilter("ignore")


async def elicited(context, params):
    return types.ElicitResult(action="accept", content={"name": "Ann"})


async def main(url, mode, tool):
    logged = []

    async def logging(params):
        logged.append(params.data)

    options = {"elicitation_callback": elicited, "logging_callback": logging, "log_level": "info"}
    async with Client(url, mode=mode, **options) as client:
        arguments = {"message": "hello"} if tool == "echo" else {}
        result = await client.call_tool(tool, arguments)
        text = result.content[0].text
        wanted = {"echo": "hello", "ask": "Ann", "log": "done"}[tool]
        assert text == wanted and not result.is_error, result
        if tool == "log":
            assert len(logged) == 3, logged


asyncio.run(main(*sys.argv[1:]))
