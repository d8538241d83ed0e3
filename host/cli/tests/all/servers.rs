//! Other MCP servers and the configuration of clients.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::{CommandRun, HANGS, HostFolder, ServerProcess, server_section, wait_until};

/// A folder that is also the user's home and the current directory.
struct Home(HostFolder);

impl Home {
    fn new(policy: &str) -> Self {
        Self(HostFolder::new(&format!("workspace = \"work\"\n{policy}")))
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path("").canonicalize().unwrap().join(name)
    }

    fn read(&self, name: &str) -> String {
        self.0.read(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        self.prepare(self.0.command(args))
    }

    /// Gives a program the environment of the home.
    fn prepare(&self, mut command: Command) -> Command {
        command
            .current_dir(self.path(""))
            .env("HOME", self.path(""))
            .env("TOOLBAY_PLUGINS", self.path("plugins"));
        command.env_remove("XDG_CONFIG_HOME").env_remove("CODEX_HOME");
        command
    }

    fn run(&self, args: &[&str]) -> CommandRun {
        CommandRun(self.command(args).output().unwrap())
    }

    fn good(&self, args: &[&str]) -> String {
        self.run(args).says(0, &[]).out()
    }

    /// Starts a server over stdio.
    fn serve(&self) -> ServerProcess {
        let mut serve = self.command(&["serve"]);
        serve.stdin(Stdio::piped());
        ServerProcess::start(serve)
    }
}

/// Whether a process has `mark` among its arguments.
fn runs(mark: &str) -> bool {
    let has = |entry: fs::DirEntry| {
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let dead = stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['Z', 'X']));
        line.split('\0').any(|word| word == mark) && !dead
    };
    fs::read_dir("/proc").unwrap().flatten().any(has)
}

