"""A webhook of Skep in Python's standard library: it denies tools whose name begins with `delete`, and limits what `search` returns. `--key` is
a file with the HMAC secret; `--tls` serves HTTPS, and without it only this machine; `--client-ca` requires a client certificate."""
import argparse, hashlib, hmac, http.server, json, ssl, time
parser = argparse.ArgumentParser(description=__doc__)
for flag, more in ("--port", {"type": int, "default": 8443}), ("--key", {}), ("--tls", {"nargs": 2}), ("--client-ca", {}):
    parser.add_argument(flag, **more)
options = parser.parse_args()

def is_signed(headers, body):  # by a proxy that knows the key, in the last five minutes
    stamp, given = headers.get("X-ToolHive-Timestamp", ""), headers.get("X-ToolHive-Signature", "")
    digest = hmac.new(open(options.key, "rb").read(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"sha256={digest}".encode(), given.encode()) and abs(time.time() - int(stamp)) <= 300

class Webhook(http.server.BaseHTTPRequestHandler):
    protocol_version, timeout = "HTTP/1.1", 120  # in seconds: longer than the proxy keeps an idle connection
    def do_POST(self):
        body = self.rfile.read(min(int(self.headers["Content-Length"]), 2 << 20))
        if options.key and not is_signed(self.headers, body): return self.send_error(401)
        path, request = self.path, json.loads(body)
        params = request["mcp_request"].get("params") or {}
        name = str(params.get("name")) if request["mcp_request"]["method"] == "tools/call" else ""
        is_allowed = path == "/mutate" or path == "/validate" and not name.startswith("delete")
        answer = {"version": "v0.1.0", "uid": request["uid"], "allowed": is_allowed}
        if path == "/mutate" and name == "search":
            end, value = ("/limit", 10) if params.get("arguments") is not None else ("", {"limit": 10})
            answer |= {"patch_type": "json_patch", "patch": [{"op": "add", "path": f"/mcp_request/params/arguments{end}", "value": value}]}
        text = json.dumps(answer).encode()
        self.send_response(200)
        for header in ("Content-Type", "application/json"), ("Content-Length", str(len(text))): self.send_header(*header)
        self.end_headers()
        self.wfile.write(text)

server = http.server.ThreadingHTTPServer(("" if options.tls else "127.0.0.1", options.port), Webhook)
if options.tls:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=options.client_ca)
    context.load_cert_chain(*options.tls)
    context.verify_mode = ssl.CERT_REQUIRED if options.client_ca else ssl.CERT_NONE
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)  # but in the thread of the client
print(f"listening on port {server.server_port}", flush=True)
server.serve_forever()
