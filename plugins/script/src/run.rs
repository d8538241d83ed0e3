//! `run`.

use toolbay_sdk::prelude::*;

use crate::engine::{self, ScriptError, ScriptResult};

/// Run a JavaScript program that calls other tools, instead of calling them one by one: for loops over many items, for calls
/// that depend on one another, to give back only what matters of large results.
///
/// The program is the body of an async function. `await tools.NAME({…})` calls the tool NAME and gives `{text, data}`: the text
/// that you would read, and its structured result if it has one. Calls in one `Promise.all([…])` run at the same time. A call
/// that fails throws an Error with `code`, `subject` and `message`. End with `return`: any JSON, or a text; `console.log(…)` writes
/// lines before it. There are no modules, files, network or timers: only tools. `tools.list()` names them.
///
/// Example: `const {data} = await tools.files__list_dir({path: "a"});
/// const read = await Promise.all(data.entries.map(e => tools.files__read_file({path: "a/" + e.name})));
/// return read.filter(f => f.text.includes(input.word)).map(f => f.data.path);`
#[tool(
    toolset = "script",
    title = "Run a program",
    invoke = "*",
    reason = "calls the tools that the program names",
    optional(clock, reason = "for `Date`"),
    optional(random, reason = "for `Math.random`")
)]
pub fn run(
    /// The program. There are also `tools.call("NAME", {…})` for any name, and `tools.describe("NAME")` with the schema of its
    /// arguments.
    #[arg(length(min = 1, max = 200_000))]
    code: String,
    /// What the program has as `input`: any JSON.
    input: Option<serde_json::Value>,
) -> Result<Output> {
    match engine::run(&code, &input.unwrap_or_default()) {
        Ok(ScriptResult { text, structured }) => {
            Ok(Output { structured: Some(structured), ..Output::new(text) })
        }
        Err(failed) => Err(error(failed)),
    }
}

