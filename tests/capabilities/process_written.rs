//! `process`: a program cannot run files that it wrote, and its number of processes is limited.

use std::fs;

use serde_json::{Value, json};

use super::process_fixture::{POLICY, host, none_left, python, script, with_policy};

/// Writes a program in one of several ways, then runs it.
const WRITTEN: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
program = open("/bin/true", "rb").read()

def run(fd):
    child = os.fork()
    if child == 0:
        try:
            os.execve(fd if how != "path" else "/proc/self/fd/%d" % fd, ["true"], {})
        except OSError:
            os._exit(77)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def memory(flags):
    fd = os.memfd_create("run", flags)
    os.write(fd, program)
    return fd

def unnamed():
    fd = os.open("both", os.O_TMPFILE | os.O_RDWR, 0o755)
    os.write(fd, program)
    again = os.open("/proc/self/fd/%d" % fd, os.O_RDONLY)
    os.close(fd)
    return again

def deleted():
    fd = os.open("both/gone", os.O_CREAT | os.O_WRONLY, 0o755)
    os.write(fd, program)
    os.close(fd)
    fd = os.open("both/gone", os.O_RDONLY)
    os.unlink("both/gone")
    return fd

for how in ["fd", "path"]:
    for name, make in [("memfd", lambda: memory(0)), ("cloexec", lambda: memory(1)), ("exec", lambda: memory(0x10)),
                       ("sealed", lambda: memory(8)), ("unnamed", unnamed), ("deleted", deleted)]:
        try:
            fd = make()
        except OSError as error:
            print(how, name, "not made")
            continue
        print(how, name, run(fd))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_program_writes_is_run() {
    let host = host().await;
    let said = python(&host, "python", WRITTEN).await;
    let lines = said["stdout"].as_str().unwrap();
    assert_eq!(lines.lines().count(), 12, "{said}");
    for line in lines.lines() {
        assert!(line.ends_with(" 77") || line.ends_with("not made"), "{line}: {said}");
    }
    assert!(lines.contains("fd deleted 77") && lines.contains("fd memfd not made"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writable_program_folder_is_refused() {
    let policy = POLICY.replace(
        "execute = [\"$workspace/tools\"]",
        "execute = [\"$workspace/tools\"]\n    write = [\"$workspace/tools/deep/own\"]\n    read = [\"$workspace/tools\"]",
    );
    let policy =
        policy.replace("    read = [\"$workspace/extra\"]\n    write = [\"$workspace/extra/out\"]\n", "");
    let host = with_policy(&policy).await;
    fs::create_dir_all(host.root().join("tools/deep/own")).unwrap();
    script(&host.root().join("tools/deep/other"), "echo another");
    script(&host.root().join("tools/deep/own/theirs"), "echo run");
    let run = async |line: &str| host.ask("p__run", json!({"program": "more", "args": ["-c", line]})).await;
    assert_eq!(run("../tools/tool").await["stdout"], "a tool\n");
    assert_eq!(run("../tools/deep/other").await["stdout"], "another\n");
    for line in ["../tools/deep/own/theirs", "cp ../tools/tool ../tools/deep/own/new; ../tools/deep/own/new"]
    {
        let said = run(line).await;
        assert_ne!(said["code"], 0, "{line}: {said}");
    }
}

/// Without a sandbox, a script of a plugin would run with all rights of the user.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_sandbox_no_script_is_run_that_a_plugin_can_write() {
    let policy = r#"
        [programs.free]
        path = "/usr/bin/python3"
        sandbox = "none"
        guest_env = ["PYTHONPATH"]
        [plugins.p.grant]
        process = ["free *"]
        fs_read = ["$workspace/both"]
        fs_write = ["$workspace/both"]
    "#;
    let host = with_policy(policy).await;
    fs::write(host.root().join("both/tool.py"), "print('ran')").unwrap();
    fs::write(host.root().join("tools/tool.py"), "print('ran')").unwrap();
    let run = async |args: &str, cwd: Option<&str>, env: Value| {
        let args: Vec<&str> = args.split_whitespace().collect();
        host.ask("p__run", json!({"program": "free", "args": args, "cwd": cwd, "env": env})).await
    };
    for (args, cwd, env) in [
        ("both/tool.py", None, json!({})),
        ("-I tools/../both/tool.py", None, json!({})),
        ("tool.py", Some("both"), json!({})),
        ("-m tool", Some("both"), json!({})),
        ("both/later", None, json!({})),
        ("tools/tool.py", None, json!({"PYTHONPATH": "both"})),
    ] {
        let said = run(args, cwd, env).await;
        assert_eq!(said["error"], "denied", "{args:?} {cwd:?}: {said}");
        assert!(said["message"].as_str().unwrap().contains("fs_write"), "{args:?} {cwd:?}: {said}");
    }
    let script = host.root().join("tools/tool.py").display().to_string();
    for (args, cwd) in [("tools/tool.py", None), (script.as_str(), Some("both"))] {
        assert_eq!(run(args, cwd, json!({})).await["stdout"], "ran\n", "{args} {cwd:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_limited_in_processes() {
    let host = with_policy(&POLICY.replace("[programs.echo]", "processes = 20\n    [programs.echo]")).await;
    // The limit stands in the section before, that of `netpython`.
    let fine = "import os, time\nfor _ in range(15):\n if os.fork() == 0: os._exit(0)\nfor _ in range(15): os.wait()\nprint('fine')";
    assert_eq!(python(&host, "netpython", fine).await["stdout"], "fine\n");
    for line in [
        "import os, time\nfor _ in range(400):\n if os.fork() == 0: time.sleep(300)\ntime.sleep(300)",
        "import os, time\nfor _ in range(8): os.fork()\ntime.sleep(300)",
        "import threading, time\nfor _ in range(400): threading.Thread(target=time.sleep, args=(300,)).start()\ntime.sleep(300)",
    ] {
        let said = host
            .ask("p__run", json!({"program": "netpython", "args": ["-I", "-c", line, "crowd-93017"]}))
            .await;
        assert_eq!(said["error"], "other", "{line}: {said}");
        let message = said["message"].as_str().unwrap();
        assert!(
            message.contains("more than 20 processes") && message.contains("[programs.netpython]"),
            "{message}"
        );
        none_left("crowd-93017");
    }
}
