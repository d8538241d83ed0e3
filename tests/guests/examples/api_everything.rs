//! The server that the official conformance suite expects, as far as a plugin can provide it: tools with every kind of
//! content, prompts, resources and templates. It uses the SDK, as plugins do.

use toolbay_sdk::prelude::*;
use toolbay_sdk::{context, data};

/// One red pixel.
const PICTURE: &[u8] = include_bytes!("../everything/pixel.png");
/// The shortest silence.
const SOUND: &[u8] = include_bytes!("../everything/silence.wav");

/// Returns a text.
#[tool(read_only)]
fn test_simple_text() -> &'static str {
    "This is a simple text response for testing."
}

/// Returns a picture.
#[tool(read_only)]
fn test_image_content() -> Output {
    Output::new("").image(PICTURE.to_vec(), "image/png")
}

/// Returns a sound.
#[tool(read_only)]
fn test_audio_content() -> Output {
    Output::new("").audio(SOUND.to_vec(), "audio/wav")
}

/// Returns a resource.
#[tool(read_only)]
fn test_embedded_resource() -> Output {
    let text = "This is an embedded resource content.";
    Output::new("").embedded("test://embedded-resource", text, Some("text/plain"))
}

/// Returns a text, a picture and a resource.
#[tool(read_only)]
fn test_multiple_content_types() -> Output {
    let text = r#"{"test":"data","value":123}"#;
    let output = Output::new("Multiple content types test:").image(PICTURE.to_vec(), "image/png");
    output.embedded("test://mixed-content-resource", text, Some("application/json"))
}

/// Says how far it is.
#[tool(read_only)]
fn test_tool_with_progress() -> &'static str {
    for percent in [0.0, 50.0, 100.0] {
        context::progress("working", percent);
    }
    "done"
}

/// Fails.
#[tool(read_only)]
fn test_error_handling() -> Result<String> {
    Err(Error::failed("This tool intentionally returns an error for testing"))
}

/// Where somebody lives.
#[data]
struct Address {
    street: Option<String>,
    city: Option<String>,
}

/// Takes an address, to show that a schema arrives unchanged.
#[tool(read_only)]
fn send_letter(
    /// The name.
    name: Option<String>,
    /// The address.
    address: Option<Address>,
) -> String {
    let city = address.and_then(|address| address.city.or(address.street));
    format!("{} in {}", name.unwrap_or_default(), city.unwrap_or_default())
}

plugin! {
    tools: [
        test_simple_text,
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_tool_with_progress,
        test_error_handling,
        send_letter,
    ],
    offers: "everything/offers.json",
}
