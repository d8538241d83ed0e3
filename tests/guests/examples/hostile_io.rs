//! Makes extreme WASI calls: long writes, long reads, many files, links out.

use guest::wasip2::cli::stdin::get_stdin;
use guest::wasip2::cli::stdout::get_stdout;
use guest::wasip2::filesystem::preopens::get_directories;
use guest::wasip2::filesystem::types::{DescriptorFlags, OpenFlags, PathFlags};
use guest::wasip2::io::poll::poll;
use guest::wasip2::random::{insecure::get_insecure_random_bytes, random::get_random_bytes};
use guest::{Answer, Args, json, structured, text, tool};

const BOTH: &[(&str, &str, bool)] = &[("fs-read", "**", true), ("fs-write", "**", true)];

guest::tools!(
    tool("write_zeroes", |args| text(format!("{:?}", get_stdout().write_zeroes(args.number("n", u64::MAX))))),
    tool("blocking_zeroes", |args| {
        text(format!("{:?}", get_stdout().blocking_write_zeroes_and_flush(args.number("n", u64::MAX))))
    }),
    tool("empty_writes", |_| loop {
        _ = std::hint::black_box(get_stdout().write(&[]));
    }),
    tool("splice", |_| {
        let out = get_stdout();
        text(format!(
            "{:?}",
            (out.splice(&get_stdin(), u64::MAX), out.blocking_splice(&get_stdin(), u64::MAX))
        ))
    }),
    tool("random", |args| text(get_random_bytes(args.number("n", 1 << 40)).len().to_string())),
    tool("insecure_random", |args| text(
        get_insecure_random_bytes(args.number("n", 1 << 40)).len().to_string()
    )),
    tool("poll_none", |_| text(format!("{:?}", poll(&[])))),
    tool("poll_many", |args| {
        let out = get_stdout();
        let ready = out.subscribe();
        let list = vec![&ready; args.number("n", 1_000_000) as usize];
        text(poll(&list).len().to_string())
    }),
    tool("read_far", read_far).needs(BOTH),
    tool("sparse", sparse).needs(BOTH),
    tool("open_many", open_many).needs(BOTH),
    tool("dotdot", dotdot).needs(BOTH),
);

/// Reads with the largest lengths and offsets from `path`, a file of the first folder.
fn read_far(args: &Args) -> Answer {
    let (dir, _) = get_directories().pop().unwrap();
    let file = dir
        .open_at(PathFlags::empty(), args.text("path", ""), OpenFlags::empty(), DescriptorFlags::READ)
        .unwrap();
    let whole = file.read(u64::MAX, 0).map(|(data, end)| (data.len(), end));
    let far = file.read(u64::MAX, u64::MAX).map(|(data, end)| (data.len(), end));
    let stream = file.read_via_stream(u64::MAX).map(|s| s.blocking_read(u64::MAX).map(|d| d.len()).is_ok());
    structured(
        &json!({ "whole": format!("{whole:?}"), "far": format!("{far:?}"), "stream": format!("{stream:?}") }),
    )
}

/// Creates a sparse file of `size` bytes, and reads it in one call.
fn sparse(args: &Args) -> Answer {
    let file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(args.text("path", ""));
    let grown = file.and_then(|file| file.set_len(args.number("size", 1 << 40)));
    let read = std::fs::File::open(args.text("path", "")).map(|mut file| {
        let mut part = vec![0; 1 << 20];
        std::io::Read::read(&mut file, &mut part).unwrap_or(0)
    });
    structured(&json!({ "grown": format!("{grown:?}"), "read": format!("{read:?}") }))
}

/// Opens `path` as often as allowed, and keeps all handles for `ms`.
fn open_many(args: &Args) -> Answer {
    let mut open = Vec::new();
    while open.len() < args.number("n", 10_000) as usize {
        match std::fs::File::open(args.text("path", "")) {
            Ok(file) => open.push(file),
            Err(_) => break,
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(args.number("ms", 0)));
    text(open.len().to_string())
}

/// Opens `path` in the first folder without `std`'s path handling, and returns the outcome.
fn dotdot(args: &Args) -> Answer {
    let (dir, _) = get_directories().pop().unwrap();
    let flags = if args.flag("write") {
        DescriptorFlags::READ | DescriptorFlags::WRITE
    } else {
        DescriptorFlags::READ
    };
    let open = if args.flag("truncate") { OpenFlags::TRUNCATE } else { OpenFlags::empty() };
    let path = args.text("path", "");
    let opened = dir.open_at(PathFlags::SYMLINK_FOLLOW, path, open, flags).map(|_| ());
    let link = dir.symlink_at(args.text("old", "../.."), args.text("link", "up"));
    structured(&json!({ "open": format!("{opened:?}"), "symlink": format!("{link:?}") }))
}
