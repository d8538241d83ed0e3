//! Files through `std::fs` in preopened folders. Each result is `{"ok": …}` or `{"error": "<kind>: …"}`.

use std::ffi::{CString, c_char, c_int};
use std::{fs, io};

use guest::wasip2::filesystem::preopens::get_directories;
use guest::{Answer, Args, Value, json, structured, tool};

const BOTH: &[(&str, &str, bool)] = &[("fs-read", "**", true), ("fs-write", "**", true)];

guest::tools!(
    tool("preopens", |_| {
        structured(&json!({ "ok": get_directories().into_iter().map(|(_, path)| path).collect::<Vec<_>>() }))
    })
    .needs(BOTH),
    tool("read", |args| said(fs::read(path(args)).map(|data| json!(String::from_utf8_lossy(&data)))))
        .needs(BOTH),
    tool("write", |args| done(fs::write(path(args), args.text("text", "")))).needs(BOTH),
    tool("append", append).needs(BOTH),
    tool("list", |args| said(list(path(args)))).needs(BOTH),
    tool("stat", |args| said(fs::symlink_metadata(path(args)).map(|data| shown(&data)))).needs(BOTH),
    tool("mkdir", |args| done(fs::create_dir(path(args)))).needs(BOTH),
    tool("remove", |args| done(fs::remove_file(path(args)))).needs(BOTH),
    tool("rmdir", |args| done(fs::remove_dir(path(args)))).needs(BOTH),
    tool("rename", |args| done(fs::rename(path(args), to(args)))).needs(BOTH),
    tool("hard_link", |args| done(fs::hard_link(path(args), to(args)))).needs(BOTH),
    tool("symlink", |args| done(make_symlink(path(args), to(args)))).needs(BOTH),
    tool("read_link", |args| said(fs::read_link(path(args)).map(|link| json!(link.to_string_lossy()))))
        .needs(BOTH),
    tool("truncate", |args| done(truncate(args))).needs(BOTH),
    tool("set_times", |args| done(set_times(args))).needs(BOTH),
    // Many operations in one call: the number of successes, and the first error.
    tool("write_many", |args| many(args, |path| fs::write(path, args.text("text", "x")))).needs(BOTH),
    tool("mkdir_many", |args| many(args, fs::create_dir)).needs(BOTH),
    tool("append_many", |args| {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path(args));
        many(args, |_| {
            let data = args.text("text", "x").as_bytes();
            file.as_mut()
                .map_or(Ok(()), |file| io::Write::write_all(file, data).and_then(|()| file.sync_all()))
        })
    })
    .needs(BOTH),
    // Without a declaration there must be no folder.
    tool("undeclared", |args| said(fs::read(path(args)).map(|data| json!(data.len())))),
);

fn path(args: &Args) -> &str {
    args.text("path", "")
}

fn to(args: &Args) -> &str {
    args.text("to", "")
}

fn said(result: io::Result<Value>) -> Answer {
    structured(&match result {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!({ "error": format!("{:?}: {error}", error.kind()) }),
    })
}

fn done(result: io::Result<()>) -> Answer {
    said(result.map(|()| json!(true)))
}

fn many(args: &Args, mut act: impl FnMut(String) -> io::Result<()>) -> Answer {
    let most = args.number("n", 100);
    for n in 0..most {
        if let Err(error) = act(path(args).replace('#', &n.to_string())) {
            return structured(&json!({ "done": n, "error": format!("{:?}: {error}", error.kind()) }));
        }
    }
    structured(&json!({ "done": most }))
}

fn append(args: &Args) -> Answer {
    let file = fs::OpenOptions::new().append(true).create(true).open(path(args));
    done(file.and_then(|mut file| io::Write::write_all(&mut file, args.text("text", "").as_bytes())))
}

fn list(path: &str) -> io::Result<Value> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(json!(names))
}

fn shown(data: &fs::Metadata) -> Value {
    json!({ "file": data.is_file(), "dir": data.is_dir(), "symlink": data.is_symlink(), "size": data.len() })
}

fn truncate(args: &Args) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path(args))?.set_len(args.number("size", 0))
}

fn set_times(args: &Args) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path(args))?;
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
}

/// `std` has this for the target only in nightly.
fn make_symlink(original: &str, link: &str) -> io::Result<()> {
    unsafe extern "C" {
        fn symlink(original: *const c_char, link: *const c_char) -> c_int;
    }
    let (original, link) = (CString::new(original)?, CString::new(link)?);
    match unsafe { symlink(original.as_ptr(), link.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
