"""The plugin that the contract suite is run against, in Python. `api_contract.rs` is what it is compared with."""

import random
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from toolbay_sdk import (
    Arg, Output, ToolError, attachments, available, config, context, files, http, input_error, invoke, kv, log, process, reducer, secrets,
    tool,
)
from toolbay_sdk.errors import CODES


@dataclass
class Sum:
    """The sum of two numbers."""

    sum: Annotated[int, "It."]


BYTES = b"\x01\x02\xff"


class Mode(Enum):
    FAST = "fast"
    SLOW = "slow"


@dataclass
class Location:
    """Where it is."""

    name: Annotated[str, "Its name."]
    zip: int | None = None


@tool(read_only=True)
def add(a: Annotated[int, "The first."], b: Annotated[int, "The second."] = 1) -> Sum:
    """Add two numbers."""
    if not -(2**63) <= a + b < 2**63:
        raise input_error("the sum is too large", "/b")
    return Sum(a + b)


@tool
def announce() -> None:
    """Tell each audience how far it is."""
    context.progress("for the log", 10, "internal")
    context.progress("for the user", 50)
    context.progress("for the operator", audience="dashboard")


@tool(needs={"attachments": ["read text/plain", "create text/plain"], "optional": True})
def attach(name: str, text: str) -> str:
    """Store a text for the caller, and say what the turn has."""
    made = attachments.create(name, "text/plain", text)
    return f"{made.id} {made.mime_type} {made.size}, {'+'.join(one.name for one in attachments.all())}"


@tool(needs={"attachments": "read text/plain", "optional": True})
def attached(id: str) -> str:
    """Read a text of the caller."""
    return attachments.read(id).decode()


@tool
def blocks() -> Output:
    """Return a block of each kind."""
    output = Output("text").text("more").annotate(audience=["user"], priority=0.5).image(BYTES, "image/png")
    output.audio(BYTES, "audio/wav").annotate(audience=["user", "assistant"], last_modified="2026-01-02T03:04:05Z")
    output.link("https://a.example/x", "x", title="X", description="It.", mime_type="text/html", size=7)
    return output.embedded("note://1", "größer", "text/plain").embedded("note://2", BYTES)


@tool(needs={"kv": "plugin", "optional": True})
def count(key: str, by: int) -> str:
    """Count up."""
    return str(kv.increment("plugin", key, by))


@tool
def crash(message: str) -> str:
    """Fail as code of others fails."""
    raise RuntimeError(message)


@tool(needs={"invoke": ["contract__echo", "contract__refuse"], "optional": True})
def delegate(tool: str, text: str) -> str:
    """Call other tools."""
    names = "+".join(callable.name for callable in invoke.tools())
    answers = invoke.call_all([
        (tool, {"text": text}), ("contract__refuse", {"code": "stale-write", "message": text, "subject": "a", "cost": 1}),
        ("contract__add", {"a": 1}),
    ])
    said = (f"{answer.code} {answer.message}" if isinstance(answer, ToolError) else answer.value for answer in answers)
    return f"{names}: {', '.join(said)}"


@tool(needs={"random": True, "optional": True})
def draw(count: int) -> str:
    """Draw random numbers."""
    return " ".join(str(random.random()) for _ in range(count))


@tool(title="Echo", toolset="contract", tags=["a", "b"], read_only=True, idempotent=True, closed_world=True,
      max_result_chars=50_000, timeout_ms=20_000, meta={"example.org/hint": {"levels": [1, "zwei"]}})
def echo(text: str) -> str:
    """Return a text as it is.

    Args:
        text: The text.
    """
    return text


@tool
def facts() -> str:
    """Say where the call is."""
    session, turn = context.session_id() or "none", context.turn() or "none"
    return f"budget {context.budget_chars()}, session {session}, turn {turn}, scope {context.attribute('memory-scope') or 'none'}"


@tool(needs={"net": ["http://*", "http://127.0.0.1:1"], "optional": True})
def fetch(url: str) -> str:
    """Fetch a page."""
    response = http.get(url, headers={"x-test": "yes"})
    return f"{response.status} {response.text()}"


