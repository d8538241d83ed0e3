"""What clients that call one tool share: their arguments, and the JSON object that they print."""

import argparse
import asyncio
import json
import sys
from importlib.metadata import version


def main(doc, package, run):
    """Runs a client of a package, which returns what it saw. Exits with 0 only if that is `ok`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--args", type=json.loads, default={})
    parser.add_argument("--expect", default="")
    parser.add_argument("--url")
    parser.add_argument("command", nargs="*")
    asked = parser.parse_args()
    seen = asyncio.run(run(asked))
    over = "http" if asked.url else "stdio"
    print(json.dumps({"client": f"{package} {version(package)}", "mcp": version("mcp"), "over": over, **seen}))
    sys.exit(0 if seen["ok"] else 1)
