"""A webhook of Skep in Python's standard library: it denies tools whose name begins with `delete`, and limits what `search` may return.

usage: webhook-server.py [--port N] [--key FILE] [--tls CERT KEY] [--client-ca FILE]
`--key` is the HMAC secret, byte for byte; `--tls` serves HTTPS; `--client-ca` requires a client certificate.
"""
import argparse, hashlib, hmac, http.server, json, ssl, time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--port", type=int, default=8443)
parser.add_argument("--key")
parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
parser.add_argument("--client-ca")
options = parser.parse_args()


def is_signed(headers, body):
    """Whether the request is from a proxy that knows the key, and not older than five minutes."""
    if not options.key:
        return True
    stamp, key = headers.get("X-ToolHive-Timestamp", ""), open(options.key, "rb").read()
    digest = hmac.new(key, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    is_fresh = stamp.isdecimal() and abs(time.time() - int(stamp)) <= 300
    return is_fresh and hmac.compare_digest("sha256=" + digest, headers.get("X-ToolHive-Signature", ""))


def judge(path, message):
    params = message.get("params") or {}
    name = params.get("name", "") if message["method"] == "tools/call" else ""
    if path == "/mutate" and name == "search":
        patch = [{"op": "add", "path": "/mcp_request/params/arguments/limit", "value": 10}]
        return {"allowed": True, "patch_type": "json_patch", "patch": patch}
    is_denied = path == "/validate" and name.startswith("delete")
    return {"allowed": not is_denied, "message": "deleting is not allowed" if is_denied else ""}


class Webhook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        signed = is_signed(self.headers, body)
        request = json.loads(body) if signed else {}
        answer = {"version": "v0.1.0", "uid": request.get("uid", "")}
        answer |= judge(self.path, request["mcp_request"]) if signed else {}
        text = json.dumps(answer).encode()
        self.send_response(200 if signed else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


server = http.server.ThreadingHTTPServer(("", options.port), Webhook)
if options.tls:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=options.client_ca)
    context.load_cert_chain(*options.tls)
    context.verify_mode = ssl.CERT_REQUIRED if options.client_ca else ssl.CERT_NONE
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(f"listening on port {server.server_port}", flush=True)
server.serve_forever()
