use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::*;
use crate::capability::path_rule::PathRule;
use crate::capability::program::SandboxMode;
use crate::capability::{Capability, CapabilityKind};

/// A plugin with a tool that reads files.
fn files() -> KnownPlugin {
    let read =
        Capability { kind: CapabilityKind::FsRead, target: "**".to_owned(), optional: false, reason: None };
    KnownPlugin { tools: Some([("read_file".to_owned(), vec![read])].into()), ..KnownPlugin::default() }
}

/// The plugin `files`, the plugin `broken`, which does not load, and these further tags.
fn known(tags: &[&str]) -> KnownNames {
    let plugins = [("files".to_owned(), files()), ("broken".to_owned(), KnownPlugin::default())];
    let tool = KnownTool { kind: "plugin", source: "files".to_owned(), ..KnownTool::default() };
    KnownNames {
        plugins: Some(plugins.into()),
        tools: BTreeMap::from([("files__read_file".to_owned(), tool)]),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..KnownNames::default()
    }
}

/// The lines with warnings, and the sources that were not compared.
fn review(text: &str, known: &KnownNames) -> (Vec<usize>, Vec<String>) {
    let text = format!("version = 1\n{text}");
    let checked = Policy::check(&text, Path::new("/srv"), None);
    let review = checked.policy.unwrap().review(known, &CompleteMachine);
    let lines = review.findings.iter().map(|finding| finding.line).collect();
    (lines, review.not_compared.into_iter().collect())
}

const SERVER: &str = "[mcp.gh]\ncommand = [\"/bin/gh\"]\n";
const SERVICE: &str = "[openapi.pets]\ndocument = \"pets.json\"\n";

#[test]
fn what_cannot_be_read_costs_only_the_comparisons_with_it() {
    let known = known(&["network"]);
    for (text, lines, not_compared) in [
        ("[[rule]]\ntag = \"netwrok\"\naction = \"ask\"", &[3][..], &[][..]),
        ("[[rule]]\ntool = \"files__raed\"\naction = \"ask\"", &[3], &[]),
        ("[[rule]]\ntool = \"broken__x\"\naction = \"ask\"", &[], &["plugin:broken"]),
        ("[[rule]]\ntool = \"bro*\"\naction = \"ask\"", &[], &["plugin:broken"]),
        ("[[rule]]\ntool = \"bra*\"\naction = \"ask\"", &[3], &[]),
        ("[[rule]]\ntool = \"mcp__gh__x\"\naction = \"ask\"", &[], &["mcp:gh"]),
        ("[[rule]]\ntool = \"mcp__hg__x\"\naction = \"ask\"", &[3], &[]),
        ("[[rule]]\ntool = \"mcp__gh__read_resource\"\naction = \"ask\"", &[], &[]),
        ("[[rule]]\ntool = \"pets__x\"\naction = \"ask\"", &[], &["openapi:pets"]),
        ("[[rule]]\ntag = \"pets.dog\"\naction = \"ask\"", &[], &[]),
        ("[[rule]]\nsource = \"openapi:pest\"\naction = \"ask\"", &[3], &[]),
        ("[profile.a]\ntoolsets = [\"mcp:gh\", \"openapi:pets\"]", &[], &[]),
        ("[profile.a]\ntoolsets = [\"mcp:hg\"]", &[3], &[]),
    ] {
        let found = review(&format!("{text}\n{SERVER}{SERVICE}"), &known);
        assert_eq!(found, (lines.to_vec(), not_compared.iter().map(ToString::to_string).collect()), "{text}");
    }
}

#[test]
fn a_mistake_hides_no_warning_and_causes_none() {
    let known = known(&[]);
    for (text, lines) in [
        // The broken lines define nothing.
        ("[limits]\ntimeout =\n[plugins.fils.grant]\nfs_read = [\"$workspace\"]", &[4][..]),
        ("[mcp.gh\ncommand = [\"/bin/gh\"]\n[profile.a]\nmcp_servers = [\"gh\"]", &[]),
        ("[mcp.gh]\ncommand = [\"gh\"]\n[profile.a]\nmcp_servers = [\"gh\"]", &[]),
        ("[mcp.gh]\ntimeout = \"soon\"\n[profile.a]\nmcp_servers = [\"hg\"]", &[5]),
    ] {
        assert_eq!(review(text, &known).0, lines, "{text}");
    }
}