fn error(failed: ScriptError) -> Error {
    match failed {
        ScriptError::Syntax(message) => Error::input(message).at("/code"),
        ScriptError::Thrown { message, line, console } => {
            let mut text = message;
            if !console.is_empty() {
                text.push_str("\nBefore that the program wrote:\n");
                text.push_str(&console.join("\n"));
            }
            let error = Error::failed(text);
            match line {
                Some(line) => error.at(format!("line {line}")),
                None => error,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::invoke::Invoked;
    use toolbay_sdk::testing::{FakeHost, call};
    use toolbay_sdk::types::ErrorCode;

    use super::*;

    fn host() -> FakeHost {
        let structured = |value: serde_json::Value| Invoked {
            value: "text".to_owned(),
            structured: Some(value.to_string()),
            truncated: false,
        };
        FakeHost::new()
            .tool("math__add", move |args| {
                let number = |key: &str| args.get(key).and_then(serde_json::Value::as_i64).unwrap_or(0);
                Ok(structured(json!({ "sum": number("a") + number("b") })))
            })
            .tool("say__text", |args| Ok(Invoked::text(format!("said {args}"))))
            .tool("bad__tool", |_| Err(Error::stale("it changed").at("a.txt")))
    }

    fn said(code: &str) -> serde_json::Value {
        let output = host().run(|| call::<run>(json!({ "code": code, "input": {"n": 20} }))).unwrap();
        serde_json::from_str(&output.structured.unwrap()).unwrap()
    }

    fn fails(code: &str) -> Error {
        host().run(|| call::<run>(json!({ "code": code }))).unwrap_err()
    }

    #[test]
    fn a_program_calls_tools_and_gives_back_what_it_makes_of_it() {
        for (code, result) in [
            ("return 1 + 1", json!(2)),
            ("return input.n", json!(20)),
            ("", json!(null)),
            ("return (await tools.math__add({a: 2, b: 3})).data.sum", json!(5)),
            ("return (await tools.call('say__text', {x: 1})).text", json!("said {\"x\":1}")),
            ("return (await tools.say__text()).text", json!("said {}")),
            (
                "let s = 0; for (let i = 0; i < input.n; i++) s = (await tools.math__add({a: s, b: i})).data.sum; return s",
                json!(190),
            ),
            (
                "const all = await Promise.all([1, 2, 3].map(a => tools.math__add({a, b: a}))); return all.map(x => x.data.sum)",
                json!([2, 4, 6]),
            ),
            (
                "try { await tools.bad__tool() } catch (e) { return [e.code, e.subject, e.message, e instanceof Error] }",
                json!(["stale_write", "a.txt", "it changed", true]),
            ),
            (
                "const all = await Promise.allSettled([tools.nope__x({}), tools.math__add({a: 1})]); return all.map(x => x.status)",
                json!(["rejected", "fulfilled"]),
            ),
            ("return tools.list().map(t => t.name)", json!(["bad__tool", "math__add", "say__text"])),
            ("return tools.describe('math__add').input_schema.type", json!("object")),
            ("return {a: undefined, b: new Map(), d: [NaN, () => 1]}", json!({"b": {}, "d": [null, null]})),
            ("return typeof require + typeof process + typeof fetch", json!("undefinedundefinedundefined")),
            ("return 'a\\nb' + `é😀`", json!("a\nbé😀")),
        ] {
            if code.is_empty() {
                continue;
            }
            assert_eq!(said(code)["result"], result, "{code}");
        }
    }

    #[test]
    fn calls_that_do_not_wait_for_one_another_are_made_at_once() {
        let fake = host();
        let code = "await Promise.all([tools.say__text({n: 1}), tools.say__text({n: 2})]); return 'done'";
        let output = fake.run(|| call::<run>(json!({ "code": code }))).unwrap();
        let calls: Vec<_> = fake.invocations().into_iter().map(|call| call.args).collect();
        assert_eq!(calls, [r#"{"n":1}"#, r#"{"n":2}"#]);
        let structured: serde_json::Value = serde_json::from_str(&output.structured.unwrap()).unwrap();
        assert_eq!((&structured["calls"], output.value.as_str()), (&json!(2), "done"));
    }

    #[test]
    fn the_console_comes_before_the_result_and_is_bounded() {
        let told = said("console.log('a', {b: 1}, [2]); console.error('c'); return 'end'");
        assert_eq!(told["console"], json!(["a {\"b\":1} [2]", "c"]));
        let told = said("for (let i = 0; i < 100000; i++) console.log('x'.repeat(100)); return 1");
        let lines = told["console"].as_array().unwrap();
        assert!(
            lines.len() < 300 && lines.last().unwrap().as_str().unwrap().contains("more"),
            "{}",
            lines.len()
        );
    }

    #[test]
    fn what_goes_wrong_says_where() {
        for (code, says, at) in [
            ("const a = 1;\nconst b = a.c.d;\nreturn b", "TypeError", "line 2"),
            ("function f() {\n  throw new Error('oops')\n}\nawait 1;\nf()", "Error: oops", "line 2"),
            ("let x = 1;\n\nawait tools.bad__tool()", "it changed", "line 3"),
            ("return undefined_name", "ReferenceError", "line 1"),
        ] {
            let error = fails(code);
            assert!(error.message().contains(says), "{code}: {error:?}");
            assert_eq!(
                (error.code(), error.subject()),
                (ErrorCode::ExecutionFailed, Some(at)),
                "{code}: {error:?}"
            );
        }
        let error = fails("console.log('so far'); throw 'a text'");
        assert!(error.message().contains("a text") && error.message().contains("so far"), "{error:?}");
        for code in ["let a = ;", "return (1", "}); 5; ({"] {
            let error = fails(code);
            assert_eq!(
                (error.code(), error.subject()),
                (ErrorCode::InputInvalid, Some("/code")),
                "{error:?}"
            );
        }
        let error = fails("await new Promise(() => {})");
        assert!(error.message().contains("waits for something that never comes"), "{error:?}");
        let error = fails("function f() { return f() + 1 } f()");
        assert!(error.message().contains("recursive calls"), "{error:?}");
        let error = fails("const a = {}; a.a = a; return a");
        assert_eq!(error.code(), ErrorCode::ExecutionFailed, "{error:?}");
    }

    #[test]
    fn a_program_can_not_change_how_its_answers_are_made() {
        let told = said(
            "JSON.stringify = () => 'x'; JSON.parse = null; Array.prototype.push = null; Promise = null; return (await tools.math__add({a: 1, b: 1})).data.sum",
        );
        assert_eq!(told["result"], 2);
    }

    #[test]
    fn no_vendor_cuts_what_a_model_reads_of_it() {
        assert!(toolbay_sdk::testing::describe::<run>().description.chars().count() <= 1024);
    }

    #[test]
    fn without_a_host_nothing_is_called() {
        let error = call::<run>(json!({ "code": "return await tools.math__add({})" })).unwrap_err();
        assert!(error.message().contains("not granted"), "{error:?}");
    }
}
