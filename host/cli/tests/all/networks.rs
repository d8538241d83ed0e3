//! Registries in networks of companies: mirrors, proxies, and credentials from the environment or a secret.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::attack_registry::{AttackRegistry, AttackReply};
use crate::fixture::{CommandRun, HostFolder};
use crate::parties::{Parties, REPOSITORY, signed_by};
use crate::test_registry::TestRegistry;

/// `u:operator-secret`, as Docker's file has it.
const PASSWORD: &str = "dTpvcGVyYXRvci1zZWNyZXQ=";
const ARGS: &str = r#"{"text": "a b c"}"#;

fn host(registry: &TestRegistry) -> String {
    registry.reference("").trim_end_matches('/').to_owned()
}

/// A registry, its mirror below the path `proxy`, and an operator whose policy has both.
fn mirrored() -> (TestRegistry, TestRegistry, HostFolder) {
    let (origin, mirror) = (TestRegistry::start(), TestRegistry::start());
    let pinned = origin.push("acme/text", "1.0", guest_artifacts::PLUGIN_TEXT);
    assert_eq!(mirror.push("proxy/acme/text", "unused", guest_artifacts::PLUGIN_TEXT), pinned);
    let folder = HostFolder::new(&format!(
        "[registry.\"{0}\"]\nplain_http = true\nmirror = \"{1}/proxy\"\n[registry.\"{1}\"]\nplain_http = true\n",
        host(&origin),
        host(&mirror),
    ));
    (origin, mirror, folder)
}

fn asked_for(registry: &TestRegistry, part: &str) -> bool {
    registry.requests.lock().unwrap().iter().any(|path| path.contains(part))
}

fn empty_store(folder: &HostFolder) {
    fs::remove_dir_all(folder.path(".local/share/toolbay/store")).unwrap();
}

#[test]
fn a_mirror_serves_what_a_digest_names_and_the_registry_says_what_a_tag_is() {
    let (origin, mirror, folder) = mirrored();
    let reference = origin.reference("acme/text:1.0");
    folder.run(&["add", &reference, "--unsigned"]).says(0, &["text__word_count"]);
    assert!(asked_for(&origin, "/manifests/1.0") && !asked_for(&origin, "/blobs/"));
    assert!(asked_for(&mirror, "/v2/proxy/acme/text/blobs/") && !asked_for(&mirror, "/manifests/1.0"));
    assert!(folder.read("toolbay.lock").contains(&format!("oci://{}/acme/text", host(&origin))));
    // The registry is gone.
    origin.content.lock().unwrap().clear();
    empty_store(&folder);
    folder.run(&["fetch"]).says(0, &["fetched"]);
    folder.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
}

#[test]
fn a_mirror_without_the_content_or_that_is_down_is_passed_over() {
    let (origin, mirror, folder) = mirrored();
    mirror.content.lock().unwrap().clear();
    folder.run(&["add", &origin.reference("acme/text:1.0"), "--unsigned"]).says(0, &[]);
    assert!(asked_for(&origin, "/blobs/") && asked_for(&mirror, "/blobs/"));
    // Nothing listens at the port of a listener that is gone.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let policy =
        folder.read("toolbay.toml").replace("version = 1\n", "").replace(&host(&mirror), &gone.to_string());
    folder.write_policy(&policy);
    empty_store(&folder);
    folder.run(&["fetch"]).says(0, &["fetched"]);
}

#[test]
fn a_mirror_that_sends_something_else_is_named() {
    let (origin, mirror, folder) = mirrored();
    mirror.content.lock().unwrap().retain(|path, (_, body)| {
        if path.contains("/blobs/") {
            *body.last_mut().unwrap() ^= 1;
        }
        true
    });
    let parts = [&*format!("the mirror `{}`", host(&mirror)), "its digest is"];
    folder.run(&["add", &origin.reference("acme/text:1.0"), "--unsigned"]).says(1, &parts);
    assert!(!folder.path("toolbay.lock").exists() && !asked_for(&origin, "/blobs/"));
}