#[test]
fn a_line_that_reaches_more_than_its_grant_is_found() {
    let grant = "[plugins.files.grant]\nfs_read = [\"$workspace/a\", \"$workspace/b\"]\n";
    for (text, lines) in [
        ("[plugins.files.tools.read_file]\nfs_read = [\"$workspace/a/x\"]", &[][..]),
        ("[plugins.files.tools.read_file]\nfs_read = [\"**\", \"!**/.env\"]", &[]),
        ("[plugins.files.tools.read_file]\nfs_read = []", &[]),
        ("[plugins.files.tools.read_file]\nfs_read = [\"$workspace\"]", &[5]),
        ("[plugins.files.tools.read_file]\nfs_read = [\"/etc\"]", &[5]),
        ("[plugins.files.tools.read_file]\nnet = [\"https://a.example\"]", &[5]),
        // A profile may span several grants.
        ("[profile.a]\nfs_read = [\"$workspace\"]", &[]),
        ("[profile.a]\nfs_read = [\"/etc\"]", &[5]),
        ("[profile.a]\nkv = [\"plugin\"]", &[5]),
        ("[profile.a]\nfs_read = []\nclock = false", &[]),
    ] {
        assert_eq!(review(&format!("{grant}{text}"), &known(&[])).0, lines, "{text}");
    }
    let never = "[plugins.files.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n";
    assert_eq!(review(never, &known(&[])).0, [4]);
}

#[test]
fn what_a_source_offers_is_compared() {
    let mut known = known(&[]);
    known.servers.insert("gh".to_owned(), BTreeSet::from(["list".to_owned(), "get".to_owned()]));
    let service = KnownService {
        tools: BTreeSet::from(["listPets".to_owned()]),
        unmatched: vec![("include", "tag:dog".to_owned())],
        sha256: Some("0".repeat(64)),
        ..KnownService::default()
    };
    known.services.insert("pets".to_owned(), service);
    for (text, lines) in [
        (format!("{SERVER}tools = [\"list\", \"g*\"]\nexclude = [\"lst\"]"), vec![5]),
        (format!("{SERVER}[mcp.gh.tool.lst]\ntimeout = \"5s\""), vec![4]),
        (format!("{SERVER}[profile.a]\nmcp_tools = {{ gh = [\"list\", \"lst\"] }}"), vec![5]),
        (format!("{SERVICE}include = [\"GET\", \"tag:dog\"]"), vec![4]),
        (
            format!("{SERVICE}include = [\"GET\", \"tag:dog\"]\n[openapi.pets.tools.listPet]\nserial = true"),
            vec![4, 5],
        ),
        (format!("{SERVICE}include = [\"tag:dog\"]\nsha256 = \"{}\"", "1".repeat(64)), vec![4, 5]),
    ] {
        assert_eq!(review(&text, &known).0, lines, "{text}");
    }
}