#[test]
fn a_server_is_listed_called_and_checked() {
    let home = Home::new(&[server_section("s", "good"), server_section("bad", "exit")].concat());
    let list = home.good(&["list"]);
    assert!(list.contains("mcp__s__echo\tDoes echo."), "{list}");
    let called = home.run(&["call", "mcp__s__echo", r#"{"text": "hello"}"#]);
    assert!(called.out().contains("hello"), "{}", called.err());
    assert!(!called.err().contains("bad"), "only the server that is needed is started");
    let checked = home.good(&["mcp", "check", "s"]);
    assert!(checked.starts_with("s\tready, protocol 2025-06-18, test"), "{checked}");
    let checked = home.run(&["mcp", "check", "bad", "--json"]);
    assert_eq!(checked.0.status.code(), Some(1));
    let shown: Value = checked.json();
    assert!(shown["server"]["reason"].as_str().unwrap().contains("no license"), "{shown}");
    let status = home.good(&["status"]);
    assert!(status.lines().any(|line| line.starts_with("mcp:s\tready")), "{status}");
    assert!(status.lines().any(|line| line.starts_with("mcp:bad\tfailed: ")), "{status}");
    assert_eq!(home.run(&["mcp", "check", "none"]).0.status.code(), Some(1));
}

#[test]
fn a_server_is_added_to_the_policy_and_removed() {
    let home = Home::new("# mine\n[host]\nparallel_calls = 8 # few\n");
    let before = home.read("toolbay.toml");
    let dry = home.run(&["mcp", "add", "files", "--dry-run", "--", "sh", "-c", "true"]);
    assert!(dry.0.status.success() && dry.err().contains("/sh\", \"-c\", \"true\"]"), "{}", dry.err());
    assert_eq!(home.read("toolbay.toml"), before);
    home.good(&[
        "mcp",
        "add",
        "files",
        "--fs-read",
        "work",
        "--env",
        "TZ=UTC",
        "--env-secret",
        "KEY=env:KEY",
        "--ask",
        "--",
        "sh",
    ]);
    home.good(&[
        "mcp",
        "add",
        "web",
        "https://mcp.example.com/x",
        "--bearer",
        "env:TOKEN",
        "--tool",
        "a*",
        "--header",
        "X-Team: a",
    ]);
    let policy = home.read("toolbay.toml");
    for part in [
        "# mine",
        "# few",
        "[mcp.files]",
        "[secrets.\"mcp/files/KEY\"]",
        "reveal = true",
        "bearer = \"mcp/web/bearer\"",
        "origins = [\"https://mcp.example.com\"]",
        "permission = \"ask\"",
        "tools = [\"a*\"]",
    ] {
        assert!(policy.contains(part), "{part}: {policy}");
    }
    let again = home.run(&["mcp", "add", "web", "https://other.example.com"]);
    assert!(again.0.status.code() == Some(1) && again.err().contains("--replace"), "{}", again.err());
    let listed: Value = serde_json::from_str(&home.good(&["mcp", "list", "--json"])).unwrap();
    assert_eq!(listed[1]["place"], "https://mcp.example.com/x");
    home.good(&["mcp", "remove", "files"]);
    home.good(&["mcp", "remove", "web"]);
    assert_eq!(home.read("toolbay.toml").trim_end(), before.trim_end());
    for bad in [
        &["mcp", "add", "a__b", "https://a.example"][..],
        &["mcp", "add", "a", "ftp://a.example"],
        &["mcp", "add", "a", "--", "no-such-program-anywhere"],
        &["mcp", "add", "a"],
        &["mcp", "add", "a", "https://a.example", "--bearer", "NOBODY"],
    ] {
        assert_eq!(home.run(bad).0.status.code(), Some(2), "{bad:?}");
    }
    assert_eq!(home.run(&["mcp", "remove", "nobody"]).0.status.code(), Some(1));
    assert_eq!(home.read("toolbay.toml").trim_end(), before.trim_end());
}

#[test]
fn child_processes_of_a_server_end_with_a_killed_host() {
    let home = Home::new(&server_section("93001", "stubborn"));
    let mut server = home.serve();
    server.initialize();
    wait_until("it starts", || runs("93001"));
    let start = Instant::now();
    for id in 1.. {
        server.send(id, "tools/call", &json!({"name": "mcp__93001__stay", "arguments": {}}));
        let said = server.result(id).to_string();
        if said.contains("started") {
            break;
        }
        assert!(start.elapsed() < HANGS, "{said}");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    wait_until("it ends", || !runs("93001"));
}

#[test]
fn programs_of_a_plugin_end_with_a_host_that_is_killed_or_aborts() {
    let policy = "[programs.sh]\npath = \"/bin/sh\"\nsandbox = \"best-effort\"\n\
                  [plugins.p.grant]\nprocess = [\"sh *\"]\nfs_read = [\"$workspace\"]\n";
    for (signal, mark) in [("KILL", "93011"), ("ABRT", "93012")] {
        let home = Home(
            HostFolder::new(&format!("workspace = \"work\"\n{policy}"))
                .with_plugin("p", guest_artifacts::CAP_PROCESS),
        );
        fs::create_dir_all(home.path("work")).unwrap();
        let mut server = home.serve();
        server.initialize();
        let line = format!("trap '' TERM HUP; sleep {mark} & sleep {mark}");
        let args = json!({"program": "sh", "args": ["-c", line]});
        server.send(1, "tools/call", &json!({"name": "p__run", "arguments": args}));
        wait_until("it starts", || runs(mark));
        server.signal(signal);
        server.child.wait().unwrap();
        wait_until("it ends", || !runs(mark));
    }
}

/// A client that lists tools once at the start sees those of servers that are still starting.
#[test]
fn the_first_list_of_a_client_has_the_tools_of_other_servers() {
    let home = Home::new("");
    let gate = home.path("gate");
    let text = server_section("s", "good").replace("\"s\"]", &format!("\"s\", {gate:?}]"));
    fs::write(home.path("toolbay.toml"), format!("version = 1\nworkspace = \"work\"\n{text}")).unwrap();
    for is_known in [false, true] {
        // The server starts slowly: first faster than a list waits, then only when a tool is called.
        fs::write(&gate, "").unwrap();
        let mut server = home.serve();
        // Without `initialized`, the server says nothing unasked.
        server.send_initialize();
        assert_eq!(server.message()["id"], 0);
        server.send(1, "tools/list", &json!({}));
        if !is_known {
            fs::remove_file(&gate).unwrap();
        }
        let list = server.message();
        assert_eq!(list["id"], 1);
        let mut listed = list["result"]["tools"].as_array().unwrap().iter();
        assert!(listed.any(|tool| tool["name"] == "mcp__s__echo"), "{is_known}: {list}");
        server.send(2, "tools/call", &json!({"name": "mcp__s__echo", "arguments": {"text": "hello"}}));
        if is_known {
            fs::remove_file(&gate).unwrap();
        }
        let said = server.message();
        assert!(said["id"] == 2 && said.to_string().contains("hello"), "nothing was said before: {said}");
        server.stdin = None;
        assert_eq!(server.exit_code(), 0);
    }
}

#[test]
fn a_source_with_more_tools_than_most_clients_accept_is_reported_once() {
    const TOO_MANY: &str = "more than the 128 that most clients accept";
    let home = Home::new(&[server_section("s", "large"), server_section("few", "good")].concat());
    let operation = json!({"get": {"summary": "Gets one."}});
    let paths: serde_json::Map<_, _> = (0..129).map(|n| (format!("/{n}"), operation.clone())).collect();
    let servers = json!([{"url": "https://api.example"}]);
    let document =
        json!({"openapi": "3.0.3", "info": {"title": "Big"}, "servers": servers, "paths": paths}).to_string();
    fs::write(home.path("big.json"), document).unwrap();
    let added = home.run(&["openapi", "add", "big", "big.json", "--yes"]).err();
    assert!(added.contains("note: [openapi.big] has 129 tools,") && added.contains("`include`"), "{added}");
    assert!(home.run(&["mcp", "check", "s"]).err().contains(TOO_MANY));
    assert!(!home.run(&["mcp", "check", "few"]).err().contains(TOO_MANY));
    for (args, reported) in
        [(&["serve"][..], ["mcp.s", "openapi.big"].as_slice()), (&["serve", "--lazy"], &[])]
    {
        let mut serve = home.command(args);
        serve.stdin(Stdio::piped());
        let mut server = ServerProcess::start(serve);
        server.initialize();
        // A call waits until all plugins and servers are loaded.
        server.send(1, "tools/call", &json!({"name": "mcp__none__tool", "arguments": {}}));
        server.result(1);
        let mut lines: Vec<String> = Vec::new();
        while lines.len() < reported.len() {
            lines.push(server.until_told(TOO_MANY));
        }
        server.stdin = None;
        assert_eq!(server.exit_code(), 0);
        lines.extend(server.stderr.iter().filter(|line| line.contains(TOO_MANY)));
        assert_eq!(lines.len(), reported.len(), "{lines:?}");
        assert!(reported.iter().all(|source| lines.iter().any(|line| line.contains(source))), "{lines:?}");
    }
}

#[test]
fn settings_that_cannot_be_written_are_printed() {
    let home = HostFolder::new("");
    let file = "/proc/nowhere/mcp.json";
    for client in ["cursor", "codex", "zed"] {
        let run = home.run(&["setup", client, "--write", "--file", file]);
        let run = run.says(1, &["put this into", file, "toolbay", "serve"]);
        assert!(!run.out().contains("written to"), "{run:?}");
    }
}

#[test]
fn each_client_is_configured_once_and_keeps_its_settings() {
    let home = Home::new("");
    let binary = Path::new(env!("CARGO_BIN_EXE_toolbay")).canonicalize().unwrap();
    let binary = binary.to_str().unwrap();
    for (client, file, there) in [
        ("claude-desktop", ".config/Claude/claude_desktop_config.json", "{\"globalShortcut\": \"x\"}"),
        ("claude-code", ".mcp.json", "{\n  \"mcpServers\": {\n    \"other\": {\"command\": \"o\"}\n  }\n}\n"),
        ("vscode", ".vscode/mcp.json", "// mine\n{\n  \"servers\": {}, // none\n}\n"),
        ("cursor", ".cursor/mcp.json", "{}"),
        ("zed", ".config/zed/settings.json", "// Zed\n{\n  \"theme\": \"One\",\n}\n"),
        ("codex", ".codex/config.toml", "# mine\nmodel = \"m\"\n"),
    ] {
        let printed = home.good(&["setup", client]);
        assert!(printed.contains(binary) && !home.path(file).exists(), "{client}: {printed}");
        home.good(&["setup", client, "--write"]);
        let fresh = home.read(file);
        assert!(
            fresh.contains(binary) && fresh.contains(home.path("plugins").to_str().unwrap()),
            "{client}: {fresh}"
        );
        fs::write(home.path(file), there).unwrap();
        home.good(&["setup", client, "--write", "--name", "mine"]);
        let merged = home.read(file);
        for line in there
            .lines()
            .map(|line| line.trim_matches(['{', '}', ' ', ',']))
            .filter(|line| !line.is_empty() && !line.contains("servers\": {}"))
        {
            assert!(merged.contains(line), "{client}: `{line}`: {merged}");
        }
        assert!(merged.contains("mine") && merged.contains(binary), "{client}: {merged}");
        assert_eq!(home.read(&format!("{file}.bak")), there, "{client}");
        let again = home.run(&["setup", client, "--write", "--name", "mine"]);
        assert!(again.err().contains("is up to date"), "{client}: {}", again.err());
        assert_eq!(home.read(file), merged);
        assert!(!home.path(&format!("{file}.bak.1")).exists());
        fs::write(home.path(file), "{ broken [").unwrap();
        let refused = home.run(&["setup", client, "--write"]);
        assert_eq!(refused.0.status.code(), Some(2), "{client}");
        assert!(refused.err().contains("nothing was written"), "{client}: {}", refused.err());
        assert_eq!(home.read(file), "{ broken [");
    }
    let asked = ["setup", "cursor", "--profile", "p", "--workspace", "work"];
    // A client does not show why a server fails to start.
    let unknown = home.run(&asked);
    assert_eq!(unknown.0.status.code(), Some(1));
    assert!(unknown.err().contains("there is no profile `p`"), "{}", unknown.err());
    fs::write(home.path("toolbay.toml"), "version = 1\n[profile.p]\n").unwrap();
    let words = home.good(&asked);
    assert!(words.contains("--profile") && words.contains(home.path("work").to_str().unwrap()), "{words}");
}

/// Copies the program without its symbols, which are most of a debug build. A bundle compresses all of the program.
fn stripped_program(to: &Path) -> Command {
    let mut strip = Command::new("strip");
    let status = strip.arg("-o").arg(to).arg(env!("CARGO_BIN_EXE_toolbay")).status();
    assert!(status.expect("`strip` comes with the linker").success());
    Command::new(to)
}

#[test]
fn a_bundle_holds_all_that_is_needed() {
    let home = Home::new("");
    fs::copy(guest_artifacts::PLUGIN_TEXT, home.path("plugins/text.wasm")).unwrap();
    let mut bundle = home.prepare(home.0.prepare(stripped_program(&home.path("program"))));
    let bundle = CommandRun(bundle.args(["setup", "mcpb", "out.mcpb", "--json"]).output().unwrap());
    assert!(bundle.says(0, &[]).json()["bytes"].as_u64().unwrap() > 1000);
    let listed = Command::new("python3")
        .args(["-c", "import zipfile, sys, json; z = zipfile.ZipFile(sys.argv[1]); print(json.dumps({'names': z.namelist(), 'manifest': json.loads(z.read('manifest.json')), 'mode': z.getinfo('server/toolbay').external_attr >> 16, 'bad': z.testzip()}))"])
        .arg(home.path("out.mcpb"))
        .output()
        .unwrap();
    let shown: Value = serde_json::from_slice(&listed.stdout).unwrap_or_else(|_| panic!("{listed:?}"));
    assert_eq!(
        shown["names"],
        json!(["manifest.json", "server/toolbay", "toolbay.toml", "plugins/text.wasm"])
    );
    assert_eq!((shown["mode"].as_u64().unwrap() & 0o777, &shown["bad"]), (0o755, &Value::Null));
    let manifest = &shown["manifest"];
    assert_eq!(manifest["server"]["mcp_config"]["command"], "${__dirname}/server/toolbay");
    assert!(manifest["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "text__word_count"));
    let server = home.good(&[
        "setup",
        "server-json",
        "--name",
        "io.github.me/tools",
        "--url",
        "https://example.com/out.mcpb",
        "--bundle",
        "out.mcpb",
    ]);
    let server: Value = serde_json::from_str(&server).unwrap();
    assert_eq!(server["packages"][0]["fileSha256"].as_str().unwrap().len(), 64);
    assert_eq!(home.run(&["setup", "server-json", "--name", "nothing"]).0.status.code(), Some(2));
}

/// A server that lists the tools of a file.
const LISTED_SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    ask = json.loads(line)
    if "id" not in ask:
        continue
    listed = json.load(open(sys.argv[1]))
    tools = [tool if isinstance(tool, dict) else {"name": tool, "description": "A case.", "inputSchema": {"type": "object"}} for tool in listed]
    known = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}},
             "tools/list": {"tools": tools},
             "tools/call": {"content": [{"type": "text", "text": ask.get("params", {}).get("name")}]}}
    body = {"result": known[ask["method"]]} if ask["method"] in known else {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": ask["id"], **body}), flush=True)
"#;

/// Clients put a prefix before a name, and model APIs refuse more than 64 characters.
#[test]
fn a_long_name_is_warned_about_and_the_operator_can_shorten_it() {
    const LONG: &str = "list_each_overdue_invoice_of_shop";
    const SERVER: &str = "company-wide-invoice-service";
    let home = Home::new("");
    let (script, names) = (home.path("server.py"), home.path("names.json"));
    fs::write(&script, LISTED_SERVER).unwrap();
    let (one, other) = (format!("{LONG}_one"), format!("{LONG}_other"));
    let mut listed = vec![one.as_str(), other.as_str(), "dotted.name", LONG, "short"];
    fs::write(&names, json!(listed).to_string()).unwrap();
    let base = format!(
        "version = 1\nworkspace = \"work\"\n[mcp.{SERVER}]\ncommand = [\"/usr/bin/python3\", {script:?}, {names:?}]\nsandbox = \"none\"\n"
    );
    let write = |more: &str| fs::write(home.path("toolbay.toml"), format!("{base}{more}")).unwrap();
    let tools = |out: &str| {
        let mut names: Vec<String> =
            out.lines().filter_map(|line| Some(line.split('\t').next()?.to_owned())).collect();
        names.retain(|name| name.starts_with("mcp__"));
        names.sort();
        names
    };
    write("");
    let list = home.run(&["list"]).says(0, &[]);
    let before = tools(&list.out());
    let key = format!("[mcp.{SERVER}.tool.\"{LONG}\"]");
    assert!(list.err().contains(&key) && list.err().contains("more than 50"), "{}", list.err());
    assert!(!list.err().contains("tool.\"short\""), "{}", list.err());
    assert!(home.run(&["mcp", "check", SERVER]).err().contains(&key));
    let checked: Value = home.run(&["mcp", "check", SERVER, "--json"]).json();
    assert!(checked["warnings"][0].as_str().unwrap().contains("characters"), "{checked}");
    // Names are the same after a restart and in another order, and long ones stay different.
    listed.reverse();
    fs::write(&names, json!(listed).to_string()).unwrap();
    assert_eq!(tools(&home.good(&["list"])), before);
    assert_eq!(before.iter().collect::<std::collections::BTreeSet<_>>().len(), listed.len());
    assert!(before.iter().all(|name| name.len() <= 64), "{before:?}");

    // The list of a server is known without starting it.
    assert!(!home.run(&["policy", "check"]).out().contains(&key));
    let mut server = home.serve();
    server.initialize();
    wait_until("the list is saved", || {
        home.path("state").join("mcp").join(format!("{SERVER}.json")).exists()
    });
    server.stdin = None;
    assert_eq!(server.exit_code(), 0);
    let checked = home.run(&["policy", "check"]);
    assert!(checked.out().contains(&key) && checked.out().contains("toolbay.toml:3:6"), "{}", checked.out());
    assert!(home.run(&["setup", "claude-code"]).err().contains(&key));

    // Another budget, and a shorter name.
    write("[serve]\nname_budget = 64\n");
    assert!(!home.run(&["list"]).err().contains("characters"));
    write(&format!("[mcp.{SERVER}.tool.{LONG}]\nname = \"overdue\"\n"));
    let renamed = home.run(&["list"]).says(0, &[]);
    assert!(renamed.out().contains(&format!("mcp__{SERVER}__overdue\t")) && !renamed.err().contains(&key));
    let called = home.good(&["call", &format!("mcp__{SERVER}__overdue")]);
    assert!(called.contains(LONG), "the server is asked by its own name: {called}");
    // A tool that was disabled under its other name stays disabled.
    write("");
    home.good(&["disable", &format!("mcp__{SERVER}__short"), "--reason", "no"]);
    write(&format!("[mcp.{SERVER}.tool.short]\nname = \"brief\"\n"));
    assert!(home.good(&["list", "--all"]).contains(&format!("mcp__{SERVER}__brief\tdisabled")));
    // A name that two tools would have is a mistake of the policy.
    write(&format!(
        "[mcp.{SERVER}.tool.short]\nname = \"same\"\n[mcp.{SERVER}.tool.{LONG}]\nname = \"Same\"\n"
    ));
    assert!(home.run(&["policy", "check"]).out().contains("is also the name of the tool"));
}

/// A keyword that cannot be checked costs only itself, and the operator sees it wherever the tool is shown.
#[test]
fn keywords_that_are_not_checked_and_clients_that_refuse_a_schema_are_shown() {
    let home = Home::new("");
    let (script, listed, document) =
        (home.path("server.py"), home.path("listed.json"), home.path("api.json"));
    fs::write(&script, LISTED_SERVER).unwrap();
    let pattern = json!({"type": "string", "pattern": "("});
    let pair = json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]});
    let odd =
        json!({"name": "odd", "inputSchema": {"type": "object", "properties": {"a": pattern, "b": pair}}});
    fs::write(&listed, json!([odd]).to_string()).unwrap();
    let parameter = json!({"name": "a", "in": "query", "schema": pattern});
    let api = json!({"openapi": "3.1.0", "info": {"title": "T", "version": "1"},
        "servers": [{"url": "http://127.0.0.1:46012"}],
        "paths": {"/a": {"get": {"operationId": "find", "parameters": [parameter]}}}});
    fs::write(&document, api.to_string()).unwrap();
    let policy = format!(
        "version = 1\nworkspace = \"work\"\n[mcp.s]\ncommand = [\"/usr/bin/python3\", {script:?}, {listed:?}]\n\
         sandbox = \"none\"\n[openapi.api]\ndocument = {document:?}\nnet_private = [\"127.0.0.1/32\"]\n"
    );
    fs::write(home.path("toolbay.toml"), policy).unwrap();
    let row = |tool: &str| format!("not_checked\t{tool}\tinput /properties/a/pattern\t");
    let (of_server, of_service) = (row("mcp__s__odd"), row("api__find"));
    home.run(&["list", "--all"]).says(0, &[&of_server, &of_service]);
    // The tuple has no form that all clients accept.
    home.run(&["mcp", "check", "s"])
        .says(0, &[&of_server, "`mcp__s__odd` has `prefixItems` at `/properties/b`"]);
    home.run(&["openapi", "check", document.to_str().unwrap()]).says(0, &[&row("check__find")]);
    let checked = home.run(&["mcp", "check", "s", "--json"]).json();
    let keyword = &checked["not_checked"]["mcp__s__odd"]["input"]["keywords"][0];
    assert_eq!(keyword["pointer"], "/properties/a/pattern", "{checked}");
}
