//! A plugin with `async_tools`, whose tool awaits a clock of WASI 0.3.

wit_bindgen::generate!({
    inline: r#"
        package test:clocks;

        world clocks {
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
    generate_all,
});

use toolbay_sdk::context;
use toolbay_sdk::prelude::*;
use wasi::clocks::monotonic_clock::wait_for;

/// Wait.
#[tool(read_only)]
async fn wait(
    /// For how long.
    milliseconds: Option<u64>,
) -> Result<String> {
    let milliseconds = milliseconds.ok_or_else(|| Error::input("wait: how long?"))?;
    wait_for(milliseconds * 1_000_000).await;
    Ok(format!("waited in {}", context::call_id().len().min(1)))
}

/// Return the text.
#[tool(read_only)]
fn echo(
    /// The text.
    text: String,
) -> String {
    text
}

plugin! { async_tools: [wait, echo] }
