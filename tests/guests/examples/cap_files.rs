//! Files through `toolbay:plugin/files`. A refusal of the host is a normal result: `{"error": "denied", …}`.

use guest::host::context;
use guest::host::files::{self, FileError, FileKind, FileStat};
use guest::{Answer, Args, Value, json, structured, tool};

const READ: &[(&str, &str, bool)] = &[("fs-read", "**", true)];
const WRITE: &[(&str, &str, bool)] = &[("fs-write", "**", true)];
const BOTH: &[(&str, &str, bool)] = &[("fs-read", "**", true), ("fs-write", "**", true)];

guest::tools!(
    tool("read", read).needs(BOTH),
    tool("write", write).needs(BOTH),
    tool("stat", |args| said(files::stat(path(args)).map(|stat| shown(&stat)))).needs(BOTH),
    tool("read_dir", read_dir).needs(BOTH),
    tool("make_dir", |args| said(files::make_dir(path(args)).map(|()| json!({})))).needs(BOTH),
    tool("remove", |args| said(files::remove(path(args)).map(|()| json!({})))).needs(BOTH),
    // Reads, then writes the same text: the guard knows the version.
    tool("append", append).needs(BOTH),
    // Many operations in one call, counted by outcome.
    tool("read_many", |args| many(args, |path, _| files::read(path, 0, None)
        .map(|file| text_of(&file.data))))
    .needs(BOTH),
    tool("write_many", |args| {
        let data = vec![b'x'; args.number("bytes", 1) as usize];
        many(args, |path, n| files::write(&numbered(path, n), &data, None).map(|_| "ok".to_owned()))
    })
    .needs(BOTH),
    tool("make_many", |args| many(args, |path, n| files::make_dir(&numbered(path, n))
        .map(|()| "ok".to_owned())))
    .needs(BOTH),
    // Reads, says so, waits for the file `until`, then writes.
    tool("read_wait_write", read_wait_write).needs(BOTH),
    tool("read_only", read).needs(READ),
    tool("write_only", write).needs(WRITE),
    tool("undeclared", read),
    tool("must_read", read).needs(&[("fs-read", "**", false)]),
    tool("must_write", write).needs(&[("fs-write", "**", false)]),
);

fn path(args: &Args) -> &str {
    args.text("path", "")
}

/// Reads at most `max_bytes` of `path` from `offset`.
fn read(args: &Args) -> Answer {
    let most = args.all().get("max_bytes").and_then(Value::as_u64);
    said(files::read(path(args), args.number("offset", 0), most).map(|file| {
        let mut said = shown(&file.stat);
        said["text"] = json!(String::from_utf8_lossy(&file.data));
        said
    }))
}

/// Writes `text` to `path`, if the file is at `expected_version`.
fn write(args: &Args) -> Answer {
    let expected = args.all().get("expected_version").and_then(Value::as_str);
    said(files::write(path(args), args.text("text", "").as_bytes(), expected).map(|stat| shown(&stat)))
}

fn numbered(path: &str, n: u64) -> String {
    path.replace('#', &n.to_string())
}

fn text_of(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// Runs `act` with `path` `n` times, and counts the outcomes by error.
fn many(args: &Args, act: impl Fn(&str, u64) -> Result<String, FileError>) -> Answer {
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    for n in 0..args.number("n", 100) {
        let said = act(path(args), n).unwrap_or_else(|error| format!("{error:?}"));
        *counts.entry(said).or_default() += 1;
    }
    structured(&json!(counts))
}

fn read_wait_write(args: &Args) -> Answer {
    said(files::read(path(args), 0, None).and_then(|_| {
        context::progress("read", None, context::Audience::User);
        while files::stat(args.text("until", "")).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        files::write(path(args), args.text("text", "").as_bytes(), None).map(|stat| shown(&stat))
    }))
}

fn append(args: &Args) -> Answer {
    said(files::read(path(args), 0, None).and_then(|file| {
        let data = [file.data.as_slice(), args.text("text", "").as_bytes()].concat();
        files::write(path(args), &data, None).map(|stat| shown(&stat))
    }))
}

fn read_dir(args: &Args) -> Answer {
    said(files::read_dir(path(args)).map(|entries| {
        let entries: Vec<Value> =
            entries.iter().map(|entry| json!({ "name": entry.name, "kind": kind(entry.kind) })).collect();
        json!({ "entries": entries })
    }))
}

fn said(result: Result<Value, FileError>) -> Answer {
    structured(&match result {
        Ok(value) => value,
        Err(FileError::Denied(message)) => json!({ "error": "denied", "message": message }),
        Err(FileError::NotFound) => json!({ "error": "not-found" }),
        Err(FileError::Stale) => json!({ "error": "stale" }),
        Err(FileError::TooLarge(size)) => json!({ "error": "too-large", "size": size }),
        Err(FileError::Other(message)) => json!({ "error": "other", "message": message }),
    })
}

fn shown(stat: &FileStat) -> Value {
    json!({ "kind": kind(stat.kind), "size": stat.size, "modified_ms": stat.modified_ms, "version": stat.version })
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Other => "other",
    }
}
