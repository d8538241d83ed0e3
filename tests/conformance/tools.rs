//! Native tools of the fixture, for scenarios that plugins cannot serve: they cannot ask the client during a call, send
//! log messages, or change the registry.

use std::time::Duration;

use serde_json::{Value, json};
use toolbay::core::call::CallContext;
use toolbay::core::call::dialog::{Dialog, DialogRequest, DialogRequestKind, LogLevel};
use toolbay::core::registry::ToolEntry;
use toolbay::core::registry::native::{self, DefinitionError, NativeTool};
use toolbay::core::tool::content::{ErrorCode, ToolError, ToolOutput};

/// All native tools except those that change the registry.
pub(crate) fn all() -> Result<Vec<ToolEntry>, DefinitionError> {
    let mut tools = logging()?;
    tools.extend(asking()?);
    tools.extend(rounds()?);
    tools.extend(tasks()?);
    tools.push(schema()?);
    tools.push(header()?);
    Ok(tools)
}

fn tool(name: &str) -> NativeTool {
    native::tool(name).description(format!("The suite's `{name}`.")).input_schema(json!({"type": "object"}))
}

fn client(ctx: &CallContext) -> Result<&dyn Dialog, ToolError> {
    let nobody = || ToolError::new(ErrorCode::NotAvailable, "there is nobody to ask");
    ctx.turn.dialog.as_deref().ok_or_else(nobody)
}

/// A form with one field.
fn form(key: &str, message: &str, field: &str, kind: &str) -> DialogRequest {
    let schema = json!({"type": "object", "properties": {field: {"type": kind}}, "required": [field]});
    DialogRequest::new(key, DialogRequestKind::Elicit, json!({"message": message, "requestedSchema": schema}))
}

fn sample(key: &str, text: &str, tokens: u32) -> DialogRequest {
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    DialogRequest::new(key, DialogRequestKind::Sample, json!({"messages": [message], "maxTokens": tokens}))
}

fn roots(key: &str) -> DialogRequest {
    DialogRequest::new(key, DialogRequestKind::Roots, json!({}))
}

fn said(answers: &[Value]) -> ToolOutput {
    ToolOutput::text(Value::from(answers).to_string())
}

fn logging() -> Result<Vec<ToolEntry>, DefinitionError> {
    let pause = Duration::from_millis(50);
    let three = tool("test_tool_with_logging").run(move |_, ctx| async move {
        let client = client(&ctx)?;
        for line in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
            client.log(LogLevel::Info, Some("everything"), json!(line)).await;
            tokio::time::sleep(pause).await;
        }
        Ok(ToolOutput::text("done"))
    })?;
    let one = tool("test_logging_tool").run(|_, ctx| async move {
        client(&ctx)?.log(LogLevel::Info, None, json!("a line of the log")).await;
        Ok(ToolOutput::text("done"))
    })?;
    Ok(vec![three, one])
}

/// The tools that the suite calls in eras in which the server can send requests to the client.
fn asking() -> Result<Vec<ToolEntry>, DefinitionError> {
    let texts =
        |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    let sampling = tool("test_sampling").input_schema(texts("prompt")).run(|args, ctx| async move {
        let prompt = args["prompt"].as_str().unwrap_or_default();
        let answers = client(&ctx)?.ask(vec![sample("model", prompt, 100)]).await?;
        Ok(ToolOutput::text(format!("LLM response: {}", answers[0]["content"])))
    })?;
    let elicitation =
        tool("test_elicitation").input_schema(texts("message")).run(|args, ctx| async move {
            let field = |text: &str| json!({"type": "string", "description": text});
            let schema = json!({
                "type": "object",
                "properties": {"username": field("User's response"), "email": field("User's email address")},
                "required": ["username", "email"],
            });
            let params = json!({"message": args["message"], "requestedSchema": schema});
            let answers = client(&ctx)?
                .ask(vec![DialogRequest::new("user", DialogRequestKind::Elicit, params)])
                .await?;
            Ok(ToolOutput::text(format!("User response: {}", answers[0])))
        })?;
    let defaults = form_of(
        "test_elicitation_sep1034_defaults",
        json!({
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": true},
        }),
    )?;
    let titled = |first: &str, second: &str, third: &str| {
        json!([
            {"const": "value1", "title": first},
            {"const": "value2", "title": second},
            {"const": "value3", "title": third},
        ])
    };
    let enums = form_of(
        "test_elicitation_sep1330_enums",
        json!({
            "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
            "titledSingle": {"type": "string", "oneOf": titled("First Option", "Second Option", "Third Option")},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled("First Choice", "Second Choice", "Third Choice")}},
        }),
    )?;
    Ok(vec![sampling, elicitation, defaults, enums])
}

fn form_of(name: &str, properties: Value) -> Result<ToolEntry, DefinitionError> {
    tool(name).run(move |_, ctx| {
        let schema = json!({"type": "object", "properties": properties, "required": []});
        async move {
            let params = json!({"message": "Please fill in the form", "requestedSchema": schema});
            let answers = client(&ctx)?
                .ask(vec![DialogRequest::new("form", DialogRequestKind::Elicit, params)])
                .await?;
            let (action, content) = (&answers[0]["action"], &answers[0]["content"]);
            let action = action.as_str().unwrap_or_default();
            Ok(ToolOutput::text(format!("Elicitation completed: action={action}, content={content}")))
        }
    })
}

