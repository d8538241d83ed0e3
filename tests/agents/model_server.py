"""A model that follows a script, as a server with the APIs of OpenAI, Anthropic and Google.

It answers each request with the next turn of the script, and holds the request against what the API demands: tools, roles,
ids, order, and that no result is missing. A request that the API would refuse gets the status 400, so the agent fails.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class ScriptedCall:
    """A call of the model, whether its result must be a failure, and a text that it must contain."""

    tool: str
    args: dict[str, Any]
    fails: bool
    contains: str


#: The calls of each turn. A native tool and a plugin in the first; a tool that refuses and a policy that does in the second.
TURNS = (
    (ScriptedCall("order", {"number": "7"}, False, "lamp"),
     ScriptedCall("text__word_count", {"text": "please pack it well"}, False, '"words"')),
    (ScriptedCall("order", {"number": "0"}, True, "there is no order 0"),
     ScriptedCall("cancel_order", {"number": "7"}, True, "people cancel orders")),
)
#: What the model says in the end.
LAST_WORDS = "Order 7 is a lamp, and its note has 4 words."


class Refused(Exception):
    """A request that the API of the vendor refuses."""


#: What `Conversation.answer` raises for a request that the API refuses: members may be missing or of another type.
REFUSALS = (Refused, LookupError, TypeError, ValueError, AttributeError)


def demand(holds: object, problem: str, seen: object = None) -> None:
    if not holds:
        raise Refused(f"{problem}: {json.dumps(seen)[:1000]}")


@dataclass(frozen=True)
class Request:
    """A request of a client."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass(frozen=True)
class SentTool:
    """A tool as the client defined it."""

    name: str
    description: str
    schema: Any


@dataclass(frozen=True)
class SentResult:
    """A result as the client sent it. Google's API also has the name of the tool."""

    call_id: str | None
    failed: bool
    text: str
    tool: str | None = None


class Conversation:
    """A conversation in the format of a vendor."""

    #: The path of a request, and the headers of which one has the key.
    PATH: str
    KEYS: tuple[str, ...]

    def __init__(self) -> None:
        self.turn = 0
        self.history: list[Any] = []
        self.answered: dict[str, Any] = {}

    def answer(self, request: Request) -> dict[str, Any]:
        """The next turn of the script. Raises one of `REFUSALS` if the request is not as the API demands."""
        body = request.body
        demand(re.fullmatch(self.PATH, request.path), "no such path", request.path)
        demand(any(request.headers.get(key) for key in self.KEYS), "a header has the key", self.KEYS)
        demand(self.turn <= len(TURNS), "the model had said all it had to say", body)
        self.check_tools(self.tools(body))
        messages = self.messages(body)
        demand(messages[: len(self.history)] == self.history, "the conversation so far is another one", messages)
        self.check_added(messages[len(self.history):])
        self.history = messages
        self.answered = self.make(body, self.turn)
        self.turn += 1
        return self.answered

    def check_added(self, added: list[Any]) -> None:
        """Checks what follows the last answer: the answer itself and a result for each of its calls."""
        if self.turn == 0:
            demand(len(added) == 1 and added[0].get("role") == "user", "a conversation begins with the user", added)
            return
        results, calls = self.results(added), TURNS[self.turn - 1]
        demand(len(results) == len(calls), "each call has one result", added)
        for place, (call, result) in enumerate(zip(calls, results)):
            demand(result.call_id == self.call_id(self.turn - 1, place), "the result has the id of its call", added)
            demand(result.tool in (None, call.tool), "the result has the name of its tool", added)
            demand(result.failed == call.fails, "a failure says so, and nothing else does", result.text)
            demand(call.contains in result.text, f"the result contains `{call.contains}`", result.text)

    def check_tools(self, tools: list[SentTool]) -> None:
        names = [tool.name for tool in tools]
        demand(len(set(names)) == len(names), "a name is used once", names)
        used = {call.tool for calls in TURNS for call in calls}
        demand(used <= set(names), "the tools of the script are there", names)
        for tool in tools:
            demand(re.fullmatch("[a-zA-Z0-9_-]{1,64}", tool.name), "a name has letters, digits, `_` and `-`", tool.name)
            demand(tool.description, "a tool has a description", tool.name)
            demand(isinstance(tool.schema, dict) and tool.schema.get("type") == "object", "arguments are an object",
                   tool.schema)

    def call_id(self, turn: int, place: int) -> str | None:
        return f"call_{turn}_{place}"

    def tools(self, body: dict[str, Any]) -> list[SentTool]:
        raise NotImplementedError

    def messages(self, body: dict[str, Any]) -> list[Any]:
        raise NotImplementedError

    def results(self, added: list[Any]) -> list[SentResult]:
        raise NotImplementedError

    def make(self, body: dict[str, Any], turn: int) -> dict[str, Any]:
        raise NotImplementedError

    def calls(self, turn: int) -> list[tuple[str | None, ScriptedCall]]:
        """The calls of a turn with their ids; none in the last one."""
        calls = TURNS[turn] if turn < len(TURNS) else ()
        return [(self.call_id(turn, place), call) for place, call in enumerate(calls)]


