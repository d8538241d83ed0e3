use super::*;
use crate::capability::{Capability, CapabilityKind};

const FILE: &str = r#"
    version = 1
    workspace = "space"
    [limits]
    fuel = 5_000
    [plugins.files]
    config = { greeting = "hi" }
    [plugins.files.limits]
    timeout = "2s"
    memory = "8MiB"
    [plugins.files.grant]
    fs_read = ["$workspace/**", "/srv/data"]
    fs_write = ["$workspace/out"]
    reduce = ["web__fetch"]
    [plugins.files.tools.write_file]
    fs_write = ["$workspace/out/tmp"]
    limits = { timeout = "1s" }
"#;

fn policy() -> Policy {
    Policy::parse(FILE, Path::new("/base"), None).unwrap()
}

fn id(text: &str) -> PluginId {
    PluginId::new(text).unwrap()
}

fn tool(text: &str) -> ToolName {
    ToolName::new(text).unwrap()
}

fn wish(kind: &str, target: &str) -> Capability {
    Capability { kind: CapabilityKind::parse(kind), target: target.to_owned(), optional: false, reason: None }
}

#[test]
fn limits_are_layered() {
    let policy = policy();
    let other = policy.limits(&id("other"), None);
    assert_eq!((other.fuel, other.timeout), (Some(5_000), Duration::from_secs(30)));
    let files = policy.limits(&id("files"), Some(&tool("read_file")));
    assert_eq!((files.fuel, files.timeout, files.memory), (Some(5_000), Duration::from_secs(2), 8 << 20));
    assert_eq!(policy.limits(&id("files"), Some(&tool("write_file"))).timeout, Duration::from_secs(1));
}

