"""Holds what the library writes for model vendors against the types that the vendors publish, offline.

    python check.py SAMPLES

SAMPLES is the built example `vendor_samples`. Its definitions, calls and results must be what `openai`, `anthropic`,
`google-genai` and `mcp-types` take; calls that are made with their types must come back as ours. Prints one line for
each check, and ends with 1 if one failed.
"""

import json
import subprocess
import sys
import typing
from typing import List

# The vendors' types say `Iterable`, which pydantic checks only while it is walked through, and not always then. What we
# write are lists.
typing.Iterable = typing.List

import anthropic.types
import mcp_types
import openai.types.chat
import openai.types.responses
import openai.types.shared_params
from google.genai import types as gemini
from pydantic import TypeAdapter

failures = 0
checks = 0


def check(name, good, seen=""):
    global failures, checks
    checks += 1
    if not good:
        failures += 1
        print(f"FAILED  {name}: {str(seen)[:2000]}", flush=True)


def fits(name, kind, value):
    try:
        TypeAdapter(kind).validate_python(value)
        check(name, True)
    except ValueError as error:
        check(name, False, f"{error}\n{json.dumps(value)}")


def refuses(name, kind, value):
    """That the types check anything at all: this is wrong and must be refused."""
    try:
        TypeAdapter(kind).validate_python(value)
        check(name, False, "it was taken")
    except ValueError:
        check(name, True)


def known_keys(name, kind, value):
    """A TypedDict takes keys it does not know; the vendor's server may not."""
    allowed = set(kind.__annotations__)
    for base in getattr(kind, "__orig_bases__", ()):
        allowed |= set(getattr(base, "__annotations__", {}))
    check(f"{name}: only known keys", set(value) <= allowed, sorted(set(value) - allowed))


def strict_rules(name, schema):
    """What OpenAI and Anthropic demand of a schema in strict mode."""
    if isinstance(schema, list):
        for inner in schema:
            strict_rules(name, inner)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("properties"), dict):
        check(f"{name}: closed", schema.get("additionalProperties") is False, schema)
        check(f"{name}: all required", set(schema["properties"]) == set(schema.get("required", [])), schema)
    for word in ["allOf", "oneOf", "not", "if", "patternProperties", "propertyNames", "contains", "prefixItems", "default"]:
        check(f"{name}: no `{word}`", word not in schema or word in schema.get("properties", {}), schema)
    for inner in schema.values():
        strict_rules(name, inner)


def openai_chat(sample):
    for mode in ["plain", "strict"]:
        tools = sample[mode]["tools"]
        fits(f"openai-chat {mode}", List[openai.types.chat.ChatCompletionFunctionToolParam], tools)
        for tool in tools:
            known_keys("openai-chat tool", openai.types.chat.ChatCompletionFunctionToolParam, tool)
            known_keys("openai-chat function", openai.types.shared_params.FunctionDefinition, tool["function"])
            if tool["function"]["strict"]:
                strict_rules(f"openai-chat {tool['function']['name']}", tool["function"]["parameters"])
    messages = sample["calls"] + sample["results"]
    fits("openai-chat messages", List[openai.types.chat.ChatCompletionMessageParam], messages)
    results = [message for message in sample["results"] if message["role"] == "tool"]
    fits("openai-chat results", List[openai.types.chat.ChatCompletionToolMessageParam], results)
    strict = {tool["function"]["name"] for tool in sample["strict"]["tools"] if tool["function"]["strict"]}
    check("openai-chat strict where exact", strict == {"add", "nested"}, strict)
    return [message["tool_call_id"] for message in results], [m["content"].startswith("error: ") for m in results]


def openai_responses(sample):
    for mode in ["plain", "strict"]:
        tools = sample[mode]["tools"]
        fits(f"openai-responses {mode}", List[openai.types.responses.FunctionToolParam], tools)
        for tool in tools:
            known_keys("openai-responses tool", openai.types.responses.FunctionToolParam, tool)
            if tool["strict"]:
                strict_rules(f"openai-responses {tool['name']}", tool["parameters"])
    fits("openai-responses calls", List[openai.types.responses.ResponseFunctionToolCallParam], sample["calls"])
    output = openai.types.responses.response_input_item_param.FunctionCallOutput
    fits("openai-responses results", List[output], sample["results"])
    for item in sample["results"]:
        known_keys("openai-responses result", output, item)
    text = [i["output"] if isinstance(i["output"], str) else i["output"][0]["text"] for i in sample["results"]]
    return [item["call_id"] for item in sample["results"]], [one.startswith("error: ") for one in text]


