//! Shouts.

use guest::{Answer, Args, text, tool};

guest::tools!(tool("shout", shout));

/// `text`, louder.
fn shout(args: &Args) -> Answer {
    text(args.text("text", "").to_uppercase())
}
