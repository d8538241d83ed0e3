"""Runs the agents of the documentation with the packages of the vendors, each against a model that follows a script.

    python check.py FOLDER SUFFIX PROGRAM…

FOLDER has the agents, which PROGRAM runs, and the module that they share. The requests that they sent are then sent with
mistakes, which the model must refuse. Prints a line for each agent, and ends with 1 if something failed.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from model_server import (
    LAST_WORDS, REFUSALS, Anthropic, Conversation, Google, ModelServer, OpenAIChat, OpenAIResponses, Request,
)

AGENTS: dict[str, type[Conversation]] = {
    "openai_responses": OpenAIResponses, "openai_chat": OpenAIChat, "anthropic_messages": Anthropic,
    "google_generate": Google,
}
#: The module that the agents share.
SHARED = "shop"
#: Frameworks of a language. They speak the API of a vendor.
FRAMEWORKS: dict[str, dict[str, type[Conversation]]] = {
    ".py": {"pydantic_agent": OpenAIChat, "langchain_agent": OpenAIChat}, ".ts": {"ai_sdk_agent": OpenAIChat},
}


def run(agent: Path, program: list[str], conversation: type[Conversation]) -> list[str]:
    """Plays the script with an agent, and returns what went wrong."""
    # A state directory of its own.
    with ModelServer(conversation()) as server, tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([*program, agent.absolute()], cwd=folder, env={**os.environ, **server.environment()},
                              capture_output=True, text=True, timeout=300)
        if done.returncode != 0 or server.problems or not server.is_finished or LAST_WORDS not in done.stdout:
            return [*server.problems, f"it ended with {done.returncode}", done.stdout, done.stderr]
        return not_refused(conversation, server.requests)


def not_refused(conversation: type[Conversation], requests: list[Request]) -> list[str]:
    """The mistakes in the second request, which has the first results, that the model does not refuse."""
    found = []
    for name, mistake in MISTAKES.items():
        model, second = conversation(), requests[1]
        model.answer(requests[0])
        wrong = copy.deepcopy(second.body)
        mistake(wrong, results(conversation, wrong))
        try:
            model.answer(dataclasses.replace(second, body=wrong))
            found.append(f"the scripted model takes this mistake: {name}")
        except REFUSALS:
            pass
    return found


def messages(body: dict[str, Any]) -> Any:
    """The messages of a request, whatever the vendor calls them."""
    return next(body[key] for key in ("messages", "input", "contents") if key in body)


def results(conversation: type[Conversation], body: dict[str, Any]) -> Any:
    """The list whose last members are the results of a request."""
    key = {Anthropic: "content", Google: "parts"}.get(conversation)
    return messages(body) if key is None else messages(body)[-1][key]


def swap(_body: dict[str, Any], results: list[Any]) -> None:
    results[-1], results[-2] = results[-2], results[-1]


MISTAKES: dict[str, Callable[[dict[str, Any], list[Any]], object]] = {
    "a missing result": lambda _body, results: results.pop(),
    "a result that comes twice": lambda _body, results: results.append(results[-1]),
    "results for each other's calls": swap,
    "no tools": lambda body, _results: body["tools"].clear(),
    "no question": lambda body, _results: messages(body).pop(0),
    "no answer": lambda body, _results: messages(body).pop(1),
}


def main() -> int:
    folder, suffix, *program = sys.argv[1:]
    agents = AGENTS | FRAMEWORKS[suffix]
    shown = {file.stem for file in Path(folder).glob(f"*{suffix}")} - {SHARED}
    if shown != set(agents):
        print(f"the documentation shows the agents {sorted(shown)}, and these have a scripted model: {sorted(agents)}")
        return 1

    def check(name: str) -> bool:
        start = time.monotonic()
        problems = run(Path(folder, name + suffix), program, agents[name])
        print("\n".join([f"{name}{suffix}: {'FAILED' if problems else 'ok'}, {time.monotonic() - start:.1f} s", *problems]))
        return not problems

    with ThreadPoolExecutor(2) as pool:
        return 0 if all(list(pool.map(check, agents))) else 1


if __name__ == "__main__":
    sys.exit(main())
