// A client on npm's @modelcontextprotocol/client. Usage: client.mjs URL auto|legacy TOOL
import assert from "node:assert";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, mode, tool] = process.argv.slice(2);
const capabilities = { elicitation: { form: {} } };
const client = new Client({ name: "peer", version: "1" }, { capabilities, versionNegotiation: { mode } });
client.setRequestHandler("elicitation/create", async () => ({ action: "accept", content: { name: "Ann" } }));
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const result = await client.callTool({ name: tool, arguments: tool === "echo" ? { message: "hello" } : {} });
const wanted = { echo: "hello", ask: "Ann", log: "done" }[tool];
assert(!result.isError && result.content[0].text === wanted, JSON.stringify(result));
await client.close();