#[test]
fn signatures_come_from_the_registry_when_the_mirror_has_none() {
    let (parties, mirror) = (Parties::new(), TestRegistry::start());
    parties.publish("1.0", guest_artifacts::PLUGIN_TEXT, &["acme"]);
    let blobs = |path: &str| path.contains("/blobs/");
    let content = parties.registry.content.lock().unwrap().clone();
    mirror.content.lock().unwrap().extend(content.into_iter().filter(|(path, _)| blobs(path)));
    let there = host(&mirror);
    parties.trust(&format!(
        "mirror = \"{there}\"\n[registry.\"{there}\"]\nplain_http = true\n{}",
        signed_by(&["acme"])
    ));
    parties.add("1.0", &[]).says(0, &["key:"]);
    parties.operator.run(&["verify", "--offline"]).says(0, &["verified"]);
    assert!(asked_for(&mirror, &format!("/v2/{REPOSITORY}/blobs/")));
    // An upload goes to the registry only.
    let before = mirror.requests.lock().unwrap().len();
    parties.publish("2.0", guest_artifacts::PLUGIN_HASH, &["acme"]);
    assert_eq!(mirror.requests.lock().unwrap().len(), before);
}

/// A registry over TLS that asks for a login, which its own token server takes.
fn guarded() -> AttackRegistry {
    let registry = AttackRegistry::with_component(&fs::read(guest_artifacts::PLUGIN_TEXT).unwrap());
    registry.require_token(&registry.url("/token"));
    registry.reply("/token", AttackReply::new(200, r#"{"token": "t"}"#));
    registry
}

/// A folder whose policy has a section for a registry. `keys` are further lines of the section.
fn folder(registry: &AttackRegistry, keys: &str) -> HostFolder {
    let folder = HostFolder::new(&format!("[registry.\"{}\"]\nca = \"ca.pem\"\n{keys}", registry.address));
    fs::write(folder.path("ca.pem"), AttackRegistry::ca()).unwrap();
    folder
}

/// Adds the plugin of a registry, without the logins of the user who runs the tests.
fn add(folder: &HostFolder, registry: &AttackRegistry, environment: &[(&str, &str)]) -> CommandRun {
    let mut command = folder.command(&["add", &registry.reference(), "--unsigned"]);
    for variable in [
        "DOCKER_CONFIG",
        "REGISTRY_AUTH_FILE",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
        "HTTPS_PROXY",
        "NO_PROXY",
    ] {
        command.env_remove(variable).env_remove(variable.to_lowercase());
    }
    CommandRun(command.envs(environment.iter().copied()).output().unwrap())
}

fn logins(registry: &AttackRegistry) -> Vec<String> {
    registry.requests().into_iter().filter_map(|request| request.authorization).collect()
}

#[test]
fn a_login_comes_from_a_secret_of_the_policy_or_a_named_file() {
    let registry = guarded();
    let origin = registry.url("");
    let secret =
        format!("secret = \"LOGIN\"\n[secrets.LOGIN]\nfrom = \"env:LOGIN\"\norigins = [\"{origin}\"]\n");
    let operator = folder(&registry, &secret);
    add(&operator, &registry, &[]).says(2, &["the secret `LOGIN` has no value", "`LOGIN` is not set"]);
    assert!(logins(&registry).is_empty());
    let run = add(&operator, &registry, &[("LOGIN", "u:operator-secret")]).says(0, &["text__word_count"]);
    assert!(!(run.out() + &run.err()).contains("operator-secret"));
    assert_eq!(logins(&registry)[0], format!("Basic {PASSWORD}"));

    let registry = guarded();
    let operator = folder(&registry, "");
    let login = json!({"auths": {(registry.address.as_str()): {"auth": PASSWORD}}});
    let file = operator.path("logins.json");
    fs::write(&file, login.to_string()).unwrap();
    let named = [("TOOLBAY_REGISTRY_AUTH_FILE", file.to_str().unwrap())];
    add(&operator, &registry, &named).says(0, &["text__word_count"]);
    assert_eq!(logins(&registry)[0], format!("Basic {PASSWORD}"));
}

#[test]
fn a_mirror_gets_no_login_of_the_registry() {
    let (origin, mirror) = (guarded(), guarded());
    let keys = format!("mirror = \"{0}\"\n[registry.\"{0}\"]\nca = \"ca.pem\"\n", mirror.address);
    let operator = folder(&origin, &keys);
    let login = json!({"auths": {(origin.address.as_str()): {"auth": PASSWORD}}});
    let file = operator.path("logins.json");
    fs::write(&file, login.to_string()).unwrap();
    let named = [("TOOLBAY_REGISTRY_AUTH_FILE", file.to_str().unwrap())];
    add(&operator, &origin, &named).says(0, &["text__word_count"]);
    assert!(!mirror.requests().is_empty());
    assert!(logins(&mirror).iter().all(|login| !login.starts_with("Basic")), "{:?}", logins(&mirror));
    assert!(logins(&origin).contains(&format!("Basic {PASSWORD}")));
}

/// An HTTP proxy that records the heads that it gets.
pub(crate) struct TestProxy {
    pub(crate) address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TestProxy {
    /// A proxy that tunnels, or refuses with this status line.
    pub(crate) fn start(refusal: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let proxy = Self { address, heads: Arc::default() };
        let heads = Arc::clone(&proxy.heads);
        // The threads end with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let heads = Arc::clone(&heads);
                std::thread::spawn(move || serve_tunnel(stream.unwrap(), &heads, refusal));
            }
        });
        proxy
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn serve_tunnel(mut stream: TcpStream, heads: &Mutex<Vec<String>>, refusal: Option<&str>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let target = head.split(' ').nth(1).unwrap().to_owned();
    heads.lock().unwrap().push(head);
    if let Some(refusal) = refusal {
        write!(stream, "{refusal}\r\n\r\n").ok();
        return;
    }
    let mut there = TcpStream::connect(target).unwrap();
    write!(stream, "HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
    let (mut back, mut forth) = (there.try_clone().unwrap(), stream.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut back, &mut forth));
    std::io::copy(&mut reader, &mut there).ok();
}

#[test]
fn a_registry_is_reached_through_a_proxy_of_the_policy_or_the_environment() {
    let proxy = TestProxy::start(None);
    let url = format!("http://{}", proxy.address);
    let registry = guarded();
    let secret = format!(
        "secret = \"LOGIN\"\n[secrets.LOGIN]\nfrom = \"env:LOGIN\"\norigins = [\"{}\"]\n",
        registry.url("")
    );
    let login = ("LOGIN", "u:operator-secret");
    let by_policy = folder(&registry, &format!("proxy = \"{url}\"\n{secret}"));
    add(&by_policy, &registry, &[login]).says(0, &["text__word_count"]);
    let heads = proxy.heads();
    assert!(
        !heads.is_empty()
            && heads.iter().all(|head| head.starts_with(&format!("CONNECT {} ", registry.address)))
    );
    // The login is inside of TLS.
    assert!(!heads.concat().to_lowercase().contains("authorization"), "{heads:?}");

    let by_environment = folder(&registry, &secret);
    let with_password = url.replace("http://", "http://user:proxy-password@");
    add(&by_environment, &registry, &[login, ("HTTPS_PROXY", &with_password)]).says(0, &["text__word_count"]);
    assert!(
        proxy.heads().last().unwrap().contains("proxy-authorization: Basic dXNlcjpwcm94eS1wYXNzd29yZA==")
    );
    let before = proxy.heads().len();
    let excepted = [login, ("HTTPS_PROXY", url.as_str()), ("NO_PROXY", "127.0.0.0/8")];
    add(&by_environment, &registry, &excepted).says(0, &[]);
    assert_eq!(proxy.heads().len(), before);
}

#[test]
fn a_proxy_that_refuses_is_named_without_its_password() {
    let registry = guarded();
    let operator = folder(&registry, "");
    for (line, part) in [
        ("HTTP/1.1 407 Proxy Authentication Required", "refused the credentials of `HTTPS_PROXY`"),
        ("HTTP/1.1 502 Bad Gateway", "status 502"),
        ("nonsense", "does not speak HTTP"),
    ] {
        let proxy = TestProxy::start(Some(line));
        let url = format!("http://user:proxy-password@{}", proxy.address);
        let run =
            add(&operator, &registry, &[("HTTPS_PROXY", &url)]).says(1, &["the proxy `127.0.0.1`", part]);
        assert!(!(run.out() + &run.err()).contains("proxy-password"));
        assert!(!proxy.heads().is_empty());
    }
    let socks = ("HTTPS_PROXY", "socks5://127.0.0.1:1");
    add(&operator, &registry, &[socks]).says(1, &["is not an HTTP proxy"]);
    assert_eq!(registry.connections(), 0);
}

#[test]
fn an_address_that_a_registry_names_is_checked_also_behind_a_proxy() {
    let proxy = TestProxy::start(None);
    let layer = fs::read(guest_artifacts::PLUGIN_TEXT).unwrap();
    let registry = AttackRegistry::with_component(&layer);
    registry.reply_to_blob(&layer, AttackReply::redirect("https://169.254.169.254/latest"));
    let operator = folder(&registry, "");
    let url = format!("http://{}", proxy.address);
    add(&operator, &registry, &[("HTTPS_PROXY", &url)]).says(1, &["] redirect_private = ["]);
    assert!(proxy.heads().iter().all(|head| !head.contains("169.254")), "{:?}", proxy.heads());
}
