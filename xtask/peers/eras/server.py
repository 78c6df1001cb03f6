"""A server of both eras on PyPI's mcp 2.x, over stdio: it echoes, asks for a name, and logs."""

import warnings

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

warnings.simplefilter("ignore")
server = MCPServer("peer")


class Name(BaseModel):
    name: str


@server.tool()
async def echo(message: str) -> str:
    return message


@server.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Name)
    return answer.data.name if answer.action == "accept" else answer.action


@server.tool()
async def log(ctx: Context) -> str:
    for number in range(3):
        await ctx.info(f"line {number}")
    return "done"


server.run("stdio")
