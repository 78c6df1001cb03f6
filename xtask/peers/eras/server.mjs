// A server on npm's @modelcontextprotocol/server, over stdio: it echoes, asks for a name, and logs. It serves both
// eras, or with the argument `modern` only 2026-07-28.
import { McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import * as z from "zod/v4";

const text = (text) => ({ content: [{ type: "text", text }] });

function create() {
    const server = new McpServer({ name: "peer", version: "1" }, { capabilities: { tools: {}, logging: {} } });
    server.registerTool("echo", { inputSchema: z.object({ message: z.string() }) }, ({ message }) => text(message));
    server.registerTool("ask", { inputSchema: z.object({}) }, async (_, ctx) => {
        const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
        const answer = await ctx.mcpReq.elicitInput({ mode: "form", message: "Who are you?", requestedSchema });
        return text(answer.action === "accept" ? answer.content.name : answer.action);
    });
    server.registerTool("log", { inputSchema: z.object({}) }, async (_, ctx) => {
        for (const number of [0, 1, 2]) await ctx.mcpReq.log("info", `line ${number}`);
        return text("done");
    });
    return server;
}

serveStdio(create, { legacy: process.argv[2] === "modern" ? "reject" : "serve" });
