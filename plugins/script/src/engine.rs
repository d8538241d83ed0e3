//! Runs a program to its end: the engine, its jobs, and the calls that wait between them.

use std::path::Path;

use boa_engine::builtins::promise::PromiseState;
use boa_engine::object::ObjectInitializer;
use boa_engine::object::builtins::JsPromise;
use boa_engine::{Context, JsError, JsObject, JsResult, JsString, JsValue, Source, js_string};
use toolbay_sdk::serde_json::{self, Value};

use crate::bridge;

/// What a program sees; the value of this text is a function of the bridge.
const PRELUDE: &str = include_str!("prelude.js");
/// Longest message of what a program threw, in characters.
const MAX_MESSAGE: usize = 4000;

/// What a program gave back.
#[derive(Debug)]
pub(crate) struct Finished {
    /// What it wrote, and its result.
    pub(crate) text: String,
    /// The same as JSON, with the members in the program's order, and how many calls it made.
    pub(crate) structured: String,
}

/// Why it gave nothing back.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It is no program.
    Syntax(String),
    /// It threw something.
    Thrown { message: String, line: Option<u64>, console: Vec<String> },
}

impl Failed {
    fn of_engine(message: impl std::fmt::Display) -> Self {
        Self::Thrown { message: cut(&message.to_string()), line: None, console: Vec::new() }
    }
}

/// Runs the body of an async function.
pub(crate) fn run(code: &str, input: &Value) -> Result<Finished, Failed> {
    let mut context = Context::default();
    let program = Program::new(&mut context).map_err(Failed::of_engine)?;
    // On the first line, so that lines are counted as the program has them. One that closes the function and opens another
    // only loses its own first half.
    let main = format!("'use strict'; (async (tools, input, console) => {{{code}\n}})");
    let source = Source::from_bytes(main.as_bytes()).with_path(Path::new("script.js"));
    let main = context.eval(source).map_err(|error| Failed::Syntax(first_line(&error)))?;
    if main.as_callable().is_none() {
        return Err(Failed::Syntax("the program is not the body of one function".to_owned()));
    }
    let outcome = program.run(&main, input, &mut context);
    let finished = match outcome {
        Ok(Ok(result)) => program.finished(result, &mut context),
        Ok(Err(thrown)) => return Err(program.thrown(thrown, &mut context)),
        Err(error) => Err(error),
    };
    finished.map_err(|error| program.fell(error, &mut context))
}

/// The functions that the prelude gives.
struct Program(JsObject);

impl Program {
    fn new(context: &mut Context) -> JsResult<Self> {
        let host = ObjectInitializer::new(context)
            .function(bridge::invoke(), js_string!("invoke"), 1)
            .function(bridge::tools(), js_string!("tools"), 0)
            .build();
        let prelude = context.eval(Source::from_bytes(PRELUDE))?;
        let made = called(&prelude, &[host.into()], context)?;
        made.as_object().map(Self).ok_or_else(|| JsError::from_opaque(js_string!("no prelude").into()))
    }

    /// What the program came to: its result, or what it threw.
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

    /// What the prelude makes of a result.
    fn finished(&self, result: JsValue, context: &mut Context) -> JsResult<Finished> {
        let made = self.call("finished", &[result], context)?.to_object(context)?;
        let text = |key: JsString, context: &mut Context| made.get(key, context)?.to_string(context);
        Ok(Finished {
            text: text(js_string!("text"), context)?.to_std_string_lossy(),
            structured: text(js_string!("structured"), context)?.to_std_string_lossy(),
        })
    }

    /// What a program threw, with what it wrote before.
    fn thrown(&self, value: JsValue, context: &mut Context) -> Failed {
        let told = self.call("thrown", &[value], context).and_then(|text| text.to_string(context));
        let answer = told.ok().and_then(|text| serde_json::from_str(&text.to_std_string_lossy()).ok());
        let Some(mut answer) = answer else { return Failed::of_engine("the program failed") };
        let answer: &mut Value = &mut answer;
        let message = answer["message"].as_str().unwrap_or("the program failed");
        Failed::Thrown { message: cut(message), line: number(answer, "line"), console: console(answer) }
    }

    /// The same for an error that the engine has in hand; one of its own bounds cannot be caught.
    fn fell(&self, error: JsError, context: &mut Context) -> Failed {
        let message = first_line(&error);
        match error.into_opaque(context) {
            Ok(value) => self.thrown(value, context),
            Err(_) => Failed::of_engine(message),
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

/// What an error says, without the frames of the engine below it.
fn first_line(error: &JsError) -> String {
    cut(error.to_string().lines().next().unwrap_or_default())
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).collect()
}
