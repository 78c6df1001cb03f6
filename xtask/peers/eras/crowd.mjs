// 50 clients, half of them of each era, call one server for a minute. Each checks that the responses are its own.
// Usage: crowd.mjs URL SECONDS
import assert from "node:assert";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, seconds] = process.argv.slice(2);
const until = Date.now() + Number(seconds) * 1000;
let calls = 0;

async function one(number) {
    const mode = number % 2 === 0 ? "auto" : "legacy";
    const client = new Client({ name: `peer-${number}`, version: "1" }, { versionNegotiation: { mode } });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    for (let count = 0; Date.now() < until; count++) {
        const message = `${number}/${count}`;
        const result = await client.callTool({ name: "echo", arguments: { message } });
        assert.equal(result.content[0].text, message);
        calls++;
    }
    await client.close();
}

await Promise.all(Array.from({ length: 50 }, (_, number) => one(number)));
assert(calls >= 50, `${calls} calls`);
console.log(`${calls} calls`);
