//! `toolbay openapi` on the command line.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};

use crate::fixture::{HostFolder, status_and_output};

struct OpenApiFixture(HostFolder);

/// The value of a secret.
const CANARY: &str = "canary-5c1f";
const POLICY: &str = "# mine\nversion = 1\n\n[limits]\ntimeout = \"9s\" # short\n";

impl OpenApiFixture {
    fn new() -> Self {
        let cli = Self(HostFolder::new(""));
        cli.write("toolbay.toml", POLICY);
        cli
    }

    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.0.command(args);
        command.current_dir(self.0.path("")).env("PETS_KEY", CANARY);
        status_and_output(&command.env("TOOLBAY_CACHE", self.0.path("cache")).output().unwrap())
    }

    fn good(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!(code, Some(0), "{args:?}: {out}{err}");
        out
    }

    fn policy(&self) -> String {
        self.0.read("toolbay.toml")
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.path(name), text).unwrap();
        self.0.path(name).display().to_string()
    }
}

fn document(server: &str) -> String {
    json!({"openapi": "3.0.3", "info": {"title": "Pets"}, "servers": [{"url": server}], "paths": {
        "/pets": {"get": {"operationId": "listPets", "summary": "Lists pets"}},
        "/broken/{x}": {"get": {"operationId": "broken"}}}})
    .to_string()
}

/// Starts a server with the same answer for every request. It ends with the process.
fn serve(answer: impl Fn(&str) -> String + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut part = [0; 4096];
            while !head.windows(4).any(|four| four == b"\r\n\r\n") {
                match stream.read(&mut part) {
                    Ok(n) if n > 0 => head.extend_from_slice(&part[..n]),
                    _ => break,
                }
            }
            let body = answer(&String::from_utf8_lossy(&head));
            let head = format!(
                "HTTP/1.1 200 X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            drop(stream.write_all(format!("{head}{body}").as_bytes()));
        }
    });
    port
}

