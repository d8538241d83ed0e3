//! A plugin of the contract with `tools-async`, whose tool awaits a clock of WASI 0.3.

wit_bindgen::generate!({
    inline: r#"
        package test:asynchronous;

        world asynchronous {
            include toolbay:plugin/tool-plugin-async@0.1.0;
            import wasi:clocks/monotonic-clock@0.3.0;
        }

        package wasi:clocks@0.3.0 {
            interface types {
                type duration = u64;
            }
            interface monotonic-clock {
                use types.{duration};
                wait-for: async func(how-long: duration);
            }
        }
    "#,
    path: "../../wit",
    world: "test:asynchronous/asynchronous",
    features: ["async-tools"],
    generate_all,
});

use exports::toolbay::plugin::tools_async::{Guest, ToolDef, ToolError, ToolOutput};
use toolbay::plugin::context;
use toolbay::plugin::types::{ErrorCode, ToolTraits};
use wasi::clocks::monotonic_clock::wait_for;

struct Plugin;

impl Guest for Plugin {
    fn list_tools() -> Vec<ToolDef> {
        let schema = r#"{"type": "object", "properties": {"milliseconds": {"type": "integer"}}}"#;
        vec![ToolDef {
            name: "wait".to_owned(),
            title: None,
            description: "Wait.".to_owned(),
            input_schema: schema.to_owned(),
            output_schema: None,
            toolset: None,
            tags: Vec::new(),
            traits: ToolTraits::READ_ONLY,
            max_result_chars: None,
            timeout_ms: None,
            capabilities: Vec::new(),
            meta: None,
        }]
    }

    async fn call(name: String, args: String) -> Result<ToolOutput, ToolError> {
        let args: serde_json::Value = serde_json::from_str(&args).expect("the host has checked them");
        let Some(milliseconds) = args["milliseconds"].as_u64() else {
            return Err(ToolError {
                code: ErrorCode::InputInvalid,
                message: format!("{name}: how long?"),
                subject: None,
                cost_usd: None,
            });
        };
        wait_for(milliseconds * 1_000_000).await;
        Ok(ToolOutput {
            value: format!("waited in {}", context::call_id().len().min(1)),
            structured: None,
            content: Vec::new(),
            cost_usd: None,
            meta: None,
        })
    }
}

export!(Plugin);
