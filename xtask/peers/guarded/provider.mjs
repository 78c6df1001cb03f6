// An identity provider on npm `oidc-provider`: client credentials, token exchange (RFC 8693), and keys that rotate on request.
//
// A new key is published one rotation before it signs, and one rotation after it, as providers do.
import http from 'node:http';
import { createLocalJWKSet, exportJWK, generateKeyPair, jwtVerify } from 'jose';
import { Provider } from 'oidc-provider';

const [port] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const audiences = { 'https://mcp.example/': 'mcp', 'https://backend.example/': 'backend' };

const resourceServer = (audience) => ({
  audience, scope: 'tools', accessTokenTTL: 60, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'ES256' } },
});
const client = (id, ...grants) => ({
  client_id: id, client_secret: `secret of ${id}`, grant_types: grants, redirect_uris: [], response_types: [], scope: 'tools',
});

let keys = [];
let number = 0;
let exchanges = 0;
let provider;

async function newKey() {
  const { privateKey } = await generateKeyPair('ES256', { extractable: true });
  return { ...(await exportJWK(privateKey)), kid: `key ${++number}`, use: 'sig', alg: 'ES256' };
}

async function exchange(ctx) {
  const { subject_token: subject, subject_token_type: type, audience } = ctx.oidc.params;
  const publics = keys.map(({ d, ...rest }) => rest);
  let claims;
  try {
    if (type !== ACCESS_TOKEN || audience !== 'backend') throw new Error('another type or audience');
    ({ payload: claims } = await jwtVerify(subject, createLocalJWKSet({ keys: publics }), { issuer, audience: 'mcp' }));
  } catch (error) {
    ctx.status = 400;
    ctx.body = { error: 'invalid_grant', error_description: error.message };
    return;
  }
  exchanges += 1;
  ctx.onBehalfOf = claims.sub;
  const token = new ctx.oidc.provider.ClientCredentials({ client: ctx.oidc.client, scope: 'tools' });
  token.resourceServer = new ctx.oidc.provider.ResourceServer('https://backend.example/', resourceServer('backend'));
  const value = await token.save();
  ctx.body = { access_token: value, issued_token_type: ACCESS_TOKEN, token_type: 'Bearer', expires_in: token.expiration, scope: 'tools' };
}

function start() {
  provider = new Provider(issuer, {
    clients: [client('ada', 'client_credentials'), client('bob', 'client_credentials'), client('proxy', EXCHANGE)],
    jwks: { keys },
    clientDefaults: { id_token_signed_response_alg: 'ES256' },
    cookies: { keys: ['not a secret'] },
    scopes: ['tools'],
    extraTokenClaims: (ctx) => (ctx.onBehalfOf ? { on_behalf_of: ctx.onBehalfOf } : undefined),
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_ctx, resource) => resourceServer(audiences[resource] ?? resource),
      },
    },
  });
  provider.on('server_error', (_ctx, error) => console.error(error));
  provider.registerGrantType(EXCHANGE, exchange,
    ['subject_token', 'subject_token_type', 'requested_token_type', 'audience', 'scope', 'resource'], ['audience', 'resource']);
}

async function rotate() {
  keys = [keys[1], await newKey(), keys[0]];
  start();
}

keys = [await newKey(), await newKey()];
start();
const server = http.createServer(async (request, response) => {
  if (request.url === '/rotate') await rotate();
  if (request.url === '/rotate' || request.url === '/exchanges') {
    response.end(JSON.stringify({ signs: keys[0].kid, exchanges }));
    return;
  }
  provider.callback()(request, response);
});
server.listen(Number(port), '127.0.0.1');
