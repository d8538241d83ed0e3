use super::*;
use crate::permission::{PermissionSubject, SourceLabel};

fn parse(text: &str) -> Result<Policy, String> {
    Policy::parse(&format!("version = 1\n{text}"), Path::new("/w"), None).map_err(|e| e.to_string())
}

fn server(text: &str) -> McpServer {
    let policy = parse(text).unwrap();
    let server = policy.mcp_servers().next().unwrap();
    McpServer::clone(server)
}

#[test]
fn every_key_of_a_section_is_applied() {
    let server = server(
        r#"
        [secrets.TOKEN]
        from = "env:TOKEN"
        reveal = true
        [mcp.gh]
        command = ["/usr/bin/server", "--stdio"]
        args = ["more"]
        env = ["TZ", "LANG=C"]
        env_secrets = { GITHUB_TOKEN = "TOKEN" }
        fs_read = ["$workspace"]
        network = true
        chmod = true
        sandbox = "best-effort"
        tools = ["search_*", "read"]
        exclude = ["search_secret*"]
        timeout = "10s"
        permission = "ask"
        [mcp.gh.tool.read]
        timeout = "1s"
        max_result_chars = 100
        reduce = "log"
    "#,
    );
    let ServerTransport::Stdio(child) = &server.transport else { panic!("{server:?}") };
    assert_eq!(child.args, ["--stdio", "more"]);
    assert_eq!(child.program.sandbox, SandboxMode::BestEffort);
    assert!(child.program.network && child.program.chmod && child.program.read.len() == 1);
    assert_eq!(child.env_secrets["GITHUB_TOKEN"], "TOKEN");
    let taken = ["search_code", "read", "write", "search_secrets"].map(|tool| server.includes_tool(tool));
    assert_eq!(taken, [true, true, false, false]);
    let (read, other) = (server.settings_for("read"), server.settings_for("search_code"));
    assert_eq!((read.timeout, other.timeout), (Some(Duration::from_secs(1)), Some(Duration::from_secs(10))));
    assert_eq!(
        (read.permission, read.max_result_chars, read.reduce.as_deref()),
        (Some(Action::Ask), Some(100), Some("log"))
    );
    assert_eq!(server.permission_rules().len(), 1);
}

