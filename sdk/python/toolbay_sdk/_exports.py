"""The exports of the contract. The imports of this module exist only in a component."""

import traceback
from collections.abc import Callable
from typing import Any

from componentize_py_types import Err, Ok
from wit_world import exports
from wit_world.imports import types

from . import _json
from ._output import Block, Output, output_of
from ._tool import PLUGIN
from .errors import ToolError, of_exception


# What a development build imports before an instance is used.
LOAD: list[Callable[[], dict[str, str | None]]] = []


def _plugin() -> Any:
    """The plugin, imported."""
    if LOAD:
        About.info = LOAD.pop()()
    return PLUGIN


def _code(name: str) -> Any:
    return types.ErrorCode[name.replace("-", "_").upper()]


def _text(text: str) -> str:
    """Removes unpaired surrogates, which are not valid text."""
    return text.encode("utf-8", "replace").decode()


def _error(error: ToolError) -> Any:
    return types.ToolError(_code(error.code), _text(error.message), error.subject, error.cost_usd)


def _annotations(annotations: Any) -> Any:
    if annotations is None:
        return None
    audience, priority, last_modified = annotations
    return types.BlockAnnotations([types.Role[role.upper()] for role in audience], priority, last_modified)


def _embedded(uri: str, mime_type: str | None, data: str | bytes) -> Any:
    body = types.ResourceBody_Text(data) if isinstance(data, str) else types.ResourceBody_Blob(data)
    return types.BlockBody_Embedded(types.EmbeddedResource(uri, mime_type, body))


def _block(block: Block) -> Any:
    value = block.value
    match block.kind:
        case "text":
            body = types.BlockBody_Text(value)
        case "image":
            body = types.BlockBody_Image(types.Blob(*value))
        case "audio":
            body = types.BlockBody_Audio(types.Blob(*value))
        case "link":
            body = types.BlockBody_Link(types.ResourceLink(*value))
        case "embedded":
            body = _embedded(*value)
        case _:
            # Passed on by a reducer.
            if block.annotations is not None:
                value.annotations = _annotations(block.annotations)
            return value
    return types.ContentBlock(body, _annotations(block.annotations))


def _output(output: Output) -> Any:
    content = [_block(block) for block in output.content]
    return types.ToolOutput(_text(output.value), output.structured_json(), content, output.cost_usd, output.meta_json())


def _traits(names: tuple[str, ...]) -> Any:
    traits = types.ToolTraits(0)
    for name in names:
        traits |= types.ToolTraits[name.upper()]
    return traits


def _definition(tool: Any) -> Any:
    needs = [types.Capability(need.kind, need.target, need.optional, need.reason) for need in tool.needs]
    return types.ToolDef(
        tool.name, tool.title, tool.description, tool.input_schema, tool.output_schema, tool.toolset, list(tool.tags),
        _traits(tool.traits), tool.max_result_chars, tool.timeout_ms, needs, tool.meta,
    )


class Tools:
    """Interface ``tools``."""

    def list_tools(self) -> list[Any]:
        return [_definition(tool) for tool in _plugin().tools.values()]

    def call(self, name: str, args: str) -> Any:
        try:
            return _output(_plugin().call(name, args))
        except MemoryError:
            # Ends the instance. The host names the limit.
            raise
        except (Exception, SystemExit) as error:
            if not isinstance(error, ToolError):
                # The stack trace, for the operator's log.
                traceback.print_exception(error)
            raise Err(_error(of_exception(error))) from None


class Availability:
    """Interface ``availability``."""

    def check(self, tool: str) -> None:
        plugin = _plugin()
        reason = plugin.available(tool) if plugin.available else None
        if reason:
            raise Err(reason)


class Reducers:
    """Interface ``reducers``."""

    def list_reducers(self) -> list[Any]:
        of = exports.reducers.ReducerDef
        return [of(reducer.tool_name, reducer.description) for reducer in _plugin().reducers.values()]

    def reduce(self, input: Any, ctx: Any) -> Any:
        result = _from_output(input.value) if isinstance(input, Ok) else _from_error(input.value)
        shorter = _plugin().reducers[ctx.tool_name].function(result, ctx)
        if shorter is None:
            return None
        if isinstance(shorter, ToolError):
            return Err(_error(shorter))
        if isinstance(shorter, str) and isinstance(result, Output):
            result.value = shorter
            shorter = result
        return Ok(_output(output_of(shorter)))


def _from_output(record: Any) -> Output:
    output = Output(record.value, cost_usd=record.cost_usd)
    if record.structured is not None:
        output.data = _json.parse(record.structured)
    output.content = [Block("as it is", block) for block in record.content]
    output.meta = None if record.meta is None else _json.parse(record.meta)
    return output


def _from_error(record: Any) -> ToolError:
    code = record.code.name.lower().replace("_", "-")
    return ToolError(code, record.message, record.subject, cost_usd=record.cost_usd)


class About:
    """Interface ``about``. The build sets its values."""

    info: dict[str, str | None] = {}

    def describe(self) -> Any:
        _plugin()
        return exports.about.PluginInfo(**self.info)
