// A server over streamable HTTP, which echoes and says by whom it was called. `both` and `modern` are on npm's
// @modelcontextprotocol/server, `legacy` on @modelcontextprotocol/sdk, with sessions. Usage: PORT=1 http.mjs legacy|modern|both
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { McpServer as LegacyServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { McpServer, createMcpHandler } from "@modelcontextprotocol/server";
import * as z from "zod/v4";

const text = (text) => ({ content: [{ type: "text", text }] });
const eras = process.argv[2];

function create(Server) {
    const server = new Server({ name: "peer", version: "1" }, { capabilities: { tools: {}, logging: {} } });
    const message = eras === "legacy" ? { message: z.string() } : z.object({ message: z.string() });
    server.registerTool("echo", { inputSchema: message }, ({ message }) => text(message));
    return server;
}

async function modern() {
    const handler = createMcpHandler(() => create(McpServer), { legacy: eras === "modern" ? "reject" : "stateless" });
    return async (request, response) => {
        const body = request.method === "POST" ? Readable.toWeb(request) : undefined;
        const url = `http://${request.headers.host}${request.url}`;
        const headers = Object.entries(request.headers).map(([name, value]) => [name, String(value)]);
        const answer = await handler.fetch(new Request(url, { method: request.method, headers, body, duplex: "half" }));
        response.writeHead(answer.status, Object.fromEntries(answer.headers));
        if (!answer.body) return response.end();
        const stream = Readable.fromWeb(answer.body);
        response.on("close", () => stream.destroy());
        stream.on("error", () => response.destroy()).pipe(response);
    };
}

function legacy() {
    const sessions = new Map();
    return async (request, response) => {
        const known = sessions.get(request.headers["mcp-session-id"]);
        if (known) return known.handleRequest(request, response);
        const transport = new StreamableHTTPServerTransport({
            sessionIdGenerator: () => randomUUID(),
            onsessioninitialized: (id) => sessions.set(id, transport),
        });
        await create(LegacyServer).connect(transport);
        await transport.handleRequest(request, response);
    };
}

const serve = eras === "legacy" ? legacy() : await modern();
createServer((request, response) => serve(request, response).catch((error) => response.writeHead(500).end(String(error))))
    .listen(Number(process.env.PORT), "127.0.0.1");
