"""An MCP server whose output is odd in one way, which its first argument names. For the tests of the bridge."""

import json
import sys

MODE = sys.argv[1]
KNOWN = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "odd", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "ok@"}]},
}


def ident(given):
    return {"string": str(given), "float": float(given), "zero": 0}.get(MODE, given)


def written(message):
    text = json.dumps(message, indent=1 if MODE == "pretty" else None).encode() + b"\n"
    if MODE == "lsp":
        return b"Content-Length: %d\r\n\r\n" % (len(text) - 1) + text[:-1]
    if MODE == "bom":
        text = b"\xef\xbb\xbf" + text
    if MODE == "utf16":
        return text.decode().encode("utf-16")
    text = text.replace(b"ok@", {"latin1": b"caf\xe9", "tab": b"a\tb", "escape": b"a\\\tb"}.get(MODE, b"ok"))
    if MODE in ("nan", "undefined"):
        value = {"nan": b"NaN", "undefined": b"undefined"}[MODE]
        text = text.replace(b'"ok"}]', b'"ok"}], "structuredContent": {"mean": ' + value + b"}")
    return text


def write(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def tell_progress(token):
    for n in range(1, 1001):
        params = {"progressToken": token, "progress": n, "total": 1000, "message": f"step {n}"}
        write(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode() + b"\n")


for line in sys.stdin:
    ask = json.loads(line)
    if "id" not in ask:
        continue
    method = ask["method"]
    if MODE == "burst" and method == "tools/call":
        tell_progress(ask["params"]["_meta"]["progressToken"])
    body = {"result": KNOWN[method]} if method in KNOWN else {"error": {"code": -32601, "message": "unknown"}}
    write(written({"jsonrpc": "2.0", "id": ident(ask["id"]), **body}))
