"""Makes `backup`, `store`, `toolbay.lock` and `release.pub` with an older `toolbay`, and checks the policies with it.

    python3 make.py PROGRAM HELLO

PROGRAM is that `toolbay`, and HELLO the component of `toolbay new`, built with its SDK. README.md has the commands.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

HERE = Path(__file__).parent
# The lock and the policy name it. Nobody asks it once the plugin is in the store.
REGISTRY = ("127.0.0.1", 45321)
REFERENCE = "127.0.0.1:45321/acme/hello:1.0.0"


class Registry(BaseHTTPRequestHandler):
    """An OCI registry that keeps everything in memory and lists no referrers."""

    protocol_version = "HTTP/1.1"
    stored = {}

    def answer(self, status, kind="text/plain", body=b""):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("location", self.path + "1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        kind, body = self.stored.get(self.path, (None, b""))
        self.answer(200 if kind else 404, kind or "text/plain", body)

    do_HEAD = do_GET

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.answer(202)

    def do_PUT(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        content = (self.headers.get("content-type", "application/octet-stream"), body)
        path, _, digest = self.path.replace("%3A", ":").partition("digest=")
        if digest:
            self.stored[path.partition("uploads/")[0] + digest] = content
        else:
            self.stored[path] = content
            self.stored[f"{path.rpartition('/')[0]}/sha256:{hashlib.sha256(body).hexdigest()}"] = content
        self.answer(201)

    def log_message(self, *_):
        pass


def main():
    program, hello = (str(Path(path).resolve()) for path in sys.argv[1:3])
    root = Path(tempfile.mkdtemp())
    for name in ["plugins", "work"]:
        (root / name).mkdir()
    for name in ["toolbay.toml", "every-section.toml", "pets.json", "tokens.toml", "operators.toml", "work/note"]:
        shutil.copy(HERE / name, root / name)
        (root / name).chmod(0o600)
    shutil.copy(HERE.parent / "released/0.1.0.wasm", root / "plugins/old.wasm")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "USER": "operator",
        "XDG_DATA_HOME": str(root / "share"),
        "TOOLBAY_PLUGINS": str(root / "plugins"),
        "TOOLBAY_CONFIG": str(root / "toolbay.toml"),
        "TOOLBAY_STATE": str(root / "state"),
        "TOOLBAY_CACHE": str(root / "cache"),
    }

    def run(*args, code=0):
        done = subprocess.run([program, *args], cwd=root / "work", env=env, stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode != code:
            sys.exit(f"{args}: exit code {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}")
        return done.stdout.decode()

    server = ThreadingHTTPServer(REGISTRY, Registry)
    Thread(target=server.serve_forever, daemon=True).start()
    run("key", "new", str(root / "release.key"))
    run("push", REFERENCE, hello, "--sign", str(root / "release.key"))
    run("add", REFERENCE)
    run("verify")
    run("grant", "old", "--yes", "--only", "kv")
    for _ in range(2):
        run("call", "old__everything", '{"key": "visits"}', "--session", "work")
    run("call", "old__fail", "{}", code=1)
    run("call", "hello__hello", json.dumps({"name": "Ada " * 200}), "--session", "work", "--budget", "100")
    run("disable", "old__fail", "--reason", "not used here")
    run("stop", "--reason", "an incident")
    run("backup", str(root / "backup"))
    # Its exit code is 2 for warnings, too.
    checked = [program, "policy", "check", str(root / "every-section.toml"), "--json"]
    findings = json.loads(subprocess.run(checked, cwd=root / "work", env=env, capture_output=True).stdout)["findings"]
    errors = [finding for finding in findings if finding["severity"] == "error"]
    if errors:
        sys.exit(json.dumps(errors, indent=1))

    for name in ["toolbay.toml", "toolbay.lock", "release.pub"]:
        shutil.copyfile(root / name, HERE / name)
    for name, made in [("backup", root / "backup"), ("store", root / "share/toolbay/store/blobs/sha256")]:
        shutil.rmtree(HERE / name, ignore_errors=True)
        shutil.copytree(made, HERE / name)
    shutil.rmtree(root)


main()
