//! The first-party plugins as components in a host.

use integration_tests::{TestHost, hints, outcome, refusal, structured, words as value};
use serde_json::json;
use toolbay::core::call::Identity;
use toolbay::core::tool::content::ErrorCode;
use toolbay::{Filter, Session, ToolCall, TurnContext};

#[tokio::test(flavor = "multi_thread")]
async fn text_counts_greps_and_diffs() {
    let host = TestHost::new(&[("text", guest_artifacts::PLUGIN_TEXT)], "").await;
    let count = structured(&host.call("text__word_count", json!({"text": "a b a"})).await);
    assert_eq!(count["words"], 3, "{count}");
    assert!(
        value(&host.call("text__grep", json!({"text": "one\ntwo\nthree", "pattern": "^t"})).await)
            .contains("two")
    );
    assert_eq!(
        refusal(&host.call("text__grep", json!({"text": "x", "pattern": "("})).await).code,
        ErrorCode::InputInvalid
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_keep_to_their_grants_and_guard_writes() {
    let policy = "[plugins.files.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace/out\"]";
    let host = TestHost::new(&[("files", guest_artifacts::PLUGIN_FILES)], policy).await;
    std::fs::create_dir(host.root().join("out")).unwrap();
    host.load("files", guest_artifacts::PLUGIN_FILES).await;
    std::fs::write(host.root().join("notes.txt"), "alpha\nbeta\n").unwrap();
    assert!(value(&host.call("files__read_file", json!({"path": "notes.txt"})).await).contains("beta"));
    assert!(value(&host.call("files__list_dir", json!({"path": "."})).await).contains("notes.txt"));
    assert!(
        value(&host.call("files__search_files", json!({"path": ".", "pattern": "*.txt"})).await)
            .contains("notes.txt")
    );
    assert_eq!(
        outcome(&host.call("files__write_file", json!({"path": "out/new.txt", "content": "x"})).await),
        "ok"
    );
    let outside = host.call("files__write_file", json!({"path": "notes.txt", "content": "x"})).await;
    let error = refusal(&outside);
    assert_eq!(error.code, ErrorCode::NotAvailable);
    assert!(!error.message.contains("[plugins"), "{}", error.message);
    let lines = "[plugins.files.grant]\nfs_write = [\"$workspace/out\", \"$workspace/notes.txt\"]";
    assert!(hints(&outside).ends_with(lines), "{outside:?}");
    let stale = json!({"path": "out/new.txt", "content": "y", "expected_version": "never"});
    assert_eq!(refusal(&host.call("files__write_file", stale).await).code, ErrorCode::StaleWrite);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_changes_only_what_its_session_has_seen() {
    let policy = "[plugins.files.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]";
    let host = TestHost::new(&[("files", guest_artifacts::PLUGIN_FILES)], policy).await;
    let file = host.root().join("notes.txt");
    std::fs::write(&file, "alpha\nbeta\n").unwrap();
    let call = async |tool: &str, args: serde_json::Value| {
        let turn = TurnContext { session: Session::with_name("1").into(), ..TurnContext::default() };
        host.call_in(&format!("files__{tool}"), &args.to_string(), turn).await
    };
    let read = structured(&call("read_file", json!({"path": "notes.txt"})).await);
    std::fs::write(&file, "alpha\nbeta\ngamma\n").unwrap();

    // The patch matches, and the refused call reads the file: neither lets the session overwrite what it has not seen.
    let patch = json!({"path": "notes.txt", "patch": "@@ -2 +2 @@\n-beta\n+BETA\n"});
    let mut expecting = patch.clone();
    expecting["expected_version"] = read["version"].clone();
    for (tool, args) in [
        ("patch_file", &patch),
        ("patch_file", &expecting),
        ("patch_file", &patch),
        ("write_file", &json!({"path": "notes.txt", "content": "mine"})),
    ] {
        assert_eq!(refusal(&call(tool, args.clone()).await).code, ErrorCode::StaleWrite, "{tool} {args}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "alpha\nbeta\ngamma\n");

    let read = structured(&call("read_file", json!({"path": "notes.txt"})).await);
    expecting["expected_version"] = read["version"].clone();
    let done = structured(&call("patch_file", expecting).await);
    assert_eq!(done["hunks"], json!([{"line": 2, "offset": 0}]), "{done}");
    // The session knows what it wrote.
    let blocks = "<<<<<<< SEARCH\nBETA\n=======\nbeta\ndelta\n>>>>>>> REPLACE\n";
    let done = structured(&call("patch_file", json!({"path": "notes.txt", "patch": blocks})).await);
    assert_eq!((&done["added"], &done["removed"]), (&json!(2), &json!(1)), "{done}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "alpha\nbeta\ndelta\ngamma\n");
    let failed = call("patch_file", json!({"path": "notes.txt", "patch": "@@\n-alpha\n@@\n-none\n"})).await;
    assert_eq!(refusal(&failed).code, ErrorCode::InputInvalid);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "alpha\nbeta\ndelta\ngamma\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn hash_hashes_text_and_granted_files() {
    let policy = "[plugins.hash.grant]\nfs_read = [\"$workspace\"]";
    let host = TestHost::new(&[("hash", guest_artifacts::PLUGIN_HASH)], policy).await;
    std::fs::write(host.root().join("abc"), "abc").unwrap();
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert!(
        value(&host.call("hash__hash_text", json!({"text": "abc", "algorithm": "sha256"})).await)
            .contains(sha256)
    );
    assert!(
        value(&host.call("hash__hash_file", json!({"path": "abc", "algorithm": "sha256"})).await)
            .contains(sha256)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn shell_runs_granted_programs_without_a_shell() {
    let policy = r#"
        [programs.echo]
        path = "/bin/echo"
        [programs.cat]
        path = "/bin/cat"
        [plugins.shell.grant]
        process = ["echo <args>", "cat <args>"]
        fs_read = ["$workspace"]
    "#;
    let host = TestHost::new(&[("shell", guest_artifacts::PLUGIN_SHELL)], policy).await;
    std::fs::write(host.root().join("notes.txt"), "alpha\n").unwrap();
    let run = async |args: serde_json::Value| host.call("shell__terminal", args).await;
    assert_eq!(value(&run(json!({"command": "echo 'a  b' c"})).await), "a  b c\n[exit code 0]");
    assert_eq!(value(&run(json!({"command": "cat notes.txt"})).await), "alpha\n[exit code 0]");
    let missing = structured(&run(json!({"program": "cat", "args": ["nothing"]})).await);
    assert_eq!(missing["exit_code"], 1, "{missing}");
    for line in ["cat -n notes.txt", "rm notes.txt"] {
        let denied = run(json!({"command": line})).await;
        assert_eq!(refusal(&denied).code, ErrorCode::NotAvailable);
        assert!(refusal(&denied).message.contains(line), "{}", refusal(&denied).message);
    }
    assert_eq!(refusal(&run(json!({"command": "cat notes.txt | wc"})).await).code, ErrorCode::InputInvalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn git_looks_at_a_repository() {
    let found = std::process::Command::new("sh").args(["-c", "command -v git"]).output().unwrap();
    let git = String::from_utf8(found.stdout).unwrap();
    let git = std::fs::canonicalize(git.trim()).unwrap();
    // The grant from the page of the plugin.
    let page = include_str!("../../docs/reference/plugins/git.md");
    let policy = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let policy = policy.replace("/usr/bin/git", &git.display().to_string());
    let host = TestHost::new(&[("git", guest_artifacts::PLUGIN_GIT)], &policy).await;
    let root = host.root();
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(&git);
        command.current_dir(&root).env_clear().env("HOME", &root).args([
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=a@b",
        ]);
        assert!(command.args(args).output().unwrap().status.success(), "{args:?}");
    };
    run(&["init", "-q", "-b", "main"]);
    std::fs::write(root.join("a b.txt"), "one\n").unwrap();
    run(&["add", "."]);
    run(&["commit", "-q", "-m", "Begin\n\nBecause."]);
    std::fs::write(root.join("a b.txt"), "two\n").unwrap();
    std::fs::write(root.join("new"), "").unwrap();
    // Commands that a hostile repository tries to make Git run.
    run(&["config", "core.fsmonitor", "touch fsmonitor-ran; false"]);
    run(&["config", "diff.external", "touch external-ran"]);
    run(&["config", "core.pager", "touch pager-ran"]);

    let status = structured(&host.call("git__status", json!({})).await);
    assert_eq!((&status["branch"], &status["truncated"]), (&json!("main"), &json!(false)), "{status}");
    let files =
        json!([{"path": "a b.txt", "unstaged": "modified"}, {"path": "new", "unstaged": "untracked"}]);
    assert_eq!(status["files"], files, "{status}");
    let log = structured(&host.call("git__log", json!({"paths": ["a b.txt"]})).await);
    let commit = &log["commits"][0];
    assert_eq!(
        (&commit["subject"], &commit["body"], &commit["author"]),
        (&json!("Begin"), &json!("Because."), &json!("Ann"))
    );
    let diff = host.call("git__diff", json!({})).await;
    assert!(value(&diff).contains("-one\n+two\n"), "{}", value(&diff));
    let stat = host.call("git__diff", json!({"from": "HEAD", "stat": true})).await;
    assert!(value(&stat).contains("1 file changed"), "{}", value(&stat));
    let none = host.call("git__log", json!({"revision": "nowhere"})).await;
    assert_eq!(refusal(&none).code, ErrorCode::ExecutionFailed);
    let option = host.call("git__diff", json!({"from": "--output=x"})).await;
    assert_eq!(refusal(&option).code, ErrorCode::InputInvalid);
    for trace in ["fsmonitor-ran", "external-ran", "pager-ran", "x"] {
        assert!(!root.join(trace).exists(), "{trace}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn todo_keeps_concurrent_additions() {
    let policy = "[plugins.todo.grant]\nkv = [\"plugin\"]\n";
    let host = TestHost::new(&[("todo", guest_artifacts::PLUGIN_TODO)], policy).await;
    assert_eq!(value(&host.call("todo__list", json!({})).await), "Nothing to do.");
    let calls = (0..40).map(|n| {
        ToolCall::new(n.to_string(), "todo__add", json!({"text": format!("thing {n}")}).to_string())
    });
    let view = host.host.view(Filter::default());
    let all = host.host.call_all(&view, calls.collect(), TurnContext::default()).await;
    let mut ids: Vec<u64> = all.iter().map(|one| structured(one)["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=40).collect::<Vec<_>>(), "every number once");
    let listed = structured(&host.call("todo__list", json!({})).await);
    assert_eq!(listed["items"].as_array().unwrap().len(), 40);
    // Two calls change one item concurrently, and both changes are stored.
    let both = vec![
        ToolCall::new("1", "todo__complete", json!({"id": 7}).to_string()),
        ToolCall::new("2", "todo__update", json!({"id": 7, "text": "seven"}).to_string()),
    ];
    host.host.call_all(&view, both, TurnContext::default()).await;
    let page =
        value(&host.call("todo__list", json!({"all": true, "after": 6, "max_items": 1})).await).to_owned();
    assert!(page.starts_with("7 [x] seven\n"), "{page}");
    assert_eq!(outcome(&host.call("todo__remove", json!({"id": 7})).await), "ok");
    assert_eq!(outcome(&host.call("todo__remove", json!({"id": 7})).await), "execution_failed");
    assert_eq!(structured(&host.call("todo__add", json!({"text": "next"})).await)["id"], 41);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_keeps_lasting_notes_and_those_of_a_session_apart() {
    let policy = "[plugins.memory.grant]\nkv = [\"plugin\", \"session\"]\n";
    let host = TestHost::new(&[("memory", guest_artifacts::PLUGIN_MEMORY)], policy).await;
    let call = |session: &'static str, tool: &'static str, args: serde_json::Value| {
        let session = Session::with_name(session).into();
        let host = &host;
        async move {
            let turn = TurnContext { session, ..TurnContext::default() };
            value(&host.call_in(tool, &args.to_string(), turn).await).to_owned()
        }
    };
    call(
        "1",
        "memory__memory_write",
        json!({"name": "style", "text": "Tabs, never spaces", "tags": ["code"]}),
    )
    .await;
    let now = json!({"name": "now", "text": "We count the spaces", "place": "session"});
    call("1", "memory__memory_write", now).await;
    let search = || json!({"query": "spaces"});
    assert_eq!(
        call("1", "memory__session_search", search()).await,
        "now (session): We count the spaces\nstyle (lasting): Tabs, never spaces\n"
    );
    assert_eq!(call("2", "memory__session_search", search()).await, "style (lasting): Tabs, never spaces\n");
    assert_eq!(call("2", "memory__memory_read", json!({"name": "style"})).await, "Tabs, never spaces");
    let without = host.call("memory__session_search", search()).await;
    assert_eq!(value(&without), "style (lasting): Tabs, never spaces\n", "without a session too");
    let none = TestHost::new(&[("memory", guest_artifacts::PLUGIN_MEMORY)], "").await;
    let refused = none.call("memory__memory_read", json!({})).await;
    assert!(hints(&refused).contains("[plugins.memory.grant]"));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_finds_what_the_embedder_recorded_of_the_same_agent() {
    use std::time::{Duration, UNIX_EPOCH};
    use toolbay::ConversationTurn;

    let policy = "[plugins.memory.grant]\nkv = [\"plugin\", \"agent\"]\n[plugins.memory.limits]\nkv_value_bytes = 1024\n";
    let host = TestHost::new(&[("memory", guest_artifacts::PLUGIN_MEMORY)], policy).await;
    let memory = toolbay::PluginId::new("memory").unwrap();
    let context = |agent: &str, session: Session| {
        let agent_id = Some(agent.to_owned()).filter(|id| !id.is_empty());
        let identity = Identity { agent_id, ..Identity::default() };
        TurnContext { identity, session: session.into(), ..TurnContext::default() }
    };
    let turn = |role: &str, ms: u64, text: &str| ConversationTurn {
        role: role.to_owned(),
        text: text.to_owned(),
        time: UNIX_EPOCH + Duration::from_millis(ms),
    };
    for (agent, session, said) in [
        ("a", "1", turn("user", 1000, "The fence needs paint")),
        ("a", "1", turn("assistant", 1000, "Green paint?")),
        ("a", "2", turn("user", 2000, "Nothing about it")),
        ("b", "3", turn("user", 3000, "Our paint is a secret")),
    ] {
        host.host
            .record_turn(&memory, &context(agent, Session::with_name(session)), &said, None)
            .await
            .unwrap();
    }
    let gone = turn("user", 4000, "paint of a moment");
    host.host
        .record_turn(&memory, &context("a", Session::with_name("1")), &gone, Some(Duration::ZERO))
        .await
        .unwrap();
    let search = async |agent: &str| {
        let args = json!({"query": "paint"}).to_string();
        structured(
            &host
                .call_in("memory__conversation_search", &args, context(agent, Session::with_name("9")))
                .await,
        )["hits"]
            .clone()
    };
    let hit =
        |role: &str, snippet: &str| json!({"session": "1", "role": role, "at": 1000, "snippet": snippet});
    assert_eq!(
        search("a").await,
        json!([hit("user", "The fence needs paint"), hit("assistant", "Green paint?")])
    );
    assert_eq!(search("b").await.as_array().unwrap().len(), 1, "another agent's conversations");
    assert_eq!(search("c").await, json!([]));

    for (agent, session, missing) in
        [("", Session::with_name("1"), "agent"), ("a", Session::default(), "session has no id")]
    {
        let refused =
            host.host.record_turn(&memory, &context(agent, session), &turn("user", 1, "x"), None).await;
        assert!(refused.unwrap_err().to_string().contains(missing));
    }
    let long = turn("user", 1, &"x".repeat(2000));
    assert!(
        host.host.record_turn(&memory, &context("a", Session::with_name("1")), &long, None).await.is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kanban_moves_tasks_and_its_list_fits_the_reducer() {
    let policy = "[plugins.kanban.grant]\nkv = [\"plugin\"]\nclock = true\n\
                  [plugins.reducers.grant]\nreduce = [\"kanban__kanban_list\"]\n";
    let plugins =
        [("kanban", guest_artifacts::PLUGIN_KANBAN), ("reducers", guest_artifacts::PLUGIN_REDUCERS)];
    let host = TestHost::new(&plugins, policy).await;
    for n in 1..=10 {
        host.call("kanban__kanban_add", json!({"title": format!("task {n}")})).await;
    }
    let listed = structured(&host.call("kanban__kanban_list", json!({})).await);
    let changed = listed["tasks"][0]["updatedAt"].as_u64().unwrap();
    assert!(changed > 1_767_225_600_000, "the clock runs: {changed}");
    host.call("kanban__kanban_add", json!({"title": "task 11", "status": "doing"})).await;
    assert_eq!(value(&host.call("kanban__kanban_done", json!({"id": "t2"})).await), "t2 is in done: task 2");
    let reduced = host.call("kanban__kanban_list", json!({})).await;
    assert!(
        value(&reduced).starts_with("Counts by status: todo=9, done=1, doing=1. Top 5 open: "),
        "{}",
        value(&reduced)
    );
    let missing = host.call("kanban__kanban_move", json!({"id": "t99", "status": "done"})).await;
    assert_eq!(refusal(&missing).subject.as_deref(), Some("not-found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn code_runs_only_configured_commands() {
    let policy = r#"
        [programs.cat]
        path = "/bin/cat"
        [plugins.code.config]
        lint = ["cat", "lint.txt", "{paths}"]
        run_tests = ["cat", "tests.txt"]
        typecheck = ["rm", "lint.txt"]
        [plugins.code.grant]
        process = ["cat <args>"]
        fs_read = ["$workspace"]
    "#;
    let host = TestHost::new(&[("code", guest_artifacts::PLUGIN_CODE)], policy).await;
    std::fs::write(host.root().join("lint.txt"), "src/a.rs:1:2: warning: unused\n").unwrap();
    std::fs::write(host.root().join("more.txt"), "b.py:9: error: no\n").unwrap();
    std::fs::write(host.root().join("tests.txt"), "test result: ok. 4 passed; 0 failed; 1 ignored\n")
        .unwrap();
    let lint = structured(&host.call("code__lint", json!({"paths": ["more.txt"]})).await);
    assert_eq!(lint["problems"].as_array().unwrap().len(), 2, "{lint}");
    assert_eq!(lint["problems"][1], json!({"path": "b.py", "line": 9, "message": "error: no"}));
    let tested = host.call("code__run_tests", json!({})).await;
    assert!(value(&tested).starts_with("Passed: 4 passed, 0 failed, 1 left out.\n"), "{}", value(&tested));
    let missing = structured(&host.call("code__lint", json!({"paths": ["nothing"]})).await);
    assert_eq!(missing["clean"], false);
    let denied = host.call("code__typecheck", json!({})).await;
    assert_eq!(refusal(&denied).code, ErrorCode::NotAvailable);
    assert!(host.root().join("lint.txt").exists());
    let option = host.call("code__lint", json!({"paths": ["--help"]})).await;
    assert_eq!(refusal(&option).code, ErrorCode::InputInvalid);
    // A tool without a configured command is not offered.
    let bare = TestHost::new(
        &[("code", guest_artifacts::PLUGIN_CODE)],
        "[plugins.code.grant]\nprocess = [\"cat\"]\n[programs.cat]\npath = \"/bin/cat\"",
    )
    .await;
    let refused = bare.call("code__lint", json!({})).await;
    assert!(refusal(&refused).message.contains("config = { lint ="), "{}", refusal(&refused).message);
}