def echoes(sent: Any, echo: Any) -> bool:
    """Whether a client returned what the model said. Members that are null may be missing, and others may be there."""
    if isinstance(sent, dict):
        return isinstance(echo, dict) and all(echoes(value, echo.get(key)) for key, value in sent.items())
    if isinstance(sent, list):
        return isinstance(echo, list) and len(sent) == len(echo) and all(map(echoes, sent, echo))
    if isinstance(sent, str) and sent.startswith("{") and isinstance(echo, str):
        # Frameworks write the arguments of calls again, with other spaces.
        return bool(json.loads(sent) == json.loads(echo))
    return bool(sent == echo)


class OpenAIChat(Conversation):
    """Chat Completions: the messages after `tool_calls` are one of the role `tool` for each."""

    PATH, KEYS = "/v1/chat/completions", ("authorization",)

    def tools(self, body: dict[str, Any]) -> list[SentTool]:
        demand(all(tool["type"] == "function" for tool in body["tools"]), "a tool is a function", body["tools"])
        functions = [tool["function"] for tool in body["tools"]]
        return [SentTool(one["name"], one["description"], one["parameters"]) for one in functions]

    def messages(self, body: dict[str, Any]) -> list[Any]:
        return list(body["messages"])

    def results(self, added: list[Any]) -> list[SentResult]:
        demand(echoes(self.answered["choices"][0]["message"], added[0]), "the answer comes back whole", added)
        results = []
        for message in added[1:]:
            demand(message["role"] == "tool", "after calls come their results", added)
            demand(isinstance(message["content"], str), "a result is text", message)
            content = message["content"]
            results.append(SentResult(message["tool_call_id"], content.startswith("error: "), content))
        return results

    def make(self, body: dict[str, Any], turn: int) -> dict[str, Any]:
        calls = [{"id": id, "type": "function", "function": {"name": call.tool, "arguments": json.dumps(call.args)}}
                 for id, call in self.calls(turn)]
        message: dict[str, Any] = {"role": "assistant", "content": None if calls else LAST_WORDS}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return {"id": f"chatcmpl-{turn}", "object": "chat.completion", "created": 1, "model": body["model"],
                "choices": [choice]}


