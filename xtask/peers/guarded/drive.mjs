// Clients of a guarded proxy: tokens by client credentials, calls without a pause while the keys of the provider rotate, and what policies,
// webhooks and the token exchange make of them. Ends with 1 and the reason at the first thing that is not as it should be.
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';

const [url, issuer] = process.argv.slice(2);
const ROTATIONS = 6;
// Longer than half of the time after which a proxy may ask for keys again: every second rotation brings a key that it does not know.
const BETWEEN = 3000;

async function token(user) {
  const basic = Buffer.from(`${user}:${encodeURIComponent(`secret of ${user}`)}`).toString('base64');
  const body = new URLSearchParams({ grant_type: 'client_credentials', resource: 'https://mcp.example/', scope: 'tools' });
  const answer = await fetch(`${issuer}/token`, { method: 'POST', headers: { authorization: `Basic ${basic}` }, body });
  const said = await answer.json();
  assert.equal(answer.status, 200, JSON.stringify(said));
  return said.access_token;
}

const key = (jwt) => JSON.parse(Buffer.from(jwt.split('.')[0], 'base64url')).kid;

async function post(bearer, body) {
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  if (bearer) headers.authorization = `Bearer ${bearer}`;
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await answer.text();
  return { status: answer.status, body: text.startsWith('{') ? JSON.parse(text) : text };
}

const call = (bearer, name, more = {}) =>
  post(bearer, { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: { q: 'x', ...more } } });

const told = (answer) => {
  assert.equal(answer.status, 200, JSON.stringify(answer));
  return JSON.parse(answer.body.result.content[0].text);
};

// What each guard does.
const [ada, bob] = [await token('ada'), await token('bob')];
assert.deepEqual(told(await call(ada, 'search')), { for: 'ada', by: 'proxy', arguments: { q: 'x', limit: 10 } });
assert.deepEqual(told(await call(bob, 'look')), { for: 'bob', by: 'proxy', arguments: { q: 'x' } });
assert.equal((await call(bob, 'search')).status, 403, 'no policy permits it');
assert.equal((await call(ada, 'delete_all')).status, 403, 'the webhook denies it');
assert.equal((await call(undefined, 'look')).status, 401);
assert.equal((await call(`${ada.slice(0, -4)}AAAA`, 'look')).status, 401);

// Calls while keys rotate: with the newest token, and with the one before.
let [newest, before, rotating, calls] = [ada, ada, true, 0];
const keys = new Set([key(ada)]);
const caller = async (choose) => {
  while (rotating) {
    told(await call(choose(), 'look'));
    calls += 1;
  }
};
const callers = [() => newest, () => newest, () => before, () => before].map(caller);
const failed = Promise.all(callers);
failed.catch(() => {});
for (let number = 0; number < ROTATIONS; number += 1) {
  await Promise.race([pause(BETWEEN), failed]);
  await fetch(`${issuer}/rotate`, { method: 'POST' });
  [before, newest] = [newest, await token('ada')];
  keys.add(key(newest));
}
await Promise.race([pause(BETWEEN), failed]);
rotating = false;
await failed;
assert.equal(keys.size, ROTATIONS + 1, 'each rotation brought a key');
const { exchanges } = await (await fetch(`${issuer}/exchanges`)).json();
assert.ok(exchanges >= ROTATIONS + 2 && exchanges < 4 * ROTATIONS, `${exchanges} token exchanges: once for each token`);
assert.ok(calls > 100, `only ${calls} calls`);
assert.equal((await call(ada, 'look')).status, 401, 'a key that is not published any more signs nothing');
console.log(`${calls} calls, ${keys.size} keys, ${exchanges} token exchanges`);
