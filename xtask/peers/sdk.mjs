// A client on npm's @modelcontextprotocol/sdk. Usage: sdk.mjs URL streamable|sse TOOL ARGUMENTS
import assert from "node:assert";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, transport, tool, text] = process.argv.slice(2);
const client = new Client({ name: "peer", version: "1" });
const Transport = transport === "sse" ? SSEClientTransport : StreamableHTTPClientTransport;
await client.connect(new Transport(new URL(url)));
const tools = (await client.listTools()).tools.map((one) => one.name);
assert(tools.includes(tool), tools.join());
const call = () => client.callTool({ name: tool, arguments: JSON.parse(text) });
const calls = await Promise.all(Array.from({ length: 10 }, call));
assert(calls.every((one) => !one.isError && one.content.length > 0), JSON.stringify(calls));
await client.ping();
await client.close();
