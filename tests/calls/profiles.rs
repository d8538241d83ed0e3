//! Profiles: a caller with a profile sees and reaches less, also while others call at the same time.

use std::sync::Arc;

use integration_tests::{TestHost, outcome, policy, structured};
use serde_json::json;
use toolbay::policy::Profile;
use toolbay::{CallResult, Filter, ToolCall, TurnContext};

const POLICY: &str = r#"
    [plugins.f.grant]
    fs_read = ["$workspace"]
    fs_write = ["$workspace"]
    [plugins.c.grant]
    kv = ["tool"]
    fs_read = ["$workspace/in"]
    [profile.reader]
    fs_read = ["$workspace/in"]
    fs_write = []
    exclude_tools = ["f__stat"]
    [profile.nothing]
    tools = []
    [profile.locked]
    fs_read = []
    fs_write = []
    [profile.f-only]
    plugins = ["f"]
    [profile.no-toolset]
    toolsets = ["web"]
    [profile.keeps]
    kv = ["tool"]
    tools = ["c__keep_anywhere", "c__read"]
    fs_read = ["$workspace/out"]
"#;

async fn host() -> TestHost {
    let host = TestHost::empty(POLICY);
    for folder in ["in", "out"] {
        std::fs::create_dir(host.root().join(folder)).unwrap();
        std::fs::write(host.root().join(folder).join("a"), folder).unwrap();
    }
    host.load("f", guest_artifacts::CAP_FILES).await;
    host.load("c", guest_artifacts::CAP_CONSENT).await;
    host
}

fn profile(host: &TestHost, name: &str) -> Arc<Profile> {
    Arc::clone(host.host.policy().profile(name).unwrap())
}

async fn call(host: &TestHost, profile: Option<Arc<Profile>>, tool: &str, path: &str) -> CallResult {
    let view = host.host.view(Filter::for_profile(profile));
    // `read_wait_write` waits for `until`, which exists: it is the file that the call reads.
    let args = json!({"path": path, "text": "x", "until": path});
    let calls = vec![ToolCall::new("1", tool, args.to_string())];
    host.host.call_all(&view, calls, TurnContext::default()).await.pop().unwrap()
}