#[test]
fn a_correct_line_causes_no_warning() {
    let mut known = known(&["network"]);
    let gh = KnownTool { kind: "mcp", source: "gh".to_owned(), ..KnownTool::default() };
    known.servers.insert("gh".to_owned(), BTreeSet::from(["list".to_owned()]));
    known.tools.insert("mcp__gh__list".to_owned(), gh);
    let reach = Capability {
        kind: CapabilityKind::Net,
        target: "https://*:*".to_owned(),
        optional: false,
        reason: None,
    };
    let web =
        KnownPlugin { tools: Some([("fetch".to_owned(), vec![reach])].into()), ..KnownPlugin::default() };
    known.plugins.as_mut().unwrap().insert("web".to_owned(), web);
    let grant = "[plugins.web.grant]\nnet = [\"GET,HEAD https://*\"]\n";
    for (text, lines) in [
        (format!("{SERVER}[[rule]]\ntool = \"mcp__*\"\naction = \"ask\""), &[][..]),
        (format!("{SERVER}[[rule]]\ntool = \"mcp__g*\"\naction = \"ask\""), &[]),
        (format!("{SERVER}[[rule]]\ntool = \"mcp__h*\"\naction = \"ask\""), &[5]),
        (format!("{SERVER}[[rule]]\ntool = \"mcp__gh__l*\"\naction = \"ask\""), &[]),
        (format!("{grant}[plugins.web.tools.fetch]\nnet = [\"GET https://docs.example.com\"]"), &[]),
        (format!("{grant}[plugins.web.tools.fetch]\nnet = [\"https://docs.example.com\"]"), &[]),
        (format!("{grant}[plugins.web.tools.fetch]\nnet = [\"POST https://docs.example.com\"]"), &[5]),
        (format!("{grant}[profile.r]\nnet = [\"https://*.example.com\"]"), &[]),
        (format!("{grant}[profile.r]\nnet = [\"http://a.example.com\"]"), &[5]),
    ] {
        assert_eq!(review(&text, &known).0, lines, "{text}");
    }
}

#[test]
fn a_setting_that_names_a_secret_is_no_credential() {
    let secret = "[secrets.\"web/search\"]\nfrom = \"env:K\"\norigins = [\"https://a.example\"]\n";
    for (secret, lines) in [(secret, &[][..]), ("", &[3])] {
        let text = format!("{secret}[plugins.web.config.search]\nsecret = \"search\"");
        let known = KnownNames { plugins: None, ..known(&[]) };
        assert_eq!(review(&text, &known).0, lines, "{text}");
    }
}

#[test]
fn a_service_says_why_it_has_no_tools() {
    for (unusable, tools, excluded_count, expected) in [
        (&[][..], &["list"][..], Some(1), None),
        (&[], &[], Some(0), Some("its document has no operations")),
        (&[], &[], Some(2), Some("leave no operation")),
        (&[], &[], None, None),
        (&["GET /a"], &["list"], Some(0), Some("one operation cannot be called, `GET /a`: no")),
        (
            &["GET /a", "GET /b"],
            &["list"],
            Some(0),
            Some("2 operations cannot be called, such as `GET /a`: no"),
        ),
    ] {
        let service = KnownService {
            unusable: unusable.iter().map(|one| ((*one).to_owned(), "no".to_owned())).collect(),
            tools: tools.iter().map(|one| (*one).to_owned()).collect(),
            excluded_count,
            ..KnownService::default()
        };
        let known = KnownNames { services: [("pets".to_owned(), service)].into(), ..known(&[]) };
        let found =
            Policy::check(&format!("version = 1\n{SERVICE}"), Path::new("/srv"), None).policy.unwrap();
        let found = found.review(&known, &CompleteMachine).findings;
        let found: Vec<(usize, &str)> = found.iter().map(|one| (one.line, one.message.as_str())).collect();
        match (found.as_slice(), expected) {
            ([], None) => {}
            ([(2, message)], Some(expected)) => assert!(message.contains(expected), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}

/// A machine with this sandbox.
struct ConfiningMachine(Option<SandboxMode>);

impl Machine for ConfiningMachine {
    fn path_kind(&self, path: &Path) -> PathKind {
        CompleteMachine.path_kind(path)
    }

    fn has_variable(&self, _: &str) -> bool {
        true
    }

    fn sandbox(&self) -> Option<SandboxMode> {
        self.0
    }
}

#[test]
fn a_sandbox_that_is_switched_off_is_found_where_the_system_has_one() {
    let program = |mode: &str| format!("[programs.x]\npath = \"/bin/x\"\nsandbox = \"{mode}\"");
    let server = format!("{SERVER}sandbox = \"none\"");
    let (required, best_effort) = (Some(SandboxMode::Required), Some(SandboxMode::BestEffort));
    for (text, sandbox, lines) in [
        (program("none"), required, &[4][..]),
        (program("none"), best_effort, &[4]),
        (program("none"), None, &[]),
        (program("best-effort"), required, &[]),
        (program("required"), None, &[]),
        (server.clone(), required, &[4]),
        (server, None, &[]),
    ] {
        let policy = Policy::check(&format!("version = 1\n{text}"), Path::new("/srv"), None).policy.unwrap();
        let found = policy.review(&known(&[]), &ConfiningMachine(sandbox)).findings;
        assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), lines, "{text}, {sandbox:?}");
        let mode = sandbox.map(|mode| format!("`sandbox = \"{}\"`", mode.name()));
        let help = |one: &PolicyFinding| one.help.clone().unwrap_or_default();
        assert!(found.iter().all(|one| help(one).contains(mode.as_deref().unwrap_or("?"))), "{found:?}");
    }
}

/// A machine that refuses all that it is asked about.
struct StrictMachine;

impl Machine for StrictMachine {
    fn path_kind(&self, path: &Path) -> PathKind {
        CompleteMachine.path_kind(path)
    }

    fn has_variable(&self, name: &str) -> bool {
        name != "UNSET"
    }

    fn grant_refusal(&self, rule: &PathRule, writing: bool) -> Option<String> {
        (writing || rule.folder().ends_with("secret")).then(|| "refused".to_owned())
    }

    fn program_refusal<'a>(&self, section: ProgramSection<'a>) -> Option<ProgramRefusal<'a>> {
        let line = Some((section.keys[0], 0));
        Some(ProgramRefusal { line, message: "a protected path is listed".to_owned() })
    }

    fn file_problem(&self, _: &Path, content: FileContent) -> Option<String> {
        Some(format!("{content:?}"))
    }

    fn secret_problem(&self, name: &str) -> Option<String> {
        (name == "BAD").then(|| "it is empty".to_owned())
    }
}

