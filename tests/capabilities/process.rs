//! `process`: which commands a grant allows, and within which limits.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Instant;

use integration_tests::{outcome, refusal, structured, value};
use serde_json::{Value, json};
use toolbay::policy::capability::program::ProgramRule;
use toolbay::policy::rule::GrantRule;
use toolbay::{Filter, ToolCall, TurnContext};

use super::process_fixture::{POLICY, SOON, host, script, sh, with_policy};

#[tokio::test(flavor = "multi_thread")]
async fn granted_programs_run() {
    let host = host().await;
    let said =
        host.ask("p__run", json!({"program": "echo", "args": ["hello", "a b", "*", "$HOME", ";ls"]})).await;
    assert_eq!(said["stdout"], "hello a b * $HOME ;ls\n", "no shell: {said}");
    assert_eq!((&said["code"], &said["stderr"], &said["truncated"]), (&json!(0), &json!(""), &json!(false)));
    let said = host.ask("p__run", json!({"program": "cat", "stdin": "from the guest"})).await;
    assert_eq!(said["stdout"], "from the guest");
    let said = host.ask("p__run", json!({"program": "cat", "args": ["in/a.txt"]})).await;
    assert_eq!(said["stdout"], "hello", "{said}");
    let said = sh(&host, "echo out; echo err >&2; exit 42").await;
    assert_eq!(
        (&said["stdout"], &said["stderr"], &said["code"]),
        (&json!("out\n"), &json!("err\n"), &json!(42))
    );
    for signal in ["KILL", "TERM", "SEGV"] {
        let said = sh(&host, &format!("echo first; kill -{signal} $$")).await;
        assert_eq!((&said["code"], &said["stdout"]), (&Value::Null, &json!("first\n")), "{signal}: {said}");
    }
    // Child processes, pipes, here-documents and files of the grant.
    let line = "cat in/a.txt | tr a-z A-Z > out/b; (echo x; echo y) | sort -r | tee -a out/b; mkdir out/d; mv out/b out/d/c";
    assert_eq!(sh(&host, line).await["stdout"], "y\nx\n");
    assert_eq!(fs::read_to_string(host.root().join("out/d/c")).unwrap(), "HELLOy\nx\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn ungranted_programs_are_refused_with_the_policy_line() {
    let host = host().await;
    for (tool, program, args, line) in [
        ("p__run", "echo", json!(["bye"]), r#""echo bye""#),
        ("p__run", "echo", json!(["-n", "hello"]), r#""echo -n hello""#),
        ("p__run", "cat", json!(["-n", "in/a.txt"]), r#""cat -n in/a.txt""#),
        ("p__run", "cat", json!(["--", "in/a.txt"]), r#""cat -- in/a.txt""#),
        ("p__run", "cat", json!([""]), r#""cat \"\"""#),
        ("p__run", "cat", json!(["-A b"]), r#""cat \"-A b\"""#),
        ("p__run", "ls", json!([]), r#""ls""#),
        ("p__run", "/bin/sh", json!(["-c", "id"]), r#""/bin/sh -c id""#),
        ("p__run", "./sh", json!([]), r#""./sh""#),
        ("p__run", "../../bin/sh", json!([]), "bin/sh"),
        ("p__run", "SH", json!([]), r#""SH""#),
        ("p__run", "sh ", json!([]), "sh"),
        ("p__run", "", json!([]), "[plugins.p.grant]"),
        ("p__run", "*", json!([]), "[plugins.p.grant]"),
        ("p__named", "sh", json!(["-c", "id"]), "[plugins.p.grant]"),
        ("p__exact", "echo", json!(["hello", "a", "b"]), "[plugins.p.grant]"),
        ("p__exact", "echo", json!(["hello", "-e"]), "[plugins.p.grant]"),
        ("p__undeclared", "echo", json!(["hello"]), "[plugins.p.grant]"),
    ] {
        let delivered = host.call(tool, json!({"program": program, "args": args})).await;
        let said = structured(&delivered);
        assert_eq!(said["error"], "denied", "{tool} {program} {args}: {said}");
        let message = said["message"].as_str().unwrap();
        assert!(message.contains("process") && !message.contains("[plugins"), "{program} {args}: {message}");
        let hints = integration_tests::hints(&delivered);
        assert!(!hints.is_empty(), "{tool} {program} {args}");
        // A command without a program name gets no policy line.
        let named = tool == "p__run" && ["echo", "cat", "ls"].contains(&program);
        assert!(!named || hints.contains(line), "{tool} {program} {args}: {hints}");
    }
    assert_eq!(
        host.ask("p__named", json!({"program": "echo", "args": ["hello", "x"]})).await["stdout"],
        "hello x\n"
    );
    assert_eq!(host.ask("p__exact", json!({"program": "echo", "args": ["hello", "x"]})).await["code"], 0);
    let zero = host.ask("p__run", json!({"args": ["-c", "id\u{0}x"]})).await;
    assert_eq!(zero["error"], "other", "{zero}");
    let long = host.ask("p__run", json!({"args": ["-c"], "long_arg": 300_000})).await;
    assert_eq!(long["error"], "other", "{long}");
    let long = host.ask("p__run", json!({"args": ["-c"], "long_arg": 200_000})).await;
    assert_eq!(long["error"], "other", "more than the kernel takes: {long}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_without_its_programs_is_not_available() {
    let host =
        with_policy("[programs.echo]\npath = \"/bin/echo\"\n[plugins.p.grant]\nprocess = [\"echo bye *\"]")
            .await;
    for (tool, line) in [("p__must", "process = [\"echo bye *\", \"echo hello *\"]"), ("p__must_any", "")] {
        let delivered = host.call(tool, json!({"program": "echo", "args": ["hello"]})).await;
        if tool == "p__must" {
            assert!(!refusal(&delivered).message.contains("[plugins"), "{delivered:?}");
            assert!(integration_tests::hints(&delivered).contains(line), "{delivered:?}");
        } else {
            assert_eq!(structured(&delivered)["error"], "denied", "it may run something, not this");
        }
    }
    let unknown = "[plugins.p.grant]\nprocess = [\"git status\"]";
    let error =
        toolbay::Policy::parse(&format!("version = 1\n{unknown}"), Path::new("/w"), None).unwrap_err();
    assert!(error.to_string().contains("[programs.git]"), "{error}");
    for (text, part) in [
        ("[programs.x]\npath = \"bin/x\"", "absolute"),
        ("[programs.x]\npath = \"/bin/x\"\nguest_env = [\"A=b\"]", "guest_env"),
        ("[programs.x]\npath = \"/bin/x\"\nsandbox = \"off\"", "best-effort"),
        ("[programs.x]\npath = \"/bin/x\"\nsandbox = \"none\"\nread = [\"/srv\"]", "no effect"),
        ("[programs.x]\npath = \"/bin/x\"\nsandbox = \"none\"\nnetwork = false", "no effect"),
        ("[programs.x]\npath = \"/bin/x\"\nsandbox = \"none\"\nchmod = false", "no effect"),
        ("[programs.x]\npath = \"/bin/x\"\nshell = true", "shell"),
        ("[programs.x]\npath = \"/bin/x\"\nread = [\"etc\"]", "read"),
        ("[programs.\"a b\"]\npath = \"/bin/x\"", "name of a program"),
        ("[plugins.x.grant]\nprocess = [\"*\"]", "[programs.*]"),
        ("[plugins.x.grant]\nprocess = [\"sh -c *\", \"sh \\\"\"]", "not closed"),
    ] {
        let error =
            toolbay::Policy::parse(&format!("version = 1\n{text}"), Path::new("/w"), None).unwrap_err();
        let found = error.findings().iter().any(|finding| finding.message.contains(part));
        assert!(found || error.to_string().contains(part), "{text}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_starts_in_a_folder_that_its_tool_reaches() {
    let host = host().await;
    let root = host.root();
    let pwd = async |program: &str, cwd: Option<String>| {
        host.ask("p__run", json!({"program": program, "args": ["-c", "pwd -P"], "cwd": cwd})).await
    };
    let deep = root.join("in/deep");
    for (program, cwd, at) in [
        ("sh", None, root.clone()),
        ("more", None, root.join("in")),
        ("sh", Some("in".to_owned()), root.join("in")),
        ("sh", Some("in/../in/./deep".to_owned()), deep.clone()),
        ("more", Some("out".to_owned()), root.join("out")),
        ("sh", Some(deep.display().to_string()), deep.clone()),
    ] {
        let said = pwd(program, cwd.clone()).await;
        assert_eq!(said["stdout"], format!("{}\n", at.display()), "{cwd:?}: {said}");
    }
    for (cwd, error) in [
        (".", "denied"),
        ("secret", "denied"),
        ("in/..", "denied"),
        ("in/../secret", "denied"),
        ("in/folder", "denied"),
        ("/", "denied"),
        ("/etc", "denied"),
        ("/proc/self/root", "denied"),
        ("../../../../../../../../..", "denied"),
        ("inner", "denied"),
        ("in/nothing", "other"),
        ("in/a.txt", "other"),
        ("", "other"),
        ("in\u{0}", "other"),
    ] {
        let said = pwd("sh", Some(cwd.to_owned())).await;
        assert_eq!(said["error"], error, "{cwd:?}: {said}");
    }
    let none = host.ask("p__no_files", json!({"args": ["-c", "pwd"], "cwd": "in"})).await;
    assert_eq!(none["error"], "denied", "{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_bounded_and_never_block() {
    let host = host().await;
    let start = Instant::now();
    let flood = sh(&host, "exec yes").await;
    assert_eq!(
        (&flood["code"], &flood["truncated"], &flood["stdout_bytes"]),
        (&Value::Null, &json!(true), &json!(1 << 20))
    );
    assert!(start.elapsed() < SOON);
    let both = sh(&host, "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 7").await;
    assert_eq!(
        (&both["code"], &both["truncated"]),
        (&json!(7), &json!(true)),
        "it comes to its own end: {both:.300}"
    );
    assert_eq!((&both["stdout_bytes"], &both["stderr_bytes"]), (&json!(1 << 20), &json!(1 << 20)));
    let exact = sh(&host, "head -c 1048576 /dev/zero").await;
    assert_eq!((&exact["truncated"], &exact["stdout_bytes"]), (&json!(false), &json!(1 << 20)));
    for (most, line, kept, cut) in [
        (4, "echo abcdef", "abcd", true),
        (0, "echo abc", "", true),
        (9, "echo abc", "abc\n", false),
        (0, ":", "", false),
    ] {
        let said = host.ask("p__run", json!({"args": ["-c", line], "max_output_bytes": most})).await;
        assert_eq!(
            (&said["stdout"], &said["truncated"], &said["code"]),
            (&json!(kept), &json!(cut), &json!(0))
        );
    }
    let said = host.ask("p__run", json!({"args": ["-c", "exit 3"], "stdin_bytes": 1 << 20})).await;
    assert_eq!(said["code"], 3, "input that nobody reads: {said}");
    let said = host
        .ask("p__run", json!({"args": ["-c", "exec <&-; sleep 0.3; exit 4"], "stdin_bytes": 1 << 20}))
        .await;
    assert_eq!(said["code"], 4, "{said}");
    let said = host.ask("p__run", json!({"program": "cat", "stdin_bytes": 1 << 20})).await;
    assert_eq!((&said["stdout_bytes"], &said["truncated"]), (&json!(1 << 20), &json!(false)));
    let said = host.ask("p__run", json!({"program": "cat", "stdin_bytes": (1 << 20) + 1})).await;
    assert_eq!(said["error"], "denied", "{said}");
    assert!(said["message"].as_str().unwrap().contains("the limit `process_bytes` is 1MiB"), "{said}");
    let said = host.ask("p__run", json!({"program": "cat"})).await;
    assert_eq!((&said["code"], &said["stdout"]), (&json!(0), &json!("")), "no input is an empty one");
    // Bytes that are not text.
    let said = sh(&host, "printf '\\377\\000x'").await;
    assert_eq!(said["stdout_bytes"], 3, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_only_so_many() {
    let few = "[host]\nprocesses = 2\nqueue_timeout = \"500ms\"\n[plugins.p.limits]\nprocesses = 3\nfile_bytes = \"1MiB\"";
    let host = with_policy(&format!("{few}\n{POLICY}")).await;
    let many =
        async |count: u64| host.ask("p__runs", json!({"args": ["-c", "exit 5"], "count": count})).await;
    assert_eq!(many(3).await["code"], 5);
    let said = many(4).await;
    assert_eq!(said["error"], "denied", "{said}");
    assert!(said["message"].as_str().unwrap().contains("the limit `processes` is 3"), "{said}");
    assert_eq!(many(3).await["code"], 5, "each call has its own");

    let view = host.host.view(Filter::default());
    let sleep = json!({"args": ["-c", "sleep 2; echo done"]}).to_string();
    let calls = (0..4).map(|n| ToolCall::new(n.to_string(), "p__run", sleep.clone())).collect();
    let results = host.host.call_all(&view, calls, TurnContext::default()).await;
    let said: Vec<Value> = results.iter().map(structured).collect();
    let (done, busy): (Vec<_>, Vec<_>) = said.iter().partition(|said| said["stdout"] == "done\n");
    assert_eq!((done.len(), busy.len()), (2, 2), "{said:?}");
    assert!(
        busy.iter().all(|said| said["message"]
            .as_str()
            .unwrap()
            .contains("limit of concurrent programs (`processes`)")),
        "{busy:?}"
    );
    assert_eq!(sh(&host, "exit 6").await["code"], 6, "the places are free again");
    // A program cannot write larger files than its tool.
    let said = sh(&host, "sleep 1; head -c 3000000 /dev/zero > out/large; exit $?").await;
    assert_ne!(said["code"], 0, "{said}");
    assert!(fs::metadata(host.root().join("out/large")).unwrap().len() <= 1 << 20);
    let eat = json!({"program": "small", "args": ["-c", "sleep 1; python3 -I -c 'x = bytearray(200 << 20)'; exit $?"]});
    assert_ne!(host.ask("p__run", eat).await["code"], 0, "more memory than allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_file_that_the_operator_listed_is_run() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    for folder in ["written", "program", "served", "fine"] {
        fs::create_dir(dir.join(folder)).unwrap();
    }
    for name in [
        "fine/good",
        "served/tool",
        "written/own",
        "program/own",
        "fine/swapped",
        "fine/gone",
        "fine/all",
        "fine/plain",
    ] {
        script(&dir.join(name), "echo ran");
    }
    fs::set_permissions(dir.join("fine/all"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(dir.join("fine/plain"), fs::Permissions::from_mode(0o644)).unwrap();
    symlink(dir.join("written/own"), dir.join("fine/link")).unwrap();
    symlink(dir.join("fine/good"), dir.join("fine/good-link")).unwrap();
    symlink(dir.join("fine"), dir.join("written/back")).unwrap();
    let mut policy = String::new();
    let files = [
        ("good", "fine/good"),
        ("goodlink", "fine/good-link"),
        ("own", "written/own"),
        ("programs", "program/own"),
        ("link", "fine/link"),
        ("through", "written/back/good"),
        ("served", "served/tool"),
        ("swapped", "fine/swapped"),
        ("gone", "fine/gone"),
        ("all", "fine/all"),
        ("plain", "fine/plain"),
        ("folder", "fine"),
        ("never", "fine/never"),
    ];
    for (name, path) in files {
        policy += &format!("[programs.{name}]\npath = \"{}/{path}\"\n", dir.display());
    }
    policy += &format!("write = [\"{}/program\"]\n", dir.display());
    let all: Vec<String> = files.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    policy += &format!("[plugins.p.grant]\nprocess = [{}]\n", all.join(", "));
    // Folders that another plugin can write count as well.
    policy += &format!("[plugins.other.grant]\nfs_write = [\"{}/written\"]\n", dir.display());
    // So do those of another MCP server.
    policy +=
        &format!("[mcp.srv]\ncommand = [\"/usr/bin/true\"]\nfs_write = [\"{}/served\"]\n", dir.display());
    let host = with_policy(&policy).await;
    fs::remove_file(dir.join("fine/swapped")).unwrap();
    symlink("/bin/echo", dir.join("fine/swapped")).unwrap();
    fs::remove_file(dir.join("fine/gone")).unwrap();
    script(&dir.join("fine/never"), "echo too late");
    for (name, error, part) in [
        ("good", None, ""),
        ("goodlink", None, ""),
        ("own", Some("denied"), "[plugins.other.grant] fs_write"),
        ("programs", Some("denied"), "[programs.never] write"),
        ("link", Some("denied"), "[plugins.other.grant] fs_write"),
        ("through", Some("denied"), "[plugins.other.grant] fs_write"),
        ("served", Some("denied"), "[mcp.srv] fs_write"),
        ("swapped", Some("denied"), "another file"),
        ("gone", Some("not-found"), ""),
        ("all", Some("denied"), "every user"),
        ("plain", Some("denied"), "executable"),
        ("folder", Some("denied"), "not a file"),
        ("never", Some("not-found"), ""),
    ] {
        let said = host.ask("p__run", json!({"program": name})).await;
        match error {
            None => assert_eq!(said["stdout"], "ran\n", "{name}: {said}"),
            Some(error) => assert_eq!(said["error"], error, "{name}: {said}"),
        }
        assert!(said.to_string().contains(part), "{name}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_records_program_and_sandbox_but_no_arguments() {
    let host = host().await;
    sh(&host, "echo token-of-a-call").await;
    host.ask("p__run", json!({"program": "echo", "args": ["hello", "token-of-a-call"]})).await;
    host.ask("p__run", json!({"program": "ls"})).await;
    let records = host.audit.take();
    let uses: Vec<_> = records.iter().flat_map(|record| &record.uses).collect();
    let has = |what: &str, allowed: bool| {
        uses.iter().any(|one| (one.key, one.what.as_str(), one.allowed) == ("process", what, allowed))
    };
    assert!(has("sh * [landlock+seccomp]", true), "{uses:?}");
    assert!(has("echo hello * [landlock+seccomp]", true) && has("ls", false), "{uses:?}");
    assert!(!format!("{uses:?}").contains("token-of-a-call"), "{uses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_programs_get_their_own_output() {
    let host = host().await;
    // Handles with high numbers are closed, too.
    let _open: Vec<fs::File> = (0..300).map(|_| fs::File::open("/dev/null").unwrap()).collect();
    let view = host.host.view(Filter::default());
    let call = |n: u32| json!({"args": ["-c", format!("cat; echo {n} >&2; exit {n}")], "stdin": format!("input {n}")});
    let calls = (0..24).map(|n| ToolCall::new(n.to_string(), "p__run", call(n).to_string())).collect();
    for (n, delivered) in host.host.call_all(&view, calls, TurnContext::default()).await.iter().enumerate() {
        assert_eq!(outcome(delivered), "ok", "{:?}", delivered.result);
        let said = structured(delivered);
        assert_eq!(said["stdout"], format!("input {n}"), "{said}");
        assert_eq!((&said["stderr"], &said["code"]), (&json!(format!("{n}\n")), &json!(n)));
        assert!(!value(delivered).is_empty());
    }
}

/// The table of the documentation matches the behaviour.
#[test]
fn the_documented_patterns_hold() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/capabilities/process.md");
    let text = fs::read_to_string(page).unwrap();
    let table = text.split("<!-- patterns -->").nth(1).expect("a table between two marks");
    let workspace = Path::new("/w");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(!rows.is_empty());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let texts =
            |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
        let [rule] = &texts(cells[0])[..] else { panic!("{row}") };
        let rule = ProgramRule::parse(rule, workspace).unwrap();
        for (cell, allowed) in [(cells[1], true), (cells[2], false)] {
            for line in texts(cell) {
                // Each command line of the table is used as a pattern that matches only itself.
                let (program, rest) = line.split_once(' ').unwrap_or((&line, ""));
                let arguments: Vec<String> = words(rest);
                assert_eq!(rule.allows(program, &arguments), allowed, "{row}: {line}");
            }
        }
    }
}

/// Splits at spaces outside double quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted, mut present) = (Vec::new(), false, None::<String>);
    for c in line.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                present.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(present.take()),
            c => present.get_or_insert_default().push(c),
        }
    }
    words.extend(present);
    words
}