fn names(host: &TestHost, profile: &Arc<Profile>) -> Vec<String> {
    let view = host.host.view(Filter::for_profile(Some(Arc::clone(profile))));
    let of_plugins = view.definitions().filter(|entry| entry.def.source.plugin().is_some());
    of_plugins.map(|entry| entry.def.name.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_tool_reaches_less_under_a_profile() {
    let host = host().await;
    let reader = profile(&host, "reader");
    let ok = |delivered: &CallResult| structured(delivered).get("error").is_none();
    for (profile, tool, path, expect) in [
        (None, "f__read", "in/a", true),
        (None, "f__read", "out/a", true),
        (None, "f__write", "out/new", true),
        (Some(&reader), "f__read", "in/a", true),
        (Some(&reader), "f__read", "out/a", false),
        (Some(&reader), "f__read", "in/../out/a", false),
        (Some(&reader), "f__write", "in/new", false),
        (Some(&reader), "f__write", "out/new", false),
    ] {
        let delivered = call(&host, profile.cloned(), tool, path).await;
        assert_eq!(ok(&delivered), expect, "{tool} {path} under {:?}", profile.map(|p| p.name()));
    }
    // Two profiles call the same plugin at the same time. The profile of each turn decides.
    let calls = (0..20).map(|n| {
        let profile = (n % 2 == 0).then(|| Arc::clone(&reader));
        let host = &host;
        async move { (n, structured(&call(host, profile, "f__read", "out/a").await)) }
    });
    for (n, answer) in futures_all(calls).await {
        assert_eq!(answer.get("error").is_some(), n % 2 == 0, "{n}: {answer}");
    }
    let records = host.audit.take();
    assert!(records.iter().any(|r| r.profile.as_deref() == Some("reader")));
    assert!(records.iter().any(|r| r.profile.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_the_profile_that_caused_it() {
    let host = host().await;
    let (reader, locked) = (profile(&host, "reader"), profile(&host, "locked"));
    for (profile, tool, path, line) in [
        (Some(&reader), "f__write", "in/new", "[profile.reader]\nfs_write = [\"$workspace/in/new\"]"),
        (
            Some(&reader),
            "f__read",
            "out/a",
            "[profile.reader]\nfs_read = [\"$workspace/in\", \"$workspace/out/a\"]",
        ),
        // A capability must be granted to the plugin and to the profile.
        (
            Some(&reader),
            "f__read",
            "/srv/x",
            "[plugins.f.grant]\nfs_read = [\"$workspace\", \"/srv/x\"]\n[profile.reader]\nfs_read = [\"$workspace/in\", \"/srv/x\"]",
        ),
        (Some(&locked), "f__read", "in/a", "[profile.locked]\nfs_read = [\"$workspace/in/a\"]"),
        (Some(&locked), "f__write", "a", "[profile.locked]\nfs_write = [\"$workspace/a\"]"),
        (None, "f__read", "/srv/x", "[plugins.f.grant]\nfs_read = [\"$workspace\", \"/srv/x\"]"),
    ] {
        let hints = integration_tests::hints(&call(&host, profile.cloned(), tool, path).await);
        assert!(hints.contains(line), "{tool} {path}: {hints}");
    }
}

async fn futures_all<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut results = Vec::new();
    let mut running: Vec<_> = all.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        running.retain_mut(|one| match one.as_mut().poll(cx) {
            std::task::Poll::Ready(output) => {
                results.push(output);
                false
            }
            std::task::Poll::Pending => true,
        });
        if running.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    results
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_tool_is_a_callable_tool() {
    let host = host().await;
    let all = host.host.view(Filter::default()).definitions().count();
    for (name, sees) in [
        ("reader", vec!["f__read", "c__keep", "c__read"]),
        ("nothing", vec![]),
        ("f-only", vec!["f__read", "f__stat", "f__must_write"]),
        ("no-toolset", vec![]),
        // The profile grants another folder than the plugin, so the tool reads neither.
        ("keeps", vec!["c__keep_anywhere"]),
    ] {
        let profile = profile(&host, name);
        let seen = names(&host, &profile);
        assert!(seen.len() < all, "{name}");
        for tool in sees {
            assert!(seen.iter().any(|name| name == tool), "{name} does not see {tool}: {seen:?}");
        }
        let catalog = host.host.registry().snapshot();
        for entry in catalog.tools().filter(|entry| entry.def.source.plugin().is_some()) {
            let tool = entry.def.name.as_str();
            let delivered = call(&host, Some(Arc::clone(&profile)), tool, "in/a").await;
            let admitted = outcome(&delivered) != "not_available";
            assert_eq!(admitted, seen.iter().any(|name| name == tool), "{tool} under {name}");
        }
    }
    assert!(
        !names(&host, &profile(&host, "reader"))
            .iter()
            .any(|name| name == "f__stat" || name == "f__must_write")
    );
    assert!(names(&host, &profile(&host, "f-only")).iter().all(|name| name.starts_with("f__")));
    let refused = call(&host, Some(profile(&host, "f-only")), "c__plain", "").await;
    assert_eq!(refused.hints.lines, ["`c__plain` exists, and is not in the profile `f-only`".into()]);
    assert!(refused.result.unwrap_err().to_string().starts_with("Unknown tool: c__plain"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_of_another_policy_gets_nothing() {
    let host = host().await;
    let other = policy("[profile.stranger]\n[profile.reader]\n", &host.root());
    let stranger = Arc::clone(other.profile("stranger").unwrap());
    let delivered = call(&host, Some(Arc::clone(&stranger)), "f__read", "in/a").await;
    assert_eq!(outcome(&delivered), "not_available");
    let text = delivered.result.unwrap_err().to_string();
    assert!(text.contains("the policy has no profile `stranger`"), "{text}");
    assert_eq!(names(&host, &stranger), [""; 0]);
    // A profile of the same name is another filter over the same grants. It does not widen them.
    let same = Arc::clone(other.profile("reader").unwrap());
    let answer = structured(&call(&host, Some(same), "f__read", "out/a").await);
    assert_eq!(answer["error"], "denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_names_what_the_profile_removes() {
    let host = host().await;
    let reader = profile(&host, "reader");
    let without = host.host.explain("f__write", None).unwrap();
    let with = host.host.explain("f__write", Some(&reader)).unwrap();
    assert_eq!(without.capabilities[1].granted, ["$workspace"]);
    assert_eq!(without.capabilities[1].policy_keys, ["[plugins.f.grant] fs_write"]);
    assert_eq!(with.capabilities[1].granted, [""; 0]);
    assert!(
        with.capabilities[1].refused.as_ref().unwrap().to_string().contains("profile `reader`"),
        "{with:?}"
    );
    assert_eq!(with.capabilities[1].proposal, None, "no line of the plugin's would help");
    assert_eq!(with.capabilities[0].granted, ["$workspace/in"]);
    let stat = host.host.explain("f__stat", Some(&reader)).unwrap();
    assert_eq!(stat.unavailable, Some("it is excluded on this surface".into()));
    assert!(host.host.explain("nobody__knows", None).is_none());
    assert_eq!((without.limits.len(), without.host.len()), (32, 17));
}
