"""A webhook as an ASGI application, for `hypercorn`, which serves it over mutual TLS. It denies tools whose name begins with `delete`, and
limits what `search` returns. Requests must be signed."""
import hashlib
import hmac
import json
import os
import time


def is_signed(headers, body):
    stamp, given = headers.get(b"x-toolhive-timestamp", b""), headers.get(b"x-toolhive-signature", b"")
    with open(os.environ["WEBHOOK_KEY"], "rb") as key:
        digest = hmac.new(key.read(), stamp + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"sha256={digest}".encode(), given) and abs(time.time() - int(stamp)) <= 300


def decide(path, payload):
    request = payload["mcp_request"]
    name = str(request.get("params", {}).get("name")) if request["method"] == "tools/call" else ""
    answer = {"version": "v0.1.0", "uid": payload["uid"], "allowed": path == "/mutate" or not name.startswith("delete")}
    if path == "/mutate" and name == "search":
        patch = [{"op": "add", "path": "/mcp_request/params/arguments/limit", "value": 10}]
        answer |= {"patch_type": "json_patch", "patch": patch}
    return answer


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    is_known = is_signed(dict(scope["headers"]), body)
    answer = json.dumps(decide(scope["path"], json.loads(body))).encode() if is_known else b"{}"
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200 if is_known else 401, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