#[test]
fn what_a_run_would_refuse_is_found_at_its_line() {
    let signed = "[[trust]]\nscope = \"a.example/x\"\nrequire = \"signed\"\n";
    for (text, lines) in [
        ("[plugins.files.grant]\nfs_read = [\"/a/b\", \"!**/.env\", \"/a/secret\"]".to_owned(), &[3][..]),
        ("[programs.x]\npath = \"/bin/x\"\nread = [\"/a\"]".to_owned(), &[4]),
        ("[programs.x]\npath = \"/usr/x\"".to_owned(), &[3]),
        (format!("{SERVER}fs_read = [\"/a\"]"), &[4]),
        (format!("{SERVICE}ca = \"/a/ca.pem\""), &[4]),
        (format!("{signed}keys = [\"/a/key.pem\"]"), &[5]),
        ("[secrets.BAD]\nfrom = \"env:A\"\norigins = [\"https://a.example\"]".to_owned(), &[3]),
        ("[secrets.BAD]\nfrom = \"keyring:A\"\norigins = [\"https://a.example\"]".to_owned(), &[3]),
        ("[secrets.UNSET]\nfrom = \"env:UNSET\"\norigins = [\"https://a.example\"]".to_owned(), &[3]),
        ("[secrets.GOOD]\nfrom = \"env:A\"\norigins = [\"https://a.example\"]".to_owned(), &[]),
        ("[secrets.BAD]\nfrom = \"file:/a\"\norigins = [\"https://a.example\"]".to_owned(), &[3]),
    ] {
        let policy = Policy::check(&format!("version = 1\n{text}"), Path::new("/srv"), None).policy.unwrap();
        let found = policy.review(&known(&[]), &StrictMachine).findings;
        let found: Vec<usize> = found.iter().map(|one| one.line).collect();
        assert_eq!(found, lines, "{text}");
    }
}

