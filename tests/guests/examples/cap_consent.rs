//! Tools with various declarations, for tests of consent, narrowing and records.

use guest::host::kv::{self, Scope};
use guest::host::secrets;
use guest::{Answer, Args, text, tool};

guest::tools!(
    tool("plain", |_| text("plain")),
    tool("keep", keep).needs(&[("kv", "tool", false)]),
    tool("keep_anywhere", keep).needs(&[("kv", "from-profile", true), ("fs-read", "**", true)]),
    tool("read", |_| text("read")).needs(&[("fs-read", "**", false)]),
    // Returns a refusal as the text `what`.
    tool("ask", ask).needs(&[("clock", "", true)]),
);

fn keep(_: &Args) -> Answer {
    text(match kv::get(Scope::Tool, "key") {
        Ok(_) => "kept".to_owned(),
        Err(error) => format!("{error:?}"),
    })
}

fn ask(args: &Args) -> Answer {
    for number in 0..args.number("times", 1) {
        // Refused in any case, because this tool declares no secret.
        _ = secrets::get(&format!("{number}{}", args.text("what", "")));
    }
    text("asked")
}
