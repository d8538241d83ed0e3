//! Tools whose availability the check decides, and attempts of the check to reach the host.

use guest::host::{config, kv, secrets};
use guest::{text, tool};

guest::tools!(
    tool("always", |_| text("called")),
    tool("with_key", |_| text("called")),
    tool("nosy", |_| text("called")).needs(&[("kv", "tool", true), ("clock", "", true)]),
    tool("loud", |_| text("called")),
    tool("traps", |_| text("called")),
    tool("spins", |_| text("called")),
    tool("sleeps", |_| text("called")),
);

guest::availability!(|tool| match tool {
    "always" => Ok(()),
    "with_key" if config::get("key").is_some() => Ok(()),
    "with_key" => Err("write `key` into the plugin's settings".to_owned()),
    // Granted to calls; a check has no grants.
    "nosy" => {
        let kept = kv::get(kv::Scope::Tool, "key").is_ok() || secrets::get("key").is_ok();
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_secs());
        // The clock of a sealed instance is constant and lies in the past.
        if kept || now > 1_740_000_000 { Ok(()) } else { Err("nothing to see".to_owned()) }
    }
    "loud" => Err(format!("line one\nline two \u{1b}[31m{}", "x".repeat(100_000))),
    "traps" => panic!("the check panicked"),
    "spins" => loop {
        std::hint::black_box(0);
    },
    _ => {
        std::thread::sleep(std::time::Duration::from_secs(3600));
        Ok(())
    }
});