#[test]
fn lines_without_effect_are_found() {
    let mut known = known(&[]);
    let reach = |target: &str| Capability {
        kind: CapabilityKind::Net,
        target: target.to_owned(),
        optional: false,
        reason: None,
    };
    let tools = [("fetch".to_owned(), vec![reach("https://*:*"), reach("http://*:*")])];
    let web = KnownPlugin { tools: Some(tools.into()), ..KnownPlugin::default() };
    known.plugins.as_mut().unwrap().insert("web".to_owned(), web);
    let net = |lines: &str| format!("[plugins.web.grant]\n{lines}");
    for (text, lines) in [
        (net("net = [\"https://a.example\", \"https://a.example\"]"), &[3][..]),
        ("[mcp.gh]\ncommand = [\"/bin/gh\", \"-v\", \"-v\"]".to_owned(), &[]),
        (net("net = [\"GTE https://a.example\"]"), &[3]),
        (net("net = [\"TRACE https://a.example\"]"), &[3]),
        (net("net = [\"GET,PROPFIND,SEARCH https://a.example/8\"]"), &[]),
        (net("net = [\"https://10.0.0.0/8\"]\nnet_private = [\"10.0.0.0/8\"]"), &[3]),
        (net("net_private = [\"10.1.0.0/16\"]"), &[3]),
        (net("net = [\"https://*\"]\nnet_private = [\"10.1.0.0/16\"]"), &[4]),
        (net("net = [\"https://a.corp\"]\nnet_private = [\"10.1.0.0/16\"]"), &[]),
        (net("net = [\"https://a.corp\"]\nnet_private = [\"0.0.0.0/0\"]"), &[4]),
        (net("net = [\"https://a.example\", \"!evil.example\"]"), &[3]),
        (net("net = [\"https://*\", \"!evil.example\"]"), &[]),
        (net("net = [\"https://*.a.example\", \"http://b.example\", \"!c.a.example\"]"), &[]),
    ] {
        assert_eq!(review(&text, &known).0, lines, "{text}");
    }
}

#[test]
fn limits_that_contradict_each_other_are_found() {
    for (text, lines) in [
        ("[serve.limits]\nrequests = 10\nrequests_per_client = 20", &[4][..]),
        ("[serve.limits]\nrequests = 10", &[]),
        ("[serve.limits]\nsession_idle = \"2h\"\nsession_age = \"1h\"", &[3]),
        ("[session]\nmax_calls = 5\nmax_identical_calls = 10", &[4]),
        ("[session]\nmax_identical_calls = 10", &[]),
        ("[limits]\nkv_value_bytes = \"32MiB\"", &[3]),
        ("[limits]\nkv_bytes = \"1KiB\"", &[]),
        ("[limits]\nfuel = 20", &[3]),
        ("[limits]\nfuel = \"none\"", &[]),
        ("[limits]\nresult_bytes = 256", &[3]),
        ("[plugins.files.tools.read_file.limits]\nresult_bytes = 256", &[3]),
        ("[host]\nguest_memory = \"64MiB\"\n[limits]\nmemory = \"128MiB\"", &[5]),
        ("[host]\nguest_memory = \"64MiB\"\n[limits]\nmemory = \"64MiB\"", &[]),
    ] {
        assert_eq!(review(text, &known(&[])).0, lines, "{text}");
    }
}

#[test]
fn a_server_whose_section_contradicts_itself_is_found() {
    for (text, lines) in [
        ("tools = [\"a\", \"b\"]\nexclude = [\"a\"]", &[4][..]),
        ("tools = [\"b\"]\n[mcp.gh.tool.a]\npermission = \"deny\"", &[5]),
        ("exclude = [\"a*\"]\n[mcp.gh.tool.ab]\npermission = \"deny\"", &[5]),
        ("tools = [\"a*\"]\nexclude = [\"ab\"]\n[mcp.gh.tool.ac]\npermission = \"deny\"", &[]),
        ("tools = []", &[]),
    ] {
        assert_eq!(review(&format!("{SERVER}{text}"), &known(&[])).0, lines, "{text}");
    }
}