def anthropic_messages(sample):
    for mode in ["plain", "strict"]:
        tools = sample[mode]["tools"]
        fits(f"anthropic {mode}", List[anthropic.types.ToolParam], tools)
        for tool in tools:
            known_keys("anthropic tool", anthropic.types.ToolParam, tool)
            check("anthropic root", not {"anyOf", "oneOf", "allOf"} & set(tool["input_schema"]), tool)
            if tool.get("strict"):
                strict_rules(f"anthropic {tool['name']}", tool["input_schema"])
    fits("anthropic messages", List[anthropic.types.MessageParam], sample["calls"] + sample["results"])
    (message,) = sample["results"]
    fits("anthropic results", List[anthropic.types.ToolResultBlockParam], message["content"])
    for block in message["content"]:
        known_keys("anthropic result", anthropic.types.ToolResultBlockParam, block)
        check("anthropic: no empty text", all(b.get("text") != "" for b in block["content"]), block)
    blocks = message["content"]
    return [block["tool_use_id"] for block in blocks], [block["is_error"] for block in blocks]


def google_gemini(sample):
    for mode in ["plain", "strict"]:
        tools = sample[mode]["tools"]
        fits(f"gemini {mode}", List[gemini.Tool], tools)
        for function in tools[0]["functionDeclarations"]:
            schema = json.dumps(function["parametersJsonSchema"])
            check("gemini: no $schema", "$schema" not in schema, schema)
            # The SDK's own reader of JSON Schema, for what it can read: it refuses keywords it does not know.
            if function["name"] in ["add", "actor", "nothing"]:
                try:
                    gemini.Schema.from_json_schema(
                        json_schema=gemini.JSONSchema.model_validate(
                            {k: v for k, v in function["parametersJsonSchema"].items() if k != "additionalProperties"}
                        )
                    )
                    check("gemini schema", True)
                except Exception as error:
                    check("gemini schema", False, f"{error}\n{schema}")
    fits("gemini messages", List[gemini.Content], sample["calls"] + sample["results"])
    (message,) = sample["results"]
    responses = [part["functionResponse"] for part in message["parts"]]
    check("gemini: names of the calls", {one["name"] for one in responses} == {"actor", "no_such_tool"}, responses)
    return [one["id"] for one in responses], ["error" in one["response"] for one in responses]


def protocol(sample):
    for mode in ["plain", "strict"]:
        fits(f"mcp {mode}", List[mcp_types.Tool], sample[mode]["tools"])
    for message in sample["calls"]:
        fits("mcp call", mcp_types.CallToolRequestParams, message["params"])
    for message in sample["results"]:
        fits("mcp result", mcp_types.CallToolResult, message["result"])
    return [m["id"] for m in sample["results"]], [m["result"]["isError"] for m in sample["results"]]


