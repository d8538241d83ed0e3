"""The definitions that ``@tool`` creates, and calls."""

import dataclasses
import enum
import json
import typing
import unittest
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

from toolbay_sdk import (
    Arg, Output, ToolError, config, context, files, http, input_error, invoke, kv, log, process, rendered, secrets, tool,
)
from toolbay_sdk import _tool
from toolbay_sdk._output import output_of
from toolbay_sdk._schema import Unsupported, schema_of, written_output_schema
from toolbay_sdk.errors import of_exception
from toolbay_sdk.testing import FakeHost, describe


class Scale(enum.Enum):
    """Temperature scale."""

    CELSIUS = "c"
    FAHRENHEIT = "f"


class Where(TypedDict):
    city: str
    zip: NotRequired[int]


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)


class Definitions(unittest.TestCase):
    def setUp(self) -> None:
        _tool.PLUGIN.__init__()

    def test_the_definition_says_what_the_function_says(self) -> None:
        @tool(examples=[{"args": {"place": "x"}, "value": "[1,1,0.0]"}], toolset="web", tags=["a"], read_only=True, untrusted_output=True,
              needs=[{"net": ["https://a.example", "https://b.example"], "reason": "asks both"}, {"clock": True, "optional": True}])
        def forecast(place: Annotated[str, Arg("Where.", min_length=1)], days: int = 1, scale: Optional[Scale] = None) -> list[float]:
            """Forecast the weather.

            Use it when asked about tomorrow.

            Args:
                days: How many days ahead,
                    counted from today.
            """
            return [len(place), days, float(scale is Scale.FAHRENHEIT)]

        self.assertEqual(forecast("x"), [1, 1, 0.0])
        definition = describe("forecast")
        self.assertEqual(definition["description"], "Forecast the weather.\n\nUse it when asked about tomorrow.")
        self.assertEqual(definition["input_schema"], {
            "type": "object", "additionalProperties": False, "required": ["place"],
            "properties": {
                "place": {"type": "string", "description": "Where.", "minLength": 1},
                "days": {"type": "integer", "default": 1, "description": "How many days ahead, counted from today."},
                "scale": {"type": ["string", "null"], "enum": ["c", "f", None], "description": "Temperature scale."},
            },
        })
        result = {"type": "array", "items": {"type": "number"}}
        self.assertEqual(definition["output_schema"], {"type": "object", "properties": {"result": result}, "required": ["result"]})
        needs = [(need.kind, need.target, need.optional, need.reason) for need in definition["needs"]]
        self.assertEqual(needs, [
            ("net", "https://a.example", False, "asks both"), ("net", "https://b.example", False, "asks both"),
            ("clock", "wall", True, None),
        ])
        self.assertEqual(definition["traits"], ("read_only", "untrusted_output"))
        self.assertEqual(json.loads(_tool.PLUGIN.tools["forecast"].meta or ""), {"examples": [{"args": {"place": "x"}, "value": "[1,1,0.0]"}]})
        output = FakeHost().call("forecast", {"place": "Bern", "scale": "f"})
        self.assertEqual((output.value, output.structured_json()), ("[4,1,1.0]", '{"result":[4,1,1.0]}'))

    def test_every_hint_has_its_schema(self) -> None:
        point = {"type": "object", "properties": {
            "x": {"type": "number"}, "y": {"type": "number", "default": 0.0},
            "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["x"]}
        cases: list[tuple[Any, dict[str, Any]]] = [
            (str, {"type": "string"}), (int, {"type": "integer"}), (float, {"type": "number"}), (bool, {"type": "boolean"}),
            (Any, {}), (list, {"type": "array"}), (list[int], {"type": "array", "items": {"type": "integer"}}),
            (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
            (tuple[int, str], {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2}),
            (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
            (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}), (dict, {"type": "object"}),
            (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}), (Literal["a"], {"type": "string", "const": "a"}),
            (Literal["a", 1], {"enum": ["a", 1]}), (int | None, {"type": ["integer", "null"]}),
            (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
            (Scale, {"type": "string", "enum": ["c", "f"], "description": "Temperature scale."}),
            (Where, {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}, "required": ["city"]}),
            (Point, point), (Annotated[list[int], Arg("L.", max_length=3)], {"type": "array", "items": {"type": "integer"}, "description": "L.", "maxItems": 3}),
            (Annotated[int, Arg(ge=1, lt=5, schema={"multipleOf": 2})], {"type": "integer", "minimum": 1, "exclusiveMaximum": 5, "multipleOf": 2}),
        ]
        for hint, expected in cases:
            self.assertEqual(schema_of(hint), expected, hint)

    def test_a_written_output_schema_describes_what_the_host_wraps(self) -> None:
        integer = {"type": "integer"}
        wrapped = {"type": "object", "properties": {"result": integer}, "required": ["result"]}
        for schema, expected in ((integer, wrapped), (wrapped, wrapped), ({"anyOf": [wrapped]}, {"anyOf": [wrapped]})):
            self.assertEqual(written_output_schema(schema), expected)

    def test_a_hint_without_a_schema_says_so(self) -> None:
        for hint in (bytes, object, dict[int, str], Literal[b"x"], typing.Callable):
            with self.assertRaises(Unsupported):
                schema_of(hint)

    def test_a_type_that_holds_itself_says_so(self) -> None:
        @dataclasses.dataclass
        class Tree:
            children: list["Tree"]

        globals()["Tree"] = Tree
        with self.assertRaisesRegex(Unsupported, "`Tree` holds itself"):
            schema_of(Tree)

    def test_what_is_wrong_with_a_tool_is_said_where_it_is_written(self) -> None:
        def described(hint: Any) -> str:
            """D."""
            return ""

        async def later() -> str:
            """D."""
            return ""

        def bare(a) -> str:  # noqa: ANN001
            """D."""
            return ""

        def undescribed() -> str:
            return ""

        def wrong(a: int) -> str:
            """D.

            Args:
                b: No such.
            """
            return ""

        def many(*args: int) -> str:
            """D."""
            return ""

        cases = [
            (lambda: tool(undescribed), "needs a docstring"), (lambda: tool(later), "must not be `async`"),
            (lambda: tool(bare), "the argument `a` has no type hint"), (lambda: tool(wrong), "describes `b`"),
            (lambda: tool(many), "`args` has no name"), (lambda: tool(readonly=True)(described), "unknown option `readonly`"),
            (lambda: tool(tags="destructive")(described), "`tags` is a list"),
            (lambda: tool(needs={"files": "**"})(described), "unknown need `files`"),
            (lambda: tool(needs={"kv": "global"})(described), "unknown kv scope `global`"),
            (lambda: tool(needs={"clock": "wall"})(described), "has no target"), (lambda: tool(name="a b")(described), "must be 1 to 48"),
        ]
        for make, expected in cases:
            with self.assertRaisesRegex(TypeError, expected):
                make()


class Calls(unittest.TestCase):
    def setUp(self) -> None:
        _tool.PLUGIN.__init__()

    def call(self, function: Any, args: dict[str, Any] | None = None, **fake: Any) -> Output:
        function.__doc__ = "D."
        tool(name="t")(function)
        return FakeHost(**fake).call("t", args)

    def test_arguments_become_what_the_hints_say(self) -> None:
        seen: list[Any] = []

        def take(p: Point, scale: Scale, s: set[int], t: tuple[int, str], d: dict[str, Point], w: Where, o: int | None = None, f: float = 1) -> None:
            seen.extend([p, scale, s, t, d, w, o, f])

        self.call(take, {"p": {"x": 1}, "scale": "f", "s": [1, 1], "t": [1, "a"], "d": {"k": {"x": 2, "y": 3}}, "w": {"city": "x"}, "f": 2})
        expected = [Point(1.0), Scale.FAHRENHEIT, {1}, (1, "a"), {"k": Point(2.0, 3.0)}, {"city": "x"}, None, 2.0]
        self.assertEqual(seen, expected)
        self.assertIsInstance(seen[-1], float)

    def test_what_the_hints_forbid_is_invalid_input(self) -> None:
        def take(a: int, scale: Scale | None = None, p: Point | None = None) -> None: ...

        cases = [({}, "missing"), ({"a": "x"}, "'x' is not an integer"), ({"a": True}, "not an integer"), ({"a": 1, "b": 2}, "unknown field `b`"),
                 ({"a": 1, "scale": "k"}, "'k' is not"), ({"a": 1, "p": {}}, "is not")]
        tool(name="t", description="D.")(take)
        for args, expected in cases:
            with self.assertRaises(ToolError) as raised:
                FakeHost().call("t", args)
            self.assertEqual(raised.exception.code, "input-invalid")
            self.assertIn(expected, raised.exception.message)

    def test_every_kind_of_result_becomes_an_output(self) -> None:
        def of(result: Any) -> tuple[str, str | None]:
            output = output_of(result)
            return output.value, output.structured_json()

        self.assertEqual(of(None), ("", None))
        self.assertEqual(of("x"), ("x", None))
        self.assertEqual(of({"ä": (1, None)}), ('{"ä":[1,null]}', '{"ä":[1,null]}'))
        self.assertEqual(of([2**70]), ("[1180591620717411303424]", '{"result":[1180591620717411303424]}'))
        self.assertEqual(of(Point(1.5)), ('{"x":1.5,"y":0.0,"tags":[]}', '{"x":1.5,"y":0.0,"tags":[]}'))
        self.assertEqual(of(Scale.CELSIUS), ('"c"', '{"result":"c"}'))
        self.assertEqual(of(rendered("text", [1])), ("text", '{"result":[1]}'))

    def test_a_result_that_is_no_json_is_an_error_that_says_where(self) -> None:
        for result, expected in [({"a": [b"x"]}, "a bytes at `/a/0`"), (float("nan"), "nan, which"), ({1: 2}, "the key 1"),
                                 (object(), "a object, which"), ({"s": {1}}, "a set at `/s`")]:
            error = of_exception(self.raised(lambda: output_of(result)))
            self.assertEqual(error.code, "execution-failed")
            self.assertIn(expected, error.message)

    def raised(self, code: Any) -> Exception:
        try:
            code()
        except Exception as error:
            return error
        raise AssertionError("nothing was raised")

    def test_whatever_is_raised_is_an_error_of_the_contract(self) -> None:
        def chained() -> None:
            try:
                raise OSError("status 404")
            except OSError as error:
                raise RuntimeError("no page") from error

        cases = [(ValueError("bad"), "bad"), (KeyError("k"), "KeyError: 'k'"), (ZeroDivisionError(), "ZeroDivisionError"),
                 (self.raised(chained), "no page: status 404"), (SystemExit(3), "the tool ended itself (`sys.exit(3)`)")]
        for error, message in cases:
            told = of_exception(error)
            self.assertEqual((told.code, told.message), ("execution-failed", message))
        error = input_error("bad", "/a")
        self.assertIs(of_exception(error), error)
        with self.assertRaises(ValueError):
            ToolError("no-such-code", "x")
        # As programs with native tools write them.
        self.assertEqual([ToolError(code, "x").code for code in ("input_invalid", "STALE_WRITE")], ["input-invalid", "stale-write"])

    def test_a_timeout_is_seconds(self) -> None:
        def work() -> str:
            """Work."""
            return ""

        tool(name="a", timeout=1.5)(work)
        tool(name="b", timeout_ms=20)(work)
        self.assertEqual([_tool.PLUGIN.tools[name].timeout_ms for name in ("a", "b")], [1500, 20])
        for options in ({"timeout": 0}, {"timeout": float("inf")}, {"timeout": 1, "timeout_ms": 1}):
            with self.assertRaises(TypeError):
                tool(name="c", **options)(work)

    def test_a_fake_host_plays_and_remembers(self) -> None:
        def talk(path: str) -> str:
            context.progress("reading", 10)
            log.info("reading", path=path)
            kv.set_json("plugin", "last", {"path": path})
            context.check_cancelled()
            return f"{config.require('greeting')} {files.read_text(path)} {kv.increment('plugin', 'n')} {kv.keys('plugin')}"

        talk.__doc__ = "D."
        tool(name="t")(talk)
        fake = FakeHost(files={"a": "wörld"}, kv={}, config={"greeting": "hello"})
        self.assertEqual(fake.call("t", {"path": "a"}).value, "hello wörld 1 ['last', 'n']")
        self.assertEqual(fake.progress, [("reading", 10, "user")])
        self.assertEqual(fake.log, [("info", "reading", {"path": "a"})])
        for given, args, subject in [({"kv": {}, "cancel_after": 0}, {"path": "a"}, "cancelled"),
                                     ({"kv": {}, "files": {}, "config": {"greeting": "x"}}, {"path": "b"}, "not-found")]:
            with self.assertRaises(ToolError) as raised:
                FakeHost(**given).call("t", args)
            self.assertEqual(raised.exception.subject, subject)

    def test_without_a_fake_nothing_is_granted(self) -> None:
        asks = [lambda: files.read("a"), lambda: kv.get("tool", "a"), lambda: secrets.get("a"),
                lambda: http.get("https://a.example"), lambda: process.run("ls")]
        for ask in asks:
            with self.assertRaises(ToolError) as raised:
                ask()
            self.assertEqual((raised.exception.code, raised.exception.subject), ("not-available", "denied"))

    def test_a_response_knows_its_status(self) -> None:
        with FakeHost(http=lambda request: (404, "no") if request.url.endswith("x") else {"n": 2**60}):
            self.assertEqual(http.get("https://a.example/").ok().json(), {"n": 2**60})
            with self.assertRaises(ToolError) as raised:
                http.post("https://a.example/x", json={"a": 1}).ok()
            self.assertEqual(raised.exception.subject, "404")

    def test_a_file_at_another_version_is_stale(self) -> None:
        with FakeHost(files={"a": "1"}), self.assertRaises(ToolError) as raised:
            files.write("a", "2", "v0")
        self.assertEqual((raised.exception.code, raised.exception.subject), ("stale-write", "a"))


class Components(unittest.TestCase):
    def test_all_modules_that_are_to_be_there_are_known(self) -> None:
        from toolbay_sdk import _preload

        self.assertEqual(_preload.MISSING, [])

    def test_definitions_are_json(self) -> None:
        self.assertEqual(json.loads(json.dumps(schema_of(Point)))["required"], ["x"])


class Blocks(unittest.TestCase):
    def test_the_last_block_is_annotated(self) -> None:
        output = Output().audio(b"a", "audio/wav").annotate(audience=["user"], priority=0.5).embedded("a:b", "text").embedded("a:c", b"c", "x/y")
        blocks = [(block.kind, block.value, block.annotations) for block in output.content]
        self.assertEqual(blocks, [
            ("audio", (b"a", "audio/wav"), (("user",), 0.5, None)), ("embedded", ("a:b", None, "text"), None),
            ("embedded", ("a:c", "x/y", b"c"), None),
        ])
        with self.assertRaisesRegex(ToolError, "there is no block to annotate"):
            Output("x").annotate(priority=1)


class Invoke(unittest.TestCase):
    def test_other_tools_are_called(self) -> None:
        def say(_args: dict[str, Any]) -> str:
            raise ToolError("stale-write", "no", "x", cost_usd=1.0)

        with FakeHost(tools={"a__sum": lambda args: ("sum", {"sum": args["a"]}), "a__say": say}) as fake:
            self.assertEqual([one.name for one in invoke.tools()], ["a__say", "a__sum"])
            sum, none, no = invoke.call_all([("a__sum", {"a": 2**64}), ("a__none", {}), ("a__say", {})])
            self.assertEqual((sum.value, sum.structured), ("sum", {"sum": 2**64}))
            self.assertEqual((none.subject, no.code, no.cost_usd), ("unknown-tool", "stale-write", None))
            self.assertEqual(invoke.call("a__sum", {"a": 1}).value, "sum")
            self.assertEqual(fake.invocations[-1], ("a__sum", {"a": 1}))
            with self.assertRaisesRegex(ToolError, "no"):
                invoke.call("a__say")
        with self.assertRaises(ToolError) as refused:
            invoke.call("a__sum")
        self.assertEqual((refused.exception.code, refused.exception.subject), ("not-available", "denied"))


if __name__ == "__main__":
    unittest.main()
