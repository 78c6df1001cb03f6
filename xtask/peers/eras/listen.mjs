// A client of 2026-07-28 that listens until it is ended. Usage: listen.mjs URL
const META = "io.modelcontextprotocol";
const _meta = {
    [`${META}/protocolVersion`]: "2026-07-28",
    [`${META}/clientInfo`]: { name: "listener", version: "1" },
    [`${META}/clientCapabilities`]: {},
};
const params = { notifications: { toolsListChanged: true }, _meta };
const response = await fetch(process.argv[2], {
    method: "POST",
    headers: {
        accept: "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-method": "subscriptions/listen",
        "mcp-protocol-version": "2026-07-28",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: "listen", method: "subscriptions/listen", params }),
});
let text = "";
for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    text += part;
    if (text.includes("notifications/subscriptions/acknowledged")) console.log("acknowledged");
}
console.log(`over: ${response.status} ${text}`);
