"""Writes vectors.json: signatures made by botocore. Usage: pip install botocore; python3 vectors.py > vectors.json"""

import datetime
import json
from unittest import mock

import botocore.auth
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "über", "arguments": {}}}, ensure_ascii=False)
CASES = [
    ("GET", "https://example.amazonaws.com/", "", None),
    ("POST", "https://example.amazonaws.com/", "", None),
    ("POST", "https://aws-mcp.us-east-1.api.aws/mcp", BODY, "application/json"),
    ("POST", "https://aws-mcp.us-east-1.api.aws/mcp", BODY, "application/json; charset=utf-8"),
    ("DELETE", "https://aws-mcp.us-east-1.api.aws/mcp?session=1", "", None),
    ("GET", "https://example.com/a%20b/c", "", None),
    ("GET", "https://example.com/a/./b/../c/", "", None),
    ("GET", "https://example.com/mcp?b=2&a=2&a=1&c=", "", None),
    ("GET", "https://example.com/mcp?a=%20%2F%C3%BC&A=x", "", None),
    ("POST", "https://example.com:8443/mcp", "x" * 5000, "text/plain"),
    ("POST", "https://example.com:443/mcp", "x", "application/json"),
    ("POST", "http://example.com:80/mcp", "x", "application/json"),
    ("POST", "http://example.com:8080/mcp~_.-", "x", "application/json"),
]


def sign(index, method, url, body, media_type):
    region, service = [("us-east-1", "aws-mcp"), ("eu-central-1", "service"), ("cn-north-1", "bedrock")][index % 3]
    now = datetime.datetime(2026, 2, 28, 23, 59, 59 - index, tzinfo=datetime.timezone.utc)
    credentials = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "FQoGZXIvYXdzE+/token==")
    headers = {"Content-Type": media_type} if media_type else {}
    request = AWSRequest(method=method, url=url, data=body.encode(), headers=headers)
    with mock.patch.object(botocore.auth, "get_current_datetime", lambda *_, **__: now.replace(tzinfo=None)):
        SigV4Auth(credentials, service, region).add_auth(request)
    return {
        "method": method, "url": url, "body": body, "content_type": media_type, "region": region, "service": service,
        "access_key": credentials.access_key, "secret_key": credentials.secret_key, "token": credentials.token,
        "now": int(now.timestamp()), "date": request.headers["X-Amz-Date"],
        "authorization": request.headers["Authorization"],
    }


print(json.dumps([sign(index, *case) for index, case in enumerate(CASES)], indent=1, ensure_ascii=False))