@tool
def hog() -> str:
    """Take memory for ever."""
    everything = []
    while True:
        everything.append(bytearray(b"\1") * (1 << 20))


@tool(read_only=True)
def kinds(
    word: Annotated[str, Arg("A text that is not long.", min_length=1, max_length=20)],
    words: Annotated[list[str], "Texts."],
    mode: Annotated[Mode, "How."],
    place: Location | None = None,
    count: Annotated[int, Arg(ge=1, le=10)] = 3,
    ratio: float = 0.5,
    flag: bool = False,
) -> str:
    """Take arguments of every kind."""
    where = " ".join(str(part) for part in (place.name, place.zip) if part is not None) if place else "nowhere"
    large = "more" if ratio > 1 else "less"
    return f"{word}, {'+'.join(words)} words, {mode.value}, {where}, {count}, {large}, {str(flag).lower()}"


@tool
def lines(count: int) -> str:
    """Return this many lines."""
    return "".join(f"line {line + 1}\n" for line in range(count))


@tool(needs={"fs_read": "$workspace/**"}, name="list")
def list_folder(path: str) -> str:
    """List a folder."""
    return ",".join(sorted(entry.name for entry in files.read_dir(path)))


@tool
def note(text: str) -> None:
    """Write a line for the operator."""
    log.warn(text, kind="note", letters=len(text))


@tool
def nothing() -> None:
    """Return nothing."""


@tool(needs={"fs_read": "$workspace/**", "reason": "reads the file you name"})
def read(path: str) -> str:
    """Read a file."""
    return files.read_text(path)


@tool
def refuse(
    code: Annotated[Literal["input-invalid", "not-available", "execution-failed", "stale-write"], "How."],
    message: str,
    subject: str | None = None,
    cost: float | None = None,
) -> str:
    """Say no."""
    assert code in CODES
    raise ToolError(code, message, subject, cost_usd=cost)


@tool(needs={"kv": ["tool", "plugin"], "optional": True})
def remember(key: str, text: str) -> str:
    """Remember a text, and say what was there."""
    before = kv.get_text("plugin", key) or "nothing"
    kv.set("plugin", key, text)
    same = kv.replace("plugin", key, text, text)
    return f"{before}, {str(same).lower()}, {'+'.join(kv.keys('plugin', limit=10))}"


@tool
def rich() -> Output:
    """Return all that a result can have."""
    output = Output("text").structured([1, "zwei"]).image(BYTES, "image/png")
    return output.link("https://a.example/x", "x").cost(0.25).metadata({"a": 1})


@tool(needs={"process": "echo *", "optional": True})
def run(program: str, args: list[str]) -> str:
    """Run a program."""
    done = process.run(program, args)
    return f"{-1 if done.exit_code is None else done.exit_code}: {done.stdout.rstrip()}"


@tool(needs={"secret": "KEY", "optional": True})
def secret(name: str) -> str:
    """Use a secret."""
    return "the value" if secrets.get(name).revealed else "a placeholder"


@tool
def setting(key: str) -> str:
    """Return a setting."""
    return config.require(key)


@tool
def sometimes() -> str:
    """Be there only with a setting."""
    return "here"


@available
def check(name: str) -> str | None:
    """Say why a tool is not there."""
    return "it needs a setting" if name == "sometimes" and not config.keys() else None


@tool
def spin() -> str:
    """Compute for ever."""
    while True:
        pass


@tool
def steps(count: int) -> str:
    """Report each step."""
    for step in range(1, count + 1):
        context.progress(f"step {step} of {count}", 100 * step / count)
    return "done"


@tool
def unannotated() -> Output:
    """Annotate a block that there is not."""
    return Output("text").annotate(priority=1)


@tool
def wait() -> str:
    """Wait until the caller gives up."""
    context.progress("waiting")
    while True:
        context.check_cancelled()


@tool(needs={"fs_read": "$workspace/**", "fs_write": "$workspace/**"})
def write(path: str, text: str, version: str | None = None) -> str:
    """Write a file."""
    return f"{files.write(path, text, version).size} bytes"


@reducer("lines")
def first_line(result: Output, _context: object) -> str | None:
    """Keeps the first line."""
    first, found, _ = result.value.partition("\n")
    return f"{first}…" if found else None