#[test]
fn a_grant_is_the_intersection() {
    let policy = policy();
    for (plugin, name, wishes, read, write, missing) in [
        ("files", "read_file", vec![wish("fs-read", "**")], vec!["/base/space", "/srv/data"], vec![], 0),
        ("files", "read_file", vec![wish("fs-read", "$workspace/a")], vec!["/base/space/a"], vec![], 0),
        ("files", "read_file", vec![wish("fs-read", "/etc")], vec![], vec![], 1),
        ("files", "read_file", vec![], vec![], vec![], 0),
        ("files", "other", vec![wish("fs-write", "**")], vec![], vec!["/base/space/out"], 0),
        ("files", "write_file", vec![wish("fs-write", "**")], vec![], vec!["/base/space/out/tmp"], 0),
        ("files", "write_file", vec![wish("fs-write", "$workspace/out/else")], vec![], vec![], 1),
        ("unknown", "x", vec![wish("fs-read", "**")], vec![], vec![], 1),
        ("files", "x", vec![wish("net", "https://*"), wish("time-travel", "1985")], vec![], vec![], 2),
    ] {
        let grants = policy.grant(&id(plugin), &tool(name), &wishes, None);
        let paths = |reaches: &[PathRule]| {
            reaches.iter().map(|r| r.folder().display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            (paths(&grants.fs_read), paths(&grants.fs_write)),
            (
                read.iter().map(ToString::to_string).collect(),
                write.iter().map(ToString::to_string).collect::<Vec<_>>()
            ),
            "{plugin} {name} {wishes:?}"
        );
        assert_eq!(grants.missing().count(), missing, "{plugin} {name} {wishes:?}");
        assert_eq!(grants.unavailable().is_some(), missing > 0);
    }
}

#[test]
fn a_refusal_shows_the_lines_that_would_allow_it() {
    let policy = policy();
    let text = policy
        .grant(&id("notes"), &tool("read"), &[wish("fs-read", "$workspace/notes/**")], None)
        .unavailable()
        .unwrap()
        .for_operator();
    assert!(text.contains("[plugins.notes.grant]\nfs_read = [\"$workspace/notes\"]"), "{text}");
    let both = [wish("fs-write", "$workspace/notes/**"), wish("fs-read", "$workspace/notes/**")];
    let both = policy.grant(&id("notes"), &tool("read"), &both, None).unavailable().unwrap();
    let lines = "[plugins.notes.grant]\nfs_write = [\"$workspace/notes\"]\nfs_read = [\"$workspace/notes\"]";
    assert!(both.hint.as_ref().is_some_and(|hint| hint.to_string().ends_with(lines)), "{both:?}");
    assert!(both.text.contains("`fs-write`") && both.text.contains("`fs-read`"), "{both:?}");
    // These lines do allow it.
    let fixed = format!("{FILE}\n[plugins.notes.grant]\nfs_read = [\"$workspace/notes\"]");
    let policy = Policy::parse(&fixed, Path::new("/base"), None).unwrap();
    assert_eq!(
        policy
            .grant(&id("notes"), &tool("read"), &[wish("fs-read", "$workspace/notes/**")], None)
            .unavailable(),
        None
    );
    let narrowed =
        policy.grant(&id("files"), &tool("write_file"), &[wish("fs-write", "$workspace/out/else")], None);
    let lines =
        "[plugins.files.tools.write_file]\nfs_write = [\"$workspace/out/tmp\", \"$workspace/out/else\"]";
    assert!(narrowed.unavailable().unwrap().for_operator().contains(lines), "{narrowed:?}");
    let more = policy
        .grant(&id("files"), &tool("read_file"), &[wish("fs-read", "/etc")], None)
        .unavailable()
        .unwrap()
        .for_operator();
    let lines = "[plugins.files.grant]\nfs_read = [\"$workspace\", \"/srv/data\", \"/etc\"]";
    assert!(more.contains(lines), "present lines are kept: {more}");
}

#[test]
fn the_narrowest_table_decides_how_results_are_delivered() {
    let text = r#"
        version = 1
        toolcall_reason = true
        [results]
        truncate = "head-tail"
        [plugins.web]
        toolcall_reason = false
        [plugins.web.results]
        untrusted = true
        strip_blobs = true
        [plugins.web.tools.fetch]
        toolcall_reason = true
        results = { untrusted = false }
    "#;
    let policy = Policy::parse(text, Path::new("/base"), None).unwrap();
    let of = |plugin: &str, name: &str| policy.tool_results(&id(plugin), &tool(name)).or(policy.results());
    let wide =
        OutputSettings { truncate: Some(crate::output::Truncation::HeadTail), ..OutputSettings::default() };
    assert_eq!((of("other", "fetch"), policy.results()), (wide, wide));
    let search = of("web", "search");
    assert_eq!(
        (search.untrusted, search.strip_blobs, search.truncate),
        (Some(true), Some(true), wide.truncate)
    );
    assert_eq!((of("web", "fetch").untrusted, of("web", "fetch").strip_blobs), (Some(false), Some(true)));
    let asks = |plugin: &str, name: &str| policy.tool_asks_reason(&id(plugin), &tool(name));
    assert_eq!(
        (asks("other", "x"), asks("web", "search"), asks("web", "fetch")),
        (None, Some(false), Some(true))
    );
    assert!(policy.asks_reason());
}

#[test]
fn an_invalid_policy_is_refused_with_its_location() {
    for (text, part) in [
        ("", "version"),
        ("version = 2", "version 1"),
        ("version = 1\n[plugins.x.grant]\nkv = [\"everything\"]", "`kv`"),
        ("version = 1\n[plugins.x.grant]\nclock = \"yes\"", "clock"),
        ("version = 1\n[programs.git]\npath = \"git\"", "absolute"),
        ("version = 1\n[secrets.a]\nfrom = \"b\"\nreveal = true", "env:NAME"),
        ("version = 1\n[secrets.a]\nfrom = \"env:B\"", "`origins` is missing"),
        ("version = 1\n[plugins.x.grant]\nprocess = [\"nope\"]", "[programs.nope]"),
        ("version = 1\n[plugins.x.tools.y]\nsecrets = [\"NOPE\"]", "[plugins.x.tools.y]"),
        ("version = 1\n[secrets.\"a b\"]\nfrom = \"env:B\"\nreveal = true", "[secrets.\"a b\"]"),
        ("version = 1\n[plugins.x.grant]\nsecrets = [\"a\"]", "there is no [secrets.\"a\"]"),
        ("version = 1\n[plugins.x.grant]\nsecrets = [\"*\"]", "NAME/*"),
        ("version = 1\n[plugins.x]\napprove = \"always\"", "approve"),
        ("version = 1\n[plugins.a__b]\n", "__"),
        ("version = 1\n[plugins.x.grant]\nfs_read = [\"notes\"]", "$workspace"),
        ("version = 1\n[plugins.x.grant]\nfs_read = [\"/a/{b,c}\"]", "a line for each"),
        ("version = 1\n[plugins.x.limits]\ntimeout = \"0s\"", "timeout"),
        ("version = 1\n[limits]\ntimeout = 30", "string"),
        ("version = 1\n[limits]\nmemory = \"2GiB\"", "at most"),
        ("version = 1\n[limits]\nfuel = -1", "fuel"),
        ("version = 1\n[host]\nparallel_calls = 0", "parallel_calls"),
        ("version = 1\n[plugins.x.grant]\nreduce = [\"read_file\"]", "PLUGIN__read_file"),
        ("version = 1\n[plugins.x.grant]\nreduce = [\"log = web__fetch\"]", "PLUGIN__log"),
        ("version = 1\n[plugins.x.grant]\nreduce = [\"web__fetch =\"]", "web__fetch = log"),
        ("version = 1\n[plugins.x]\nsha256 = \"abc\"", "64 hex"),
        ("version = 1\n[results]\ntruncate = \"tail\"", "head-tail"),
        ("version = 1\n[plugins.x.results]\ntrusted = true", "untrusted"),
        ("version = 1\n[host]\nsaved_output_age = \"2000m\"", "saved_output_age"),
        (
            "version = 1\n[host]\nspool_age = \"1h\"",
            "unknown key `spool_age`; it is called `saved_output_age` now",
        ),
        (
            "version = 1\n[serve.limits]\nkept_bytes = 1",
            "unknown key `kept_bytes`; it is called `resume_buffer_bytes` now",
        ),
        ("version = 1\nmcpServers = {}", "unknown key `mcpServers`; write a table [mcp.NAME]"),
        ("version = 1\n[plugins.x.tools.y]\napprove = true", "unknown key `approve`; write a [[rule]]"),
    ] {
        let error = Policy::parse(text, Path::new("/base"), None).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
