// An MCP server that lets in tokens of the provider for itself only, and answers each call with what it got.
import http from 'node:http';
import { createRemoteJWKSet, jwtVerify } from 'jose';

const [port, issuer] = process.argv.slice(2);
const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`), { cooldownDuration: 0 });

const server = http.createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const say = (status, body) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  if (request.method !== 'POST') return say(405, {});
  let claims;
  try {
    const token = (request.headers.authorization ?? '').replace(/^Bearer /, '');
    ({ payload: claims } = await jwtVerify(token, keys, { issuer, audience: 'backend' }));
  } catch (error) {
    return say(401, { error: error.message });
  }
  const { id, method, params } = JSON.parse(Buffer.concat(parts).toString());
  if (id === undefined) return response.writeHead(202).end();
  if (method === 'initialize') {
    const result = { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'backend', version: '1' } };
    return say(200, { jsonrpc: '2.0', id, result });
  }
  const text = JSON.stringify({ for: claims.on_behalf_of, by: claims.client_id, arguments: params?.arguments });
  say(200, { jsonrpc: '2.0', id, result: { content: [{ type: 'text', text }] } });
});
server.listen(Number(port), '127.0.0.1');
