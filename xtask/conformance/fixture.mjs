// The server of `cargo xtask conformance`: everything that the official suite asks for, on the official SDK, over
// streamable HTTP if MCP_PORT is set and over stdio otherwise. It serves both eras of the protocol; modern.mjs, only one.

import { randomUUID } from 'node:crypto';
import { createServer as createHttpServer } from 'node:http';

import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import { classifyInboundRequest, createMcpHandler, isInitializeRequest } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

import { createServer } from './server.mjs';

/** Streams that were closed before their answer was sent, by the id of the event that came last. */
class EventStore {
    events = [];

    async storeEvent(stream, message) {
        const id = `${stream}::${this.events.length}`;
        this.events.push({ id, stream, message });
        return id;
    }

    async replayEventsAfter(last, { send }) {
        const place = this.events.findIndex(event => event.id === last);
        const stream = last.split('::')[0];
        for (const { id, message } of this.events.slice(place + 1).filter(event => event.stream === stream)) {
            if (Object.keys(message).length > 0) await send(id, message);
        }
        return stream;
    }
}

function serveHttp(port) {
    /** The transports of sessions, by session. */
    const sessions = new Map();
    const modern = createMcpHandler(() => createServer({ changed: what => modern.notify[`${what}Changed`]() }));
    const answerModern = toNodeHandler(modern);

    async function open(request, response, body) {
        const transport = new NodeStreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            eventStore: new EventStore(),
            retryInterval: 500,
            onsessioninitialized: session => sessions.set(session, transport)
        });
        transport.onclose = () => sessions.delete(transport.sessionId);
        const server = createServer({ closeStream: id => transport.closeSSEStream(id) });
        await server.connect(transport);
        await transport.handleRequest(request, response, body);
    }

    async function answer(request, response) {
        // Pages of other sites must not reach a server on this machine by a name of their own.
        const names = [request.headers.host, request.headers.origin && new URL(request.headers.origin).host];
        const isLocal = name => name === undefined || /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/.test(name);
        if (!names.every(isLocal)) return refuse(response, 403, -32_000, 'Host or Origin is not of this machine');

        let body;
        if (request.method === 'POST') {
            try {
                body = JSON.parse(Buffer.concat(await request.toArray()).toString());
            } catch {
                return refuse(response, 400, -32_700, 'Parse error');
            }
            const inbound = classifyInboundRequest({
                httpMethod: request.method,
                protocolVersionHeader: request.headers['mcp-protocol-version'],
                mcpMethodHeader: request.headers['mcp-method'],
                body
            });
            if (inbound.kind !== 'legacy') return answerModern(request, response, body);
        }
        const session = request.headers['mcp-session-id'];
        if (session === undefined && isInitializeRequest(body)) return open(request, response, body);
        if (session === undefined) return refuse(response, 400, -32_000, 'Session ID required');
        if (!sessions.has(session)) return refuse(response, 404, -32_001, 'Session not found');
        await sessions.get(session).handleRequest(request, response, body);
    }

    createHttpServer((request, response) => {
        answer(request, response).catch(error => {
            console.error(error);
            if (!response.headersSent) refuse(response, 500, -32_603, 'Internal error');
        });
    }).listen(port, host());
}

/** This machine only, unless somebody who runs it elsewhere says otherwise; said and left empty means everywhere. */
function host() {
    return process.env.MCP_HOST === undefined ? '127.0.0.1' : process.env.MCP_HOST || '0.0.0.0';
}

function refuse(response, status, code, message) {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ jsonrpc: '2.0', error: { code, message }, id: null }));
}

if (process.env.MCP_PORT) {
    serveHttp(Number(process.env.MCP_PORT));
} else {
    const legacy = process.env.ONLY_MODERN ? 'reject' : 'serve';
    serveStdio(() => {
        const notify = { tools: () => server.sendToolListChanged(), prompts: () => server.sendPromptListChanged() };
        const server = createServer({ changed: what => notify[what]() });
        return server;
    }, { legacy });
}
