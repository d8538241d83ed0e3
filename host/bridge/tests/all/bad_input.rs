//! What a program does wrong, and what is missing on its machine.

use std::sync::Arc;

use serde_json::{Value, json};
use toolbay_bridge::{Bridge, ErrorKind};

use crate::event_loop::{EventLoop, executable};

#[test]
fn a_wrong_policy_names_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("toolbay.toml");
    let text = "version = 1\n[plugins.text.grant]\nfs_red = [\"a\"]\n";
    std::fs::write(&file, text).unwrap();
    let bridge = Bridge::default();
    let check =
        |policy: Value| bridge.query(&json!({"op": "policy", "policy": policy}).to_string(), "").unwrap_err();
    let error = check(json!({"file": file}));
    assert_eq!((error.kind, error.line), (ErrorKind::Policy, Some(3)), "{error:?}");
    assert_eq!(error.file.as_deref(), file.to_str());
    assert!(error.key.as_deref().unwrap().contains("fs_red"), "{error:?}");
    let error = check(json!({"text": text, "base": folder.path()}));
    assert_eq!((error.line, error.file), (Some(3), None));
    let error = check(json!({"table": {"version": 1, "no_such": 1}, "base": folder.path()}));
    assert_eq!((error.kind, error.line), (ErrorKind::Policy, None));
    let error = check(json!({"file": folder.path().join("none.toml")}));
    assert_eq!((error.kind, error.line), (ErrorKind::Policy, None));
    for policy in [json!({}), json!({"base": "relative", "text": "version = 1"})] {
        assert_eq!(check(policy).kind, ErrorKind::Argument);
    }
    let table = json!({"version": 1, "profile": {"few": {"tools": ["text__word_count"]}}});
    let known = json!({"op": "policy", "policy": {"table": table, "base": folder.path()}});
    assert!(bridge.query(&known.to_string(), "").is_ok());
}

#[test]
fn a_program_that_is_missing_or_another_is_refused_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = EventLoop::new(&Arc::default());
    for (path, names) in [(folder.path().join("none"), "none"), ("/bin/true".into(), "/bin/true")] {
        let failed =
            program.ask(&json!({"op": "open", "executable": path, "policy": {"base": folder.path()}}));
        assert_eq!((&failed["event"], &failed["error"]["kind"]), (&"failed".into(), &"executable".into()));
        let message = failed["error"]["message"].as_str().unwrap();
        assert!(message.contains(names) && message.contains("TOOLBAY_BIN"), "{message}");
    }
}

#[test]
fn a_program_that_was_deleted_is_named_when_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("toolbay");
    std::os::unix::fs::symlink(executable(), &link).unwrap();
    let mut program = EventLoop::new(&Arc::default());
    let host =
        program.open(folder.path(), json!({"executable": link, "cache_dir": folder.path().join("cache")}));
    std::fs::remove_file(&link).unwrap();
    let plugin = std::fs::read(guest_artifacts::PLUGIN_TEXT).unwrap();
    let load = json!({"op": "load_bytes", "host": host, "plugin": "text"}).to_string();
    let _id = program.bridge.submit(program.mailbox, &load, plugin).unwrap();
    let failed = program.expect("failed");
    assert_eq!(failed["error"]["kind"], "executable", "{failed}");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains(link.to_str().unwrap()) && message.contains("TOOLBAY_BIN"), "{message}");
}

#[test]
fn what_cannot_be_opened_is_an_error_of_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut program = EventLoop::new(&Arc::default());
    for (settings, kind) in [
        (json!({"plugins": folder.path().join("none")}), "load"),
        (json!({"state_dir": file}), "state"),
        (json!({"policy": {"text": "no", "base": "/"}}), "policy"),
    ] {
        let mut request = json!({"op": "open", "executable": executable(), "policy": {"base": "/"}});
        request.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let failed = program.ask(&request);
        assert_eq!(failed["error"]["kind"], kind, "{failed}");
    }
}

#[test]
fn a_plugin_that_does_not_load_is_an_error_or_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::write(plugins.join("broken.wasm"), "no component").unwrap();
    let mut program = EventLoop::new(&Arc::default());
    let host = program.open(folder.path(), json!({"plugins": plugins}));
    let problems = program.query(&json!({"op": "problems", "host": host}));
    assert_eq!((problems.as_array().unwrap().len(), &problems[0]["plugin"]), (1, &"broken".into()));
    let request = json!({"op": "load_bytes", "host": host, "plugin": "another"}).to_string();
    program.bridge.submit(program.mailbox, &request, b"no component".to_vec()).unwrap();
    let failed = program.expect("failed");
    assert_eq!(failed["error"]["kind"], "load");
    assert!(failed["error"]["message"].as_str().unwrap().contains("`another`"), "{failed}");
    let file =
        json!({"op": "load_file", "host": host, "plugin": "another", "file": folder.path().join("none")});
    assert_eq!(program.ask(&file)["error"]["kind"], "load");
    assert_eq!(program.query(&json!({"op": "unload", "host": host, "plugin": "another"})), false);
}

#[test]
fn a_wrong_request_is_an_argument_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = EventLoop::new(&Arc::default());
    let host = program.open(folder.path(), json!({}));
    let refused = |request: Value| program.bridge.query(&request.to_string(), "").unwrap_err().kind;
    let tool = |more: Value| {
        let mut tool = json!({"name": "t", "description": "A tool.", "input_schema": {"type": "object"}});
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"op": "register", "host": host, "tools": [tool]})
    };
    for request in [
        json!({"op": "no_such"}),
        json!({"op": "view", "host": host, "filter": {"profile": "none"}}),
        tool(json!({"name": "a b"})),
        tool(json!({"description": ""})),
        tool(json!({"input_schema": {"type": "array"}})),
        tool(json!({"traits": ["no_such"]})),
    ] {
        assert_eq!(refused(request.clone()), ErrorKind::Argument, "{request}");
    }
    drop(program.query(&tool(json!({}))));
    assert_eq!(refused(tool(json!({}))), ErrorKind::Argument, "the name is taken");
    assert_eq!(refused(json!({"op": "problems", "host": 0})), ErrorKind::Closed);
    let call = json!({"op": "call_all", "host": host, "view": 0, "calls": []});
    assert_eq!(program.submit(&call).unwrap_err().kind, ErrorKind::Closed);
    let view = program.query(&json!({"op": "view", "host": host, "filter": {}}));
    let other = program.open(folder.path(), json!({}));
    let call = json!({"op": "call_all", "host": other, "view": view, "calls": []});
    assert_eq!(program.submit(&call).unwrap_err().kind, ErrorKind::Argument, "the view of another host");
    assert_eq!(program.submit(&json!({"op": "close", "host": 0})).unwrap_err().kind, ErrorKind::Closed);
    let tools = json!({"op": "tools", "view": view});
    drop(program.query(&tools));
    drop(program.ask(&json!({"op": "close", "host": host})));
    let gone = program.bridge.query(&tools.to_string(), "").unwrap_err();
    assert_eq!(gone.kind, ErrorKind::Closed, "views end with their host");
}