/// The tools that the suite calls in the era in which answers arrive with the next request.
fn rounds() -> Result<Vec<ToolEntry>, DefinitionError> {
    let one = |name: &str, ask: fn() -> Vec<DialogRequest>, after: &'static str| {
        tool(name).run(move |_, ctx| async move {
            let answers = client(&ctx)?.ask(ask()).await?;
            Ok(ToolOutput::text(format!("{after}{}", Value::from(answers))))
        })
    };
    let confirm = || vec![form("confirm", "Please confirm", "ok", "boolean")];
    let hello = tool("test_input_required_result_elicitation").run(|_, ctx| async move {
        let answers =
            client(&ctx)?.ask(vec![form("user_name", "What is your name?", "name", "string")]).await?;
        let name = answers[0]["content"]["name"].as_str().unwrap_or("stranger");
        Ok(ToolOutput::text(format!("Hello, {name}!")))
    })?;
    let steps = tool("test_input_required_result_multi_round").run(|_, ctx| async move {
        let client = client(&ctx)?;
        let mut answers =
            client.ask(vec![form("step1", "Step 1: What is your name?", "name", "string")]).await?;
        let second = form("step2", "Step 2: What is your favorite color?", "color", "string");
        answers.extend(client.ask(vec![second]).await?);
        Ok(said(&answers))
    })?;
    let capabilities = tool("test_input_required_result_capabilities").run(|_, ctx| async move {
        let client = client(&ctx)?;
        let asks = vec![
            form("user_name", "What is your name?", "name", "string"),
            sample("greeting", "Generate a greeting", 50),
            roots("client_roots"),
        ];
        let asks = asks.into_iter().filter(|ask| client.supports(ask.kind)).collect();
        Ok(said(&client.ask(asks).await?))
    })?;
    Ok(vec![
        hello,
        steps,
        capabilities,
        one("test_input_required_result_request_state", confirm, "state-ok ")?,
        one("test_input_required_result_tampered_state", confirm, "")?,
        one("test_streaming_elicitation", confirm, "")?,
        one("test_input_required_result_list_roots", || vec![roots("client_roots")], "")?,
        one(
            "test_input_required_result_sampling",
            || vec![sample("capital_question", "What is the capital of France?", 100)],
            "",
        )?,
        one("test_missing_capability", || vec![sample("any", "Say something", 10)], "")?,
        one(
            "test_input_required_result_multiple_inputs",
            || {
                vec![
                    form("user_name", "What is your name?", "name", "string"),
                    sample("greeting", "Generate a greeting", 50),
                    roots("client_roots"),
                ]
            },
            "",
        )?,
    ])
}

/// The tools that the suite calls to test tasks. `failing_job` and `test_tool_with_task` need a client with tasks.
fn tasks() -> Result<Vec<ToolEntry>, DefinitionError> {
    let named = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let greet = tool("greet").input_schema(named).run(|args, _| async move {
        Ok(ToolOutput::text(format!("Hello, {}!", args["name"].as_str().unwrap_or_default())))
    })?;
    let slow = |name: &str| tool(name).tag("slow").timeout(Duration::from_secs(120));
    let compute = slow("slow_compute").run(|args, _| async move {
        tokio::time::sleep(Duration::from_secs_f64(args["seconds"].as_f64().unwrap_or_default())).await;
        Ok(ToolOutput::text(format!("computed {}", args["label"])))
    })?;
    let failing = slow("failing_job").tag("task_required").run(|_, _| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Err(ToolError::new(ErrorCode::ExecutionFailed, "it always fails"))
    })?;
    // The suite's client has no roots, which is an error of the protocol.
    let unanswerable = slow("protocol_error_job")
        .run(|_, ctx| async move { Ok(said(&client(&ctx)?.ask(vec![roots("client_roots")]).await?)) })?;
    // Not slow: it asks before it becomes a task, and then runs for longer than `task_after`.
    let escalating = tool("test_tool_with_task").tag("task_required").timeout(Duration::from_secs(120));
    let escalating = escalating.run(|_, ctx| async move {
        let asks = vec![form("user_name", "What is your name?", "name", "string")];
        let answers = client(&ctx)?.ask(asks).await?;
        tokio::time::sleep(crate::TASK_AFTER + Duration::from_secs(1)).await;
        Ok(said(&answers))
    })?;
    let delete = slow("confirm_delete").run(|_, ctx| async move {
        let answers = client(&ctx)?.ask(vec![form("confirm", "Delete it?", "confirm", "boolean")]).await?;
        Ok(said(&answers))
    })?;
    let multi = slow("multi_input").run(|_, ctx| async move {
        let asks = vec![
            form("first", "The first?", "value", "string"),
            form("second", "The second?", "value", "string"),
        ];
        Ok(said(&client(&ctx)?.ask(asks).await?))
    })?;
    Ok(vec![greet, compute, failing, unanswerable, escalating, delete, multi])
}

/// A schema with features of JSON Schema 2020-12, which must arrive unchanged.
fn schema() -> Result<ToolEntry, DefinitionError> {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            },
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    });
    tool("json_schema_2020_12_tool").input_schema(schema).run(|_, _| async { Ok(ToolOutput::text("good")) })
}

/// An argument that is mirrored in a header.
fn header() -> Result<ToolEntry, DefinitionError> {
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    let schema = json!({"type": "object", "properties": {"region": region, "query": {"type": "string"}}});
    tool("test_header")
        .input_schema(schema)
        .run(|args, _| async move { Ok(ToolOutput::text(args.to_string())) })
}
