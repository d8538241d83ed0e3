//! Keeps the host busy: a loop of cheap host calls, or one large call.

use guest::host::{config, context, log};
use guest::{Answer, Args, text, tool};

guest::tools!(
    tool("log", |args| repeat(args, || log::write(log::Level::Error, "flood", &[]))),
    tool("progress", |args| repeat(args, || context::progress(
        "flood",
        Some(f32::NAN),
        context::Audience::User
    ))),
    tool("context", |args| repeat(args, || {
        std::hint::black_box((context::call_id(), context::cancelled(), context::attribute("traceparent")));
    })),
    tool("config", |args| repeat(args, || {
        std::hint::black_box(config::get("no such key"));
    })),
    tool("big_log", |args| {
        log::write(log::Level::Info, &"x".repeat(bytes(args)), &[("key".into(), "value".into())]);
        text("logged")
    }),
    tool("many_fields", |args| {
        let fields = vec![(String::from("key"), String::from("value")); args.number("n", 1_000_000) as usize];
        log::write(log::Level::Info, "fields", &fields);
        text("logged")
    }),
    tool("big_progress", |args| {
        context::progress(&"x".repeat(bytes(args)), None, context::Audience::User);
        text("reported")
    }),
    tool("big_attribute", |args| text(format!("{:?}", context::attribute(&"x".repeat(bytes(args)))))),
);

/// `n` times, or without end.
fn repeat(args: &Args, call: fn()) -> Answer {
    let times = args.number("n", u64::MAX);
    for _ in 0..times {
        call();
    }
    text(times.to_string())
}

/// `mib` MiB: 10 by default.
fn bytes(args: &Args) -> usize {
    args.number("mib", 10) as usize * (1 << 20)
}