def wrong():
    """What the vendors do not take, and what would come of mistakes that are easily made."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    refuses("an image in a tool's message", List[openai.types.chat.ChatCompletionMessageParam],
            [{"role": "tool", "tool_call_id": "c", "content": [image]}])
    refuses("a function without `strict`", List[openai.types.responses.FunctionToolParam],
            [{"type": "function", "name": "a", "parameters": {}}])
    tiff = {"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "AA=="}}
    refuses("a picture of an odd type", List[anthropic.types.ToolResultBlockParam],
            [{"type": "tool_result", "tool_use_id": "c", "content": [tiff]}])
    refuses("a sound", List[anthropic.types.ToolResultBlockParam],
            [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "audio"}]}])
    refuses("a response that is a text", List[gemini.Content],
            [{"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "a", "response": "3"}}]}])
    refuses("a key that is not known", List[gemini.Tool], [{"functionDeclarations": [{"name": "a", "strict": True}]}])
    refuses("a result without content", mcp_types.CallToolResult, {"content": [{"type": "text"}]})


def made_by_vendors():
    """Answers of models, made with the vendors' types, and the calls in them."""
    args, text = {"a": 1, "b": [True, None]}, '{"a":1,"b":[true,null]}'
    chat = openai.types.chat
    message = chat.ChatCompletionMessage(
        role="assistant",
        content=None,
        tool_calls=[
            chat.ChatCompletionMessageFunctionToolCall(
                id="c1", type="function", function={"name": "add", "arguments": text}
            )
        ],
    )
    choice = chat.chat_completion.Choice(finish_reason="tool_calls", index=0, message=message)
    completion = chat.ChatCompletion(id="x", choices=[choice], created=1, model="m", object="chat.completion")
    quiet = chat.ChatCompletionMessage(role="assistant", content="hello")
    call = openai.types.responses.ResponseFunctionToolCall(
        id="fc_1", call_id="c1", type="function_call", name="add", arguments=text, status="completed"
    )
    reasoning = openai.types.responses.ResponseReasoningItem(id="r", type="reasoning", summary=[])
    block = anthropic.types.ToolUseBlock(id="c1", type="tool_use", name="add", input=args)
    said = anthropic.types.TextBlock(type="text", text="I add.")
    answer = anthropic.types.Message(
        id="m", content=[said, block], model="m", role="assistant", type="message", stop_reason="tool_use",
        usage={"input_tokens": 1, "output_tokens": 1},
    )
    part = gemini.Part(function_call=gemini.FunctionCall(id="c1", name="add", args=args))
    content = gemini.Content(role="model", parts=[gemini.Part(text="I add."), part])
    response = gemini.GenerateContentResponse(candidates=[gemini.Candidate(content=content)])
    request = {"jsonrpc": "2.0", "id": "c1", "method": "tools/call",
               "params": mcp_types.CallToolRequestParams(name="add", arguments=args).model_dump(mode="json", exclude_none=True)}
    dump = lambda model, **how: model.model_dump(mode="json", **how)
    return [
        ("openai-chat", dump(completion), 1),
        ("openai-chat", dump(message), 1),
        ("openai-chat", dump(message, exclude_none=True), 1),
        ("openai-chat", dump(quiet), 0),
        ("openai-responses", {"output": [dump(reasoning), dump(call)]}, 1),
        ("openai-responses", [dump(call)], 1),
        ("anthropic", dump(answer), 1),
        ("anthropic", [dump(said)], 0),
        ("gemini", dump(response, by_alias=True, exclude_none=True), 1),
        ("gemini", dump(response, exclude_none=True), 1),
        ("gemini", dump(content), 1),
        ("mcp", request, 1),
    ]


def main():
    program = sys.argv[1]
    samples = json.loads(subprocess.run([program], check=True, capture_output=True).stdout)
    readers = {
        "openai-chat": openai_chat,
        "openai-responses": openai_responses,
        "anthropic": anthropic_messages,
        "gemini": google_gemini,
        "mcp": protocol,
    }
    check("every format is checked", set(samples["vendors"]) == set(readers), list(samples["vendors"]))
    for vendor, sample in samples["vendors"].items():
        ids, failed = readers[vendor](sample)
        check(f"{vendor}: the ids of the calls, in their order", ids == samples["ids"], ids)
        check(f"{vendor}: what failed says so", failed == samples["failed"], failed)

    wrong()
    made = made_by_vendors()
    messages = [{"vendor": vendor, "message": message} for vendor, message, _ in made]
    asked = subprocess.run([program, "parse"], input=json.dumps(messages).encode(), capture_output=True)
    check("what vendors make is read", asked.returncode == 0, asked.stderr.decode())
    for (vendor, message, count), calls in zip(made, json.loads(asked.stdout or b"[]"), strict=True):
        name = f"{vendor} calls of {json.dumps(message)[:200]}"
        check(name, len(calls) == count, calls)
        for call in calls:
            same = call["id"] == "c1" and call["tool"] == "add" and json.loads(call["args"]) == {"a": 1, "b": [True, None]}
            check(name, same, call)
    print(f"{checks} checks, {failures} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