class OpenAIResponses(Conversation):
    """Responses: the items of an answer come back, reasoning too, and then a `function_call_output` for each call."""

    PATH, KEYS = "/v1/responses", ("authorization",)

    def tools(self, body: dict[str, Any]) -> list[SentTool]:
        demand(all(tool["type"] == "function" for tool in body["tools"]), "a tool is a function", body["tools"])
        return [SentTool(tool["name"], tool["description"], tool["parameters"]) for tool in body["tools"]]

    def messages(self, body: dict[str, Any]) -> list[Any]:
        return list(body["input"])

    def results(self, added: list[Any]) -> list[SentResult]:
        output = self.answered["output"]
        demand(echoes(output, added[: len(output)]), "the items of the answer come back whole", added)
        results = []
        for item in added[len(output):]:
            demand(item["type"] == "function_call_output", "after calls come their results", added)
            demand(isinstance(item["output"], str), "a result is text", item)
            results.append(SentResult(item["call_id"], item["output"].startswith("error: "), item["output"]))
        return results

    def make(self, body: dict[str, Any], turn: int) -> dict[str, Any]:
        output: list[dict[str, Any]] = [{"type": "reasoning", "id": f"rs_{turn}", "summary": []}]
        output += [{"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": call.tool,
                    "arguments": json.dumps(call.args), "status": "completed"} for id, call in self.calls(turn)]
        if len(output) == 1:
            text = {"type": "output_text", "text": LAST_WORDS, "annotations": []}
            output.append({"type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed",
                           "content": [text]})
        return {"id": f"resp_{turn}", "object": "response", "created_at": 1, "model": body["model"], "status": "completed",
                "output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


class Anthropic(Conversation):
    """Messages: one message of the user has the results of all calls, and follows the model's, which has its thinking."""

    PATH, KEYS = "/v1/messages", ("authorization", "x-api-key")

    def tools(self, body: dict[str, Any]) -> list[SentTool]:
        demand(isinstance(body.get("max_tokens"), int), "`max_tokens` is required", body.get("max_tokens"))
        return [SentTool(tool["name"], tool["description"], tool["input_schema"]) for tool in body["tools"]]

    def messages(self, body: dict[str, Any]) -> list[Any]:
        return list(body["messages"])

    def results(self, added: list[Any]) -> list[SentResult]:
        demand([message["role"] for message in added] == ["assistant", "user"], "the model and the user take turns", added)
        demand(echoes(self.answered["content"], added[0]["content"]), "the answer comes back whole", added[0])
        results = []
        for block in added[1]["content"]:
            demand(block["type"] == "tool_result", "results come first", added[1])
            content = block["content"] if isinstance(block["content"], list) else [{"text": block["content"]}]
            text = "".join(part["text"] for part in content)
            demand(text, "no text is empty", block)
            results.append(SentResult(block["tool_use_id"], block.get("is_error", False), text))
        return results

    def make(self, body: dict[str, Any], turn: int) -> dict[str, Any]:
        content: list[dict[str, Any]] = [
            {"type": "tool_use", "id": id, "name": call.tool, "input": call.args} for id, call in self.calls(turn)]
        reason = "tool_use" if content else "end_turn"
        content = content or [{"type": "text", "text": LAST_WORDS}]
        thinking = {"type": "thinking", "thinking": "What is asked?", "signature": f"c2lnbmF0dXJl{turn}"}
        return {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": body["model"],
                "content": [thinking, *content], "stop_reason": reason, "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1}}


class Google(Conversation):
    """generateContent: one content of the user has a response for each call, and thought signatures come back."""

    PATH, KEYS = "/v1(beta)?/models/[a-z0-9.-]+:generateContent", ("x-goog-api-key",)

    def call_id(self, turn: int, place: int) -> str | None:
        # The API may leave out ids. The library then names calls by their place.
        return super().call_id(turn, place) if turn == 0 else None

    def tools(self, body: dict[str, Any]) -> list[SentTool]:
        functions = [one for tool in body["tools"] for one in tool["functionDeclarations"]]
        for one in functions:
            demand(re.match("[a-zA-Z_]", one["name"]), "a name starts with a letter or `_`", one["name"])
        # The JSON of protocol buffers has two spellings of each name, and the package in Python uses both.
        schemas = [one.get("parametersJsonSchema") or one["parameters_json_schema"] for one in functions]
        return [SentTool(one["name"], one["description"], schema) for one, schema in zip(functions, schemas)]

    def messages(self, body: dict[str, Any]) -> list[Any]:
        return list(body["contents"])

    def results(self, added: list[Any]) -> list[SentResult]:
        demand([content["role"] for content in added] == ["model", "user"], "the model and the user take turns", added)
        demand(echoes(self.answered["candidates"][0]["content"], added[0]), "the answer comes back whole", added[0])
        results = []
        for part, (id, _) in zip(added[1]["parts"], self.calls(self.turn - 1), strict=True):
            one = part["functionResponse"]
            demand(isinstance(one["response"], dict), "a response is an object", one)
            found = None if id is None else one.get("id")
            results.append(SentResult(found, "error" in one["response"], _texts(one["response"]), one["name"]))
        return results

    def make(self, body: dict[str, Any], turn: int) -> dict[str, Any]:
        parts: list[dict[str, Any]] = []
        for id, call in self.calls(turn):
            called = {"name": call.tool, "args": call.args, **({} if id is None else {"id": id})}
            # Only the first of parallel calls has a signature.
            signature = {} if parts else {"thoughtSignature": "c2lnbmF0dXJl"}
            parts.append({"functionCall": called, **signature})
        content = {"role": "model", "parts": parts or [{"text": LAST_WORDS}]}
        return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "modelVersion": "scripted"}


def _texts(response: dict[str, Any]) -> str:
    return "".join(value if isinstance(value, str) else json.dumps(value) for value in response.values())


class ModelServer:
    """Serves one conversation on a port of its own. `problems` has what the vendor would have refused."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.problems: list[str] = []
        self.requests: list[Request] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, answer = outer._answer(self.path.partition("?")[0], self.headers, body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        # It looks for the end twenty times a second, in place of twice.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def _answer(self, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, Any]]:
        try:
            request = Request(path, headers, json.loads(body))
            answer = self.conversation.answer(request)
            self.requests.append(request)
            return 200, answer
        except REFUSALS as error:
            self.problems.append(f"{type(error).__name__}: {error}")
            return 400, {"error": {"message": self.problems[-1], "type": "invalid_request_error", "code": 400}}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def is_finished(self) -> bool:
        """Whether the whole script was played."""
        return self.conversation.turn == len(TURNS) + 1

    def environment(self) -> dict[str, str]:
        """The variables by which the packages of the vendors find this server."""
        return {
            "OPENAI_BASE_URL": f"{self.address}/v1", "OPENAI_API_KEY": "key", "ANTHROPIC_BASE_URL": self.address,
            "ANTHROPIC_API_KEY": "key", "GOOGLE_GEMINI_BASE_URL": self.address, "GEMINI_API_KEY": "key",
            "MODEL": "scripted", "NO_PROXY": "127.0.0.1",
        }

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
