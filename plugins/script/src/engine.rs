//! Runs a program to its end: the engine, its jobs, and the pending calls.

use std::path::Path;

use boa_engine::builtins::promise::PromiseState;
use boa_engine::object::ObjectInitializer;
use boa_engine::object::builtins::JsPromise;
use boa_engine::{Context, JsError, JsObject, JsResult, JsString, JsValue, Source, js_string};
use toolbay_sdk::serde_json::{self, Value};

use crate::bridge;

/// The globals of a program. The value of this script is a function of the bridge.
const PRELUDE: &str = include_str!("prelude.js");
/// The longest message of an exception, in characters.
const MAX_MESSAGE: usize = 4000;

/// The result of a program.
#[derive(Debug)]
pub(crate) struct ScriptResult {
    /// Its output and its return value, as text.
    pub(crate) text: String,
    /// The same as JSON in the program's member order, and the number of calls.
    pub(crate) structured: String,
}

/// The reasons for a missing result.
#[derive(Debug)]
pub(crate) enum ScriptError {
    /// The text is not a valid program.
    Syntax(String),
    /// The program threw an exception.
    Thrown { message: String, line: Option<u64>, console: Vec<String> },
}

impl ScriptError {
    fn of_engine(message: impl std::fmt::Display) -> Self {
        Self::Thrown { message: cut(&message.to_string()), line: None, console: Vec::new() }
    }
}

/// Runs the body of an async function.
pub(crate) fn run(code: &str, input: &Value) -> Result<ScriptResult, ScriptError> {
    let mut context = Context::default();
    let program = ScriptProgram::new(&mut context).map_err(ScriptError::of_engine)?;
    // On the first line, so that line numbers match the program. A program that closes the function and opens another
    // only loses its first half.
    let main = format!("'use strict'; (async (tools, input, console) => {{{code}\n}})");
    let source = Source::from_bytes(main.as_bytes()).with_path(Path::new("script.js"));
    let main = context.eval(source).map_err(|error| ScriptError::Syntax(first_line(&error)))?;
    if main.as_callable().is_none() {
        return Err(ScriptError::Syntax("the program is not the body of one function".to_owned()));
    }
    let outcome = program.run(&main, input, &mut context);
    let finished = match outcome {
        Ok(Ok(result)) => program.finished(result, &mut context),
        Ok(Err(thrown)) => return Err(program.thrown(thrown, &mut context)),
        Err(error) => Err(error),
    };
    finished.map_err(|error| program.fell(error, &mut context))
}

/// The functions of the prelude.
struct ScriptProgram(JsObject);

impl ScriptProgram {
    fn new(context: &mut Context) -> JsResult<Self> {
        let host = ObjectInitializer::new(context)
            .function(bridge::invoke(), js_string!("invoke"), 1)
            .function(bridge::tools(), js_string!("tools"), 0)
            .build();
        let prelude = context.eval(Source::from_bytes(PRELUDE))?;
        let made = called(&prelude, &[host.into()], context)?;
        made.as_object().map(Self).ok_or_else(|| JsError::from_opaque(js_string!("no prelude").into()))
    }

    /// The outcome of the program: its result or its exception.
    fn run(
        &self,
        main: &JsValue,
        input: &Value,
        context: &mut Context,
    ) -> JsResult<Result<JsValue, JsValue>> {
        let input = JsString::from(input.to_string()).into();
        let promise = self.call("start", &[main.clone(), input], context)?;
        let promise = JsPromise::from_object(promise.to_object(context)?)?;
        loop {
            context.run_jobs()?;
            match promise.state() {
                PromiseState::Fulfilled(value) => return Ok(Ok(value)),
                PromiseState::Rejected(error) => return Ok(Err(error)),
                PromiseState::Pending => {}
            }
            if !self.call("flush", &[], context)?.to_boolean() {
                let never =
                    "the program waits for something that never comes: only calls of tools take time here";
                return Ok(Err(JsString::from(never).into()));
            }
        }
    }

    fn call(&self, name: &'static str, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
        let function = self.0.get(js_string!(name), context)?;
        called(&function, args, context)
    }

    /// The prelude's conversion of a result.
    fn finished(&self, result: JsValue, context: &mut Context) -> JsResult<ScriptResult> {
        let made = self.call("finished", &[result], context)?.to_object(context)?;
        let text = |key: JsString, context: &mut Context| made.get(key, context)?.to_string(context);
        Ok(ScriptResult {
            text: text(js_string!("text"), context)?.to_std_string_lossy(),
            structured: text(js_string!("structured"), context)?.to_std_string_lossy(),
        })
    }

    /// An exception of the program, with the output before it.
    fn thrown(&self, value: JsValue, context: &mut Context) -> ScriptError {
        let described = self.call("thrown", &[value], context).and_then(|text| text.to_string(context));
        let answer = described.ok().and_then(|text| serde_json::from_str(&text.to_std_string_lossy()).ok());
        let Some(mut answer) = answer else { return ScriptError::of_engine("the program failed") };
        let answer: &mut Value = &mut answer;
        let message = answer["message"].as_str().unwrap_or("the program failed");
        ScriptError::Thrown { message: cut(message), line: number(answer, "line"), console: console(answer) }
    }

    /// An exception of the engine. The program cannot catch the engine's limits.
    fn fell(&self, error: JsError, context: &mut Context) -> ScriptError {
        let message = first_line(&error);
        match error.into_opaque(context) {
            Ok(value) => self.thrown(value, context),
            Err(_) => ScriptError::of_engine(message),
        }
    }
}

fn called(function: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    match function.as_callable() {
        Some(function) => function.call(&JsValue::undefined(), args, context),
        None => Err(JsError::from_opaque(js_string!("not a function").into())),
    }
}

fn console(answer: &mut Value) -> Vec<String> {
    serde_json::from_value(answer["console"].take()).unwrap_or_default()
}

fn number(answer: &Value, key: &str) -> Option<u64> {
    answer.get(key).and_then(Value::as_u64)
}

/// The message of an error, without stack frames of the engine.
fn first_line(error: &JsError) -> String {
    cut(error.to_string().lines().next().unwrap_or_default())
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).collect()
}