#[test]
fn a_service_is_added_listed_called_and_removed_and_the_rest_of_the_policy_stays() {
    let cli = OpenApiFixture::new();
    let port = serve(|_| r#"[{"name": "Rex"}]"#.to_owned());
    let file = cli.write("pets.json", &document(&format!("http://127.0.0.1:{port}/v1")));
    let out = cli.good(&["openapi", "add", "pets", "pets.json", "--net-private", "127.0.0.1", "--dry-run"]);
    assert!(out.contains("1 tool,") && out.contains("[openapi.pets]") && cli.policy() == POLICY, "{out}");
    cli.good(&["openapi", "add", "pets", "pets.json", "--net-private", "127.0.0.1", "--yes"]);
    let with = cli.policy();
    assert!(with.starts_with(POLICY) && with.contains(&format!("document = {file:?}")), "{with}");
    let (code, _, err) = cli.run(&["openapi", "add", "pets", "pets.json", "--yes"]);
    assert!(code == Some(1) && err.contains("openapi remove pets"), "{err}");
    let list: Value = serde_json::from_str(&cli.good(&["openapi", "list", "--json"])).unwrap();
    assert_eq!(
        (&list[0]["name"], &list[0]["tools"]["pets__listPets"]),
        (&json!("pets"), &json!("GET /pets"))
    );
    assert_eq!(list[0]["problems"][0][0], "GET /broken/{x}");
    assert!(cli.good(&["openapi", "list"]).contains("pets\t1\t1\t"));
    assert!(cli.good(&["list"]).contains("pets__listPets\tLists pets"));
    assert!(cli.good(&["status", "--tools"]).contains("openapi:pets"));
    assert!(cli.good(&["search", "pets"]).contains("pets__listPets"));
    let out = cli.good(&["call", "pets__listPets"]);
    assert!(out.contains("Rex") && out.contains("<untrusted source=\"openapi:pets\""), "{out}");
    assert!(cli.good(&["log"]).contains("pets__listPets"));
    cli.good(&["openapi", "remove", "pets", "--yes"]);
    assert_eq!(cli.policy().trim(), POLICY.trim());
    let (code, _, err) = cli.run(&["openapi", "remove", "pets", "--yes"]);
    assert!(code == Some(1) && err.contains("no [openapi.pets]"), "{err}");
}

#[test]
fn a_fetched_document_is_bound_to_a_server_or_pinned() {
    let cli = OpenApiFixture::new();
    let text = document("/v1");
    let port = serve(move |_| text.clone());
    let url = format!("http://127.0.0.1:{port}/docs/pets.json");
    let (code, _, err) = cli.run(&["openapi", "add", "pets", &url, "--yes"]);
    assert!(code == Some(2) && err.contains("--net-private"), "{err}");
    assert_eq!(cli.policy(), POLICY);
    cli.good(&["openapi", "add", "pets", &url, "--net-private", "127.0.0.1", "--yes"]);
    let server = format!("server = \"http://127.0.0.1:{port}/v1\"");
    assert!(cli.policy().contains(&server), "{}", cli.policy());
    cli.good(&["openapi", "add", "again", &url, "--net-private", "127.0.0.1", "--pin", "--yes"]);
    assert!(cli.policy().contains("sha256 = \""), "{}", cli.policy());
    assert_eq!(cli.good(&["list"]).lines().filter(|line| line.contains("__listPets")).count(), 2);
}

#[test]
fn a_header_with_a_secret_is_sent_and_its_value_is_in_no_file() {
    let cli = OpenApiFixture::new();
    let (send, heads) = std::sync::mpsc::channel();
    let port = serve(move |head| {
        send.send(head.to_owned()).ok();
        "[]".to_owned()
    });
    cli.write("pets.json", &document(&format!("http://127.0.0.1:{port}/v1")));
    let add = ["openapi", "add", "pets", "pets.json", "--net-private", "127.0.0.1", "--yes"];
    let shown = cli.good(&[&add[..], &["--header", "X-Key=Token env:PETS_KEY"]].concat());
    let with = cli.policy();
    for part in [
        "headers = { X-Key = { secret = \"openapi/pets/x-key\", prefix = \"Token \" } }",
        "[secrets.\"openapi/pets/x-key\"]",
        "from = \"env:PETS_KEY\"",
        &format!("origins = [\"http://127.0.0.1:{port}\"]"),
        "headers = [\"x-key\"]",
    ] {
        assert!(with.contains(part) && shown.contains(part), "{part}: {with}{shown}");
    }
    let called = cli.good(&["call", "pets__listPets", "{}"]);
    let head = heads.recv().unwrap().to_lowercase();
    assert!(head.contains(&format!("x-key: token {CANARY}")), "{head}");
    assert!(!(with + &shown + &called).contains(CANARY));

    // A secret of the policy needs no section of its own.
    cli.good(&["openapi", "remove", "pets", "--yes"]);
    assert_eq!(cli.policy(), POLICY);
    let secret =
        format!("{POLICY}[secrets.OWN]\nfrom = \"env:PETS_KEY\"\norigins = [\"http://127.0.0.1:{port}\"]\n");
    cli.write("toolbay.toml", &secret);
    cli.good(&[&add[..], &["--header", "Authorization=OWN"]].concat());
    assert!(cli.policy().contains("headers = { Authorization = { secret = \"OWN\" } }"), "{}", cli.policy());
    cli.good(&["openapi", "remove", "pets", "--yes"]);
    assert_eq!(cli.policy(), secret, "the operator's secret stays");
}

#[test]
fn an_invalid_document_or_name_changes_nothing() {
    let cli = OpenApiFixture::new();
    cli.write("none.json", "{}");
    cli.write("empty.json", r#"{"openapi": "3.1.0", "paths": {}}"#);
    cli.write("pets.json", &document("https://api.example.com"));
    for (args, code, part) in [
        (vec!["openapi", "check", "none.json"], 1, "no `openapi` version"),
        (vec!["openapi", "check", "gone.json"], 2, "gone.json"),
        (vec!["openapi", "check", "empty.json"], 1, "0 tools"),
        (vec!["openapi", "check", "pets.json", "--secret", "key"], 2, "SCHEME=SECRET"),
        (vec!["openapi", "check", "pets.json", "--secret", "key=NOPE"], 2, "[secrets.\"NOPE\"]"),
        (vec!["openapi", "check", "pets.json", "--header", "key"], 2, "NAME=SECRET"),
        (vec!["openapi", "check", "pets.json", "--header", "X-Key=NOPE"], 2, "[secrets.\"NOPE\"]"),
        (vec!["openapi", "add", "a", "pets.json", "--yes", "--header", "Host=env:PETS_KEY"], 2, "`host`"),
        (vec!["openapi", "check", "pets.json", "--include", "pets"], 1, "selects nothing"),
        (vec!["openapi", "add", "a__b", "pets.json", "--yes"], 2, "__"),
        (vec!["openapi", "add", "none", "none.json", "--yes"], 1, "nothing was changed"),
        (vec!["openapi", "add", "pets", "pets.json"], 2, "no terminal"),
        (vec!["openapi", "add", "pets", "ftp://a.example/x", "--yes"], 2, "https"),
    ] {
        let (came, out, err) = cli.run(&args);
        assert_eq!(came, Some(code), "{args:?}: {out}{err}");
        assert!(format!("{out}{err}").contains(part), "{args:?}: {out}{err}");
    }
    assert_eq!(cli.policy(), POLICY);
    let out = cli.good(&["openapi", "check", "pets.json", "--json"]);
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(info["tools"]["check__listPets"], "GET /pets");
    assert!(Path::new(info["document"].as_str().unwrap()).is_absolute());
}

/// Each operation is a tool or has a line that says why not, wherever the operator looks.
#[test]
fn skipped_operations_are_shown_everywhere() {
    let cli = OpenApiFixture::new();
    let text = r#"
openapi: 3.0.3
info: {title: T, version: "1"}
servers: [{url: "http://127.0.0.1:46012"}]
paths:
  things/{id}: {get: {operationId: oneThing, parameters: [{name: id, in: path, required: true, schema: {type: string}}], responses: {200: {description: ok}}}}
  /undeclared/{who}: {get: {operationId: greet, responses: {200: {description: ok}}}}
"#;
    cli.write("api.yaml", text);
    let check = cli.good(&["openapi", "check", "api.yaml"]);
    assert!(check.contains("tool\tcheck__oneThing\tGET /things/{id}\tready"), "{check}");
    assert!(check.contains("skipped\tGET /undeclared/{who}\tits path has"), "{check}");
    cli.good(&["openapi", "add", "api", "api.yaml", "--net-private", "127.0.0.1", "--yes"]);
    let list = cli.good(&["list", "--all"]);
    assert!(list.contains("skipped\tapi\tGET /undeclared/{who}\tits path has"), "{list}");
    let status = cli.good(&["status"]);
    assert!(status.contains("openapi:api\t1 tool, 1 operation skipped: `toolbay openapi check "), "{status}");
    let (code, _, err) = cli.run(&["call", "api__greet"]);
    assert!(
        code == Some(1) && err.contains("GET /undeclared/{who}") && err.contains("which is not a parameter"),
        "{err}"
    );
    let (_, _, err) = cli.run(&["explain", "api__greet"]);
    assert!(err.contains("which is not a parameter"), "{err}");
    // None is left.
    let none = text.replace("  things/{id}: {get", "  /things/{id}: {trace");
    cli.write("api.yaml", &none);
    let status = cli.good(&["status"]);
    assert!(status.contains("openapi:api\t0 tools, 2 operations skipped"), "{status}");
    assert!(cli.good(&["list", "--all"]).contains("skipped\tapi\tTRACE /things/{id}"));
}

#[test]
fn numbers_in_yaml_count_as_text() {
    let cli = OpenApiFixture::new();
    cli.write("three.yaml", "openapi: 3.1\ninfo: {title: T, version: 1.0}\nservers: [{url: \"http://127.0.0.1:46012\"}]\npaths:\n  /a: {get: {operationId: a}}\n");
    cli.write("two.yaml", "swagger: 2.0\ninfo: {title: T, version: 1}\npaths: {}\n");
    cli.write("port.yaml", "openapi: 3.0.3\ninfo: {title: T}\nservers: [{url: \"http://127.0.0.1:{port}/{stage}\", variables: {port: {default: 46012, enum: [46012, 46013]}, stage: {default: v1}}}]\npaths:\n  /a: {get: {operationId: a}}\n");
    assert!(cli.good(&["openapi", "check", "three.yaml"]).contains("1 tool,"));
    let (code, _, err) = cli.run(&["openapi", "check", "two.yaml"]);
    assert!(
        code == Some(1) && err.contains("Swagger 2.0") && err.contains("convert it to OpenAPI 3 first"),
        "{err}"
    );
    cli.good(&["openapi", "add", "api", "port.yaml", "--net-private", "127.0.0.1", "--yes"]);
    assert!(cli.good(&["explain", "api__a"]).contains("http://127.0.0.1:46012/v1/a"));
    let with = format!("{}variables = {{ port = \"46013\" }}\n", cli.policy());
    cli.write("toolbay.toml", &with);
    assert!(cli.good(&["explain", "api__a"]).contains("http://127.0.0.1:46013/v1/a"));
}