/// One mistake is one error, at its key.
#[test]
fn no_error_follows_from_another_one() {
    for (text, found) in [
        (
            "[serve.oauth]\nissuer = \"https://i.example\"\naudience = [\"a\"]\njwks = \"k\"\nalgorithms = [\"HS256\"]",
            &[(6, 15)][..],
        ),
        ("[secrets.K]\nfrom = \"env:A\"\norigins = [\"a.example\"]", &[(4, 12)]),
        ("[[rule]]\npreset = \"ask-destructive\"\ntool = \"files__*\"", &[(4, 8)]),
        ("[[rule]]\npreset = \"ask-destructive\"\naction = \"deny\"", &[(4, 10)]),
        (
            "[mcp.a]\nurl = \"https://a.example\"\n[mcp.a.oauth]\nissuer = \"https://i.example\"\nclient_id = \"x\"\nclient_secret = \"K\"",
            &[(7, 17)],
        ),
        ("[serve.limits]\nbody_bytes = \"32MiB\"", &[(3, 14)]),
        ("[serve.limits]\nbody_bytes_per_client = \"1MiB\"", &[(3, 25)]),
    ] {
        let errors = Policy::check(&format!("version = 1\n{text}"), Path::new("/srv"), None).errors;
        let places: Vec<_> = errors.iter().map(|error| (error.line, error.column)).collect();
        assert_eq!(places, found, "{text}: {errors:?}");
    }
}

#[test]
fn memory_is_shown_as_it_is_written() {
    for (text, message, help) in [
        (
            "[programs.ls]\npath = \"/bin/ls\"\nmemory = \"512KiB\"",
            "`memory` is 512KiB",
            "write at least `1MiB`",
        ),
        ("[limits]\nmemory = 64", "a number without a unit counts bytes", "did you mean `64MiB`?"),
        ("[limits]\nmemory = \"64\"", "a number without a unit counts bytes", "did you mean `64MiB`?"),
    ] {
        let policy = Policy::check(&format!("version = 1\n{text}"), Path::new("/srv"), None).policy.unwrap();
        let found = policy.review(&known(&[]), &CompleteMachine).findings;
        let found = found.iter().find(|one| one.message.contains("memory")).unwrap();
        assert!(found.message.contains(message) && found.help.as_deref() == Some(help), "{found:?}");
        assert_eq!(found.message.contains("without a unit"), help.contains("did you mean"), "{found:?}");
    }
}

#[test]
fn a_section_that_nothing_names_is_unused() {
    let secret = "[secrets.K]\nfrom = \"env:A\"\norigins = [\"https://a.example\"]\nheaders = [\"x\"]\n";
    let program = "[programs.ls]\npath = \"/bin/ls\"\n";
    for (text, lines) in [
        (secret.to_owned(), &[2][..]),
        (format!("{secret}[mcp.a]\nurl = \"https://a.example\"\nheader_secrets = {{ x = \"K\" }}"), &[]),
        (format!("{secret}[plugins.files.grant]\nsecrets = [\"K\"]"), &[]),
        (program.to_owned(), &[2]),
        (format!("{program}[plugins.files.grant]\nprocess = [\"ls *\"]"), &[]),
        // What uses it may be in the line with the mistake.
        (format!("{secret}[plugins.files.grant]\nsecrets = [\"L\"]"), &[]),
        (format!("{secret}[plugins.files.grant]\nsecrets ="), &[]),
    ] {
        let policy = Policy::check(&format!("version = 1\n{text}"), Path::new("/srv"), None).policy.unwrap();
        let found: Vec<usize> = policy.unused_sections().iter().map(|one| one.line).collect();
        assert_eq!(found, lines, "{text}");
    }
}