#[test]
fn an_invalid_section_is_refused() {
    const COMMAND: &str = "[mcp.a]\ncommand = [\"/bin/a\"]\n";
    const URL: &str = "[mcp.a]\nurl = \"https://a.example\"\n";
    for (text, part) in [
        ("[mcp.a]", "`command` or `url` is missing"),
        ("[mcp.a]\ncommand = []", "empty"),
        ("[mcp.a]\ncommand = [\"npx\"]", "absolute path"),
        ("[mcp.a]\ncommand = [\"/bin/a\"]\nurl = \"https://a\"", "exclude each other"),
        (&format!("{COMMAND}bearer = \"T\""), "`bearer` has no effect"),
        (&format!("{COMMAND}net_private = [\"10.0.0.0/8\"]"), "`net_private` has no effect"),
        (&format!("{URL}fs_read = [\"/srv\"]"), "`fs_read` has no effect"),
        (&format!("{URL}sandbox = \"none\""), "`sandbox` has no effect"),
        (&format!("{URL}chmod = true"), "`chmod` has no effect"),
        (&format!("{COMMAND}sandbox = \"none\"\nchmod = false"), "`chmod` has no effect"),
        (&format!("{COMMAND}sandbox = \"none\"\nfs_read = [\"/srv\"]"), "`fs_read` has no effect"),
        (&format!("{COMMAND}sandbox = \"weak\""), "best-effort"),
        (&format!("{COMMAND}fs_read = [\"/srv/*.txt\"]"), "whole folders"),
        (&format!("{COMMAND}timeout = \"0s\""), "timeout"),
        (&format!("{COMMAND}env = [\"A\"]\nenv_secrets = {{ A = \"T\" }}"), "set twice"),
        (&format!("{COMMAND}env_secrets = {{ A = \"T\" }}"), "there is no [secrets.\"T\"]"),
        (
            &format!(
                "{COMMAND}[secrets.T]\nfrom = \"env:T\"\norigins = [\"https://a\"]\n[mcp.b]\ncommand = [\"/b\"]\nenv_secrets = {{ A = \"T\" }}"
            ),
            "reveal = true",
        ),
        (
            &format!("{COMMAND}env = [\"T\"]\n[secrets.T]\nfrom = \"env:T\"\norigins = [\"https://a\"]"),
            "in the clear",
        ),
        ("[mcp.a]\nurl = \"ftp://a\"", "url"),
        ("[mcp.a]\nurl = \"https://user:pw@a.example\"", "password"),
        (&format!("{URL}bearer = \"T\""), "there is no [secrets.\"T\"]"),
        (
            &format!("{URL}bearer = \"T\"\n[secrets.T]\nfrom = \"env:T\"\norigins = [\"https://b.example\"]"),
            "origins = [\"https://a.example\"]",
        ),
        (
            &format!(
                "{URL}header_secrets = {{ X-Key = \"T\" }}\n[secrets.T]\nfrom = \"env:T\"\norigins = [\"https://a.example\"]"
            ),
            "headers = [\"x-key\"]",
        ),
        (&format!("{URL}headers = {{ Mcp-Session-Id = \"x\" }}"), "the host sets"),
        (&format!("{URL}headers = {{ Host = \"x\" }}"), "headers"),
        (&format!("{URL}headers = {{ X = \"a\\nb\" }}"), "plain ASCII"),
        ("[mcp.a__b]\nurl = \"https://a\"", "name `a__b` contains"),
        (&format!("[mcp.{}]\nurl = \"https://a\"", "x".repeat(33)), "longer than 32"),
        (&format!("{URL}protocol = \"2025-11-25\""), "legacy"),
        (&format!("{URL}[mcp.a.tool.x]\nunknown = 1"), "unknown"),
        (&format!("{COMMAND}[mcp.a.oauth]\nscopes = [\"a\"]"), "`oauth` has no effect"),
        (&format!("{URL}headers = {{ Authorization = \"x\" }}\n[mcp.a.oauth]"), "already set"),
        (&format!("{URL}[mcp.a.oauth]\nclient_id = \"c\""), "needs `issuer`"),
        (&format!("{URL}[mcp.a.oauth]\nclient_secret = \"T\""), "needs `client_id`"),
        (
            &format!("{URL}[mcp.a.oauth]\ntoken_endpoint_auth_method = \"client_secret_basic\""),
            "needs `client_secret`",
        ),
        (&format!("{URL}[mcp.a.oauth]\ntoken_endpoint_auth_method = \"basic\""), "client_secret_post"),
        (
            &format!(
                "{URL}[mcp.a.oauth]\nclient_id = \"c\"\nclient_secret = \"T\"\nissuer = \"https://b.example\""
            ),
            "there is no [secrets.\"T\"]",
        ),
        (&format!("{URL}[mcp.a.oauth]\nissuer = \"file:///x\""), "no URL"),
        (&format!("{URL}[mcp.a.oauth]\nclient_metadata_url = \"http://b.example/c\""), "`https` URL"),
        (&format!("{URL}[mcp.a.oauth]\nscopes = [\"a b\"]"), "no scope"),
        (&format!("{URL}[mcp.a.oauth]\nredirect_port = 0"), "1 to 65535"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    let sound =
        format!("{URL}bearer = \"T\"\n[secrets.T]\nfrom = \"env:T\"\norigins = [\"https://a.example\"]");
    let ServerTransport::Http(endpoint) = server(&sound).transport else { panic!() };
    assert_eq!(endpoint.secrets[0].prefix, "Bearer ");
}

#[test]
fn a_section_only_makes_the_rules_stricter() {
    let policy = parse(
        "[[rule]]\ntool = \"*\"\naction = \"allow\"\n[mcp.a]\nurl = \"https://a\"\n[mcp.a.tool.x]\npermission = \"deny\"\n[mcp.a.tool.y]\npermission = \"allow\"",
    )
    .unwrap();
    let decide = |tool: &str| {
        let name = format!("mcp__a__{tool}");
        let source = SourceLabel { kind: "mcp", name: "a" };
        let tool = PermissionSubject {
            name: &name,
            full_name: &name,
            source,
            tags: &[],
            needs_approval: false,
            unchecked: None,
        };
        policy.permissions().decide(tool, &serde_json::Value::Null).action
    };
    assert_eq!(["x", "y", "z"].map(decide), [Action::Deny, Action::Allow, Action::Allow]);
}
