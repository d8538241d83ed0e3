"""Logs in with Toolbay to a server of `authorization_server.py`, calls its tool, and logs out.

    python login.py --toolbay PROGRAM --folder EMPTY_FOLDER [--with-issuer] -- python authorization_server.py …

Starts the server and plays the user's browser. Prints one JSON object a step. Exits with 0 only if every step went as it must: the login
brings tokens that can be renewed, a call renews those that have ended, calls of two processes at once and a call that is interrupted
lose none, and after the logout the tokens are worth nothing.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

TIMEOUT_SECONDS = 60
failures = 0


def report(step, ok, **seen):
    global failures
    failures += not ok
    print(json.dumps({"step": step, "ok": bool(ok), **seen}, ensure_ascii=False), flush=True)


class Toolbay:
    def __init__(self, asked, url):
        self.program, self.folder = asked.toolbay, pathlib.Path(asked.folder).resolve()
        section = f'[mcp.notes.oauth]\nissuer = "{url}"\n' if asked.with_issuer else ""
        (self.folder / "toolbay.toml").write_text(f'version = 1\n[mcp.notes]\nurl = "{url}/mcp"\n{section}')
        self.env = dict(os.environ, TOOLBAY_CONFIG=str(self.folder / "toolbay.toml"), TOOLBAY_STATE=str(self.folder / "state"))

    def start(self, *args):
        pipe = subprocess.PIPE
        return subprocess.Popen([self.program, *args], env=self.env, cwd=self.folder, stdout=pipe, stderr=pipe, text=True)

    def run(self, *args):
        process = self.start(*args)
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
        return process.returncode, out, err

    def call(self):
        return self.start("call", "mcp__notes__whoami", "{}")

    def tokens(self):
        """What is saved."""
        return json.loads(self.saved().read_text())["tokens"]

    def saved(self):
        return self.folder / "state/credentials/notes.json"

    def end_token(self):
        """Makes the access token one that has ended, so that the next call renews it."""
        saved = json.loads(self.saved().read_text())
        saved["tokens"]["expires_at"] = 0
        self.saved().write_text(json.dumps(saved))


def log_in(toolbay):
    process = toolbay.start("mcp", "login", "notes", "--no-browser")
    address, said = None, ""
    while address is None:
        line = process.stderr.readline()
        if not line:
            return process.wait(), said
        said += line
        found = re.search(r"http://\S+[?&]response_type=code\S*", line)
        address = found and found.group(0)
    # The browser: the server redirects it to Toolbay's listener.
    with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as page:
        said += page.read().decode()
    _, rest = process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode, said + rest


def is_accepted(url, token):
    """Whether the server accepts an access token."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}}
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json", "authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{url}/mcp", json.dumps(message).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            return answer.status == 200
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        return False


class Server:
    """The server, which says on stderr when tokens are requested."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.url, self.requests = None, threading.Semaphore(0)
        for line in self.process.stderr:
            if "listening on " in line:
                self.url = line.split("listening on ")[1].strip()
                break
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stderr:
            if "token request" in line:
                self.requests.release()

    def forget(self):
        """Forgets the requests until now."""
        while self.requests.acquire(blocking=False):
            pass


def interrupt(toolbay, server):
    """Interrupts calls while the server answers with rotated tokens. The next one must find tokens that are good."""
    for number in [signal.SIGINT, signal.SIGTERM, signal.SIGINT]:
        server.forget()
        toolbay.end_token()
        process = toolbay.call()
        asked = server.requests.acquire(timeout=TIMEOUT_SECONDS)
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
        report("interrupt a renewal", asked and process.returncode == 130, code=process.returncode, err=err[:300])
        code, out, err = toolbay.run("call", "mcp__notes__whoami", "{}")
        report("call after an interrupted one", code == 0 and "somebody" in out, code=code, err=err[:300])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolbay", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--with-issuer", action="store_true", help="name the issuer in the policy")
    parser.add_argument("server", nargs="+", help="the server's command line, after --")
    asked = parser.parse_args()
    server = Server(asked.server)
    try:
        check(Toolbay(asked, server.url), server)
    finally:
        server.process.kill()
        server.process.wait()
    sys.exit(1 if failures else 0)


def check(toolbay, server):
    code, out, err = toolbay.run("call", "mcp__notes__whoami", "{}")
    report("call without a login", code != 0 and "toolbay mcp login notes" in out + err, code=code, err=err[:300])
    code, said = log_in(toolbay)
    report("log in", code == 0 and "logged in" in said, code=code, said=said[-500:])
    if failures:
        return
    first = toolbay.tokens()

    toolbay.end_token()
    code, out, err = toolbay.run("call", "mcp__notes__whoami", "{}")
    renewed = toolbay.tokens()
    rotated = first["refresh"] != renewed["refresh"] and first["access"] != renewed["access"]
    report("call", code == 0 and "somebody" in out and rotated, code=code, err=err[:300], rotated=rotated)
    report("no secrets", not any(token in out + err + said for token in (*[first["access"]], first["refresh"], renewed["access"])))

    server.forget()
    code, out, err = toolbay.run("call", "mcp__notes__whoami", "{}")
    report("a new token is used", code == 0 and not server.requests.acquire(blocking=False), code=code, err=err[:300])
    for round in range(3):
        toolbay.end_token()
        calls = [toolbay.call() for _ in range(3)]
        ended = [(one.communicate(timeout=TIMEOUT_SECONDS), one.returncode) for one in calls]
        good = all(code == 0 and "somebody" in out for (out, _), code in ended)
        report("calls of three processes at once", good, round=round, codes=[code for _, code in ended])
    interrupt(toolbay, server)

    last = toolbay.tokens()
    before = is_accepted(server.url, last["access"])
    code, out, err = toolbay.run("mcp", "logout", "notes", "--json")
    after = is_accepted(server.url, last["access"])
    done = json.loads(out) if code == 0 else {}
    report("log out", done.get("removed") and done.get("revoked") and before and not after, answer=done, err=err[:300], before=before, after=after)
    code, out, err = toolbay.run("call", "mcp__notes__whoami", "{}")
    report("call after the logout", code != 0 and "toolbay mcp login notes" in out + err, code=code)


if __name__ == "__main__":
    main()