#[test]
fn a_rule_whose_selectors_fit_different_tools_is_found() {
    let mut known = known(&["network"]);
    known.plugins.as_mut().unwrap().remove("broken");
    known
        .plugins
        .as_mut()
        .unwrap()
        .insert("text".to_owned(), KnownPlugin { tools: Some([].into()), ..files() });
    let text = KnownTool {
        source: "text".to_owned(),
        tags: ["network".to_owned()].into(),
        kind: "plugin",
        ..KnownTool::default()
    };
    known.tools.insert("text__grep".to_owned(), text);
    for (rule, lines) in [
        ("tool = \"files__read_file\"\nsource = \"plugin:text\"", &[2][..]),
        ("tool = \"files__*\"\ntag = \"network\"", &[2]),
        ("tool = \"text__*\"\ntag = \"network\"\nsource = \"plugin\"", &[]),
        ("tool = \"*_*\"\nsource = \"plugin:files\"", &[]),
        ("tool = \"files__raed\"\nsource = \"plugin:text\"", &[3]),
    ] {
        assert_eq!(review(&format!("[[rule]]\n{rule}\naction = \"ask\""), &known).0, lines, "{rule}");
    }
    // What is not read may fit.
    let rule = "[[rule]]\ntool = \"files__*\"\nsource = \"mcp\"\naction = \"ask\"";
    assert_eq!(review(&format!("{rule}\n{SERVER}"), &known).0, [0_usize; 0]);
}

#[test]
fn what_another_list_of_a_profile_leaves_out_is_found() {
    let mut known = known(&[]);
    known.servers.insert("gh".to_owned(), BTreeSet::from(["list".to_owned()]));
    let gh = KnownTool { kind: "mcp", source: "gh".to_owned(), ..KnownTool::default() };
    known.tools.insert("mcp__gh__list".to_owned(), gh);
    let file = "tools = [\"files__read_file\"]";
    for (text, lines) in [
        (format!("plugins = [\"files\"]\n{file}"), &[][..]),
        (format!("plugins = [\"broken\"]\n{file}"), &[6]),
        (format!("exclude_tools = [\"files__read_file\"]\n{file}"), &[6]),
        (format!("mcp_servers = []\n{file}"), &[]),
        ("mcp_servers = []\ntools = [\"mcp__gh__list\"]".to_owned(), &[6]),
        ("plugins = []\ntools = [\"mcp__gh__list\"]".to_owned(), &[]),
        ("mcp_servers = []\nmcp_tools = { gh = [\"list\"] }".to_owned(), &[6]),
        ("mcp_servers = [\"gh\"]\nmcp_tools = { gh = [\"list\"] }".to_owned(), &[]),
        // A name that does not exist is one mistake.
        ("mcp_servers = [\"gh\"]\nmcp_tools = { hg = [\"list\"] }".to_owned(), &[6]),
    ] {
        assert_eq!(review(&format!("{SERVER}[profile.a]\n{text}"), &known).0, lines, "{text}");
    }
}

#[test]
fn a_secret_that_a_plugin_can_send_nowhere_is_found() {
    let known = KnownNames { plugins: None, ..known(&[]) };
    for (secret, net, lines) in [
        ("K", "net = [\"GET https://a.example/x/*\"]", &[][..]),
        ("K", "net = [\"https://*\"]", &[]),
        ("K", "net = [\"https://b.example\"]", &[6]),
        ("K", "net = [\"http://a.example\"]", &[6]),
        ("K", "", &[6]),
        ("K/*", "net = [\"https://b.example\"]", &[]),
        ("shown", "net = [\"https://b.example\"]", &[]),
        // The line with the mistake may be the one that reaches it.
        ("K", "net = [\"a.example\"]", &[]),
    ] {
        let text = format!(
            "[secrets.K]\nfrom = \"env:A\"\norigins = [\"https://a.example\"]\n[plugins.web.grant]\nsecrets = [\"{secret}\"]\n{net}\n\
             [secrets.\"K/one\"]\nfrom = \"env:A\"\norigins = [\"https://a.example\", \"https://b.example\"]\n\
             [secrets.shown]\nfrom = \"env:A\"\nreveal = true\norigins = [\"https://a.example\"]"
        );
        assert_eq!(review(&text, &known).0, lines, "{text}");
    }
}
