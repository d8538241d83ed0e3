//! MCP servers, services of OpenAPI documents and logins in networks of companies: behind a proxy, and with certificates of
//! an authority that the system does not know.

use std::fs;

use serde_json::json;

use crate::attack_registry::{AttackRegistry, AttackReply};
use crate::fixture::{CommandRun, HostFolder};
use crate::networks::TestProxy;

/// A server over TLS that answers each request in the same way, which shows that it got one.
fn server() -> AttackRegistry {
    let server = AttackRegistry::start();
    server.reply("/mcp", AttackReply::new(418, ""));
    server
        .reply("/pets", AttackReply::new(200, r#"["Rex"]"#).with_header("content-type", "application/json"));
    server
}

/// A folder whose policy has this section, with the certificate of the servers' authority beside it.
fn folder(policy: &str) -> HostFolder {
    let folder = HostFolder::new(policy);
    fs::write(folder.path("ca.pem"), AttackRegistry::ca()).unwrap();
    let get = json!({"operationId": "list", "responses": {"200": {"description": "all"}}});
    let document = json!({"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": {"/pets": {"get": get}}});
    fs::write(folder.path("api.json"), document.to_string()).unwrap();
    folder
}

fn run(folder: &HostFolder, args: &[&str], environment: &[(&str, &str)]) -> CommandRun {
    let mut command = folder.command(args);
    for variable in ["HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(variable).env_remove(variable.to_lowercase());
    }
    CommandRun(command.envs(environment.iter().copied()).output().unwrap())
}

/// The section of an MCP server and the one of a service, and the command that reaches each. `{}` stands for more lines.
fn sections(server: &AttackRegistry) -> [(String, &'static [&'static str], &'static str); 2] {
    let origin = server.url("");
    [
        (format!("[mcp.s]\nurl = \"{origin}/mcp\"\n"), &["mcp", "check", "s"], "status 418"),
        (
            format!(
                "[openapi.pets]\ndocument = \"api.json\"\nserver = \"{origin}\"\nnet_private = [\"127.0.0.1/32\"]\n"
            ),
            &["call", "pets__list", "{}"],
            "Rex",
        ),
    ]
}

/// Whether a run reached the server, by what its answer brings about.
fn reached(run: &CommandRun, sign: &str) -> bool {
    (run.out() + &run.err()).contains(sign)
}

#[test]
fn a_server_is_reached_through_a_proxy_of_the_policy_or_the_environment() {
    let server = server();
    for (section, args, sign) in sections(&server) {
        let proxy = TestProxy::start(None);
        let url = format!("http://{}", proxy.address);
        let passed = |from: usize| {
            let heads = proxy.heads().split_off(from);
            assert!(
                heads.iter().all(|head| head.starts_with(&format!("CONNECT {} ", server.address))),
                "{heads:?}"
            );
            !heads.is_empty()
        };
        let by_policy = folder(&format!("{section}ca = \"ca.pem\"\nproxy = \"{url}\"\n"));
        let done = run(&by_policy, args, &[("NO_PROXY", "*")]);
        assert!(reached(&done, sign) && passed(0), "{section}: {}", done.err());

        let by_environment = folder(&format!("{section}ca = \"ca.pem\"\n"));
        let before = proxy.heads().len();
        let with_password = url.replace("http://", "http://user:proxy-password@");
        let done = run(&by_environment, args, &[("HTTPS_PROXY", &with_password)]);
        assert!(reached(&done, sign) && passed(before), "{section}: {}", done.err());
        assert!(!(done.out() + &done.err()).contains("proxy-password"));
        assert!(proxy.heads().last().unwrap().contains("proxy-authorization: Basic "));

        let port = server.address.split(':').nth(1).unwrap();
        for excepted in ["127.0.0.0/8", "127.0.0.1", &format!("a.example,127.0.0.1:{port}")] {
            let before = proxy.heads().len();
            let done = run(&by_environment, args, &[("https_proxy", &url), ("no_proxy", excepted)]);
            assert!(reached(&done, sign) && !passed(before), "{excepted}: {}", done.err());
        }
    }
}

#[test]
fn an_unknown_authority_is_explained_and_can_be_trusted_for_one_section() {
    let server = server();
    for (section, args, sign) in sections(&server) {
        let table = section.lines().next().unwrap();
        let done = run(&folder(&section), args, &[]);
        let said = done.out() + &done.err();
        assert!(!reached(&done, sign) && said.contains("no authority that is trusted here"), "{said}");
        assert!(said.contains(&format!("{table} ca = ")), "{said}");
        let done = run(&folder(&format!("{section}ca = \"ca.pem\"\n")), args, &[]);
        assert!(reached(&done, sign), "{}", done.err());
        // A section trusts what it names, and nothing for another one.
        let other = format!("{section}[mcp.other]\nurl = \"https://other.example/\"\nca = \"ca.pem\"\n");
        let done = run(&folder(&other), args, &[]);
        assert!(!reached(&done, sign), "{}", done.out());
        for (file, part) in [("absent.pem", "cannot be read"), ("api.json", "contains no certificate")] {
            let done = run(&folder(&format!("{section}ca = \"{file}\"\n")), args, &[]);
            let said = done.out() + &done.err();
            assert!(said.contains(file) && said.contains(part), "{said}");
        }
    }
}

#[test]
fn a_document_is_fetched_through_the_proxy_of_its_section() {
    let server = server();
    let text = fs::read_to_string(folder("").path("api.json")).unwrap();
    server.reply("/api.json", AttackReply::new(200, text));
    let proxy = TestProxy::start(None);
    let origin = server.url("");
    let section = format!(
        "[openapi.pets]\ndocument = \"{origin}/api.json\"\nserver = \"{origin}\"\nnet_private = [\"127.0.0.1/32\"]\n\
         ca = \"ca.pem\"\nproxy = \"http://{}\"\n",
        proxy.address
    );
    run(&folder(&section), &["call", "pets__list", "{}"], &[]).says(0, &["Rex"]);
    // One tunnel serves both.
    assert!(proxy.heads().iter().all(|head| head.starts_with(&format!("CONNECT {} ", server.address))));
    let asked: Vec<String> = server.requests().into_iter().map(|request| request.path).collect();
    assert!(!proxy.heads().is_empty() && asked == ["/api.json", "/pets"], "{asked:?}");
}

#[test]
fn a_section_is_written_with_the_authority_and_the_proxy_of_the_command_line() {
    let server = server();
    let text = fs::read_to_string(folder("").path("api.json")).unwrap();
    server.reply("/api.json", AttackReply::new(200, text));
    let (document, mcp) = (server.url("/api.json"), server.url("/mcp"));
    let folder = folder("");
    let ca = folder.path("ca.pem").to_str().unwrap().to_owned();
    let proxy = TestProxy::start(None);
    let url = format!("http://{}", proxy.address);
    let private = ["--net-private", "127.0.0.1/32"];
    let check = [&["openapi", "check", &document][..], &private].concat();
    let said = run(&folder, &check, &[]).err();
    assert!(said.contains("[openapi.NAME] ca = ") && said.contains("here: --ca FILE"), "{said}");
    run(&folder, &[&check[..], &["--ca", &ca]].concat(), &[]).says(0, &["pets"]);
    let add = [&["openapi", "add", "pets", &document, "--yes"][..], &private].concat();
    run(&folder, &[&add[..], &["--ca", "absent.pem"]].concat(), &[]).says(2, &["there is no such file"]);
    run(&folder, &[&add[..], &["--ca", &ca, "--proxy", &url]].concat(), &[]).says(0, &["proxy = "]);
    assert!(!proxy.heads().is_empty());
    run(&folder, &["call", "pets__list", "{}"], &[]).says(0, &["Rex"]);

    let said = run(&folder, &["mcp", "add", "s", &mcp], &[]).err();
    assert!(said.contains("was not reached") && said.contains("[mcp.s] ca = "), "{said}");
    let before = proxy.heads().len();
    let done = run(&folder, &["mcp", "add", "s", &mcp, "--replace", "--ca", &ca, "--proxy", &url], &[]);
    assert!(!done.err().contains("was not reached") && proxy.heads().len() > before, "{}", done.err());
}

#[test]
fn a_proxy_that_fails_is_named_with_what_names_it() {
    let server = server();
    for (section, args, _) in sections(&server) {
        let (by_environment, dead) = (folder(&format!("{section}ca = \"ca.pem\"\n")), "http://127.0.0.1:1");
        let by_policy = folder(&format!("{section}ca = \"ca.pem\"\nproxy = \"{dead}\"\n"));
        for (folder, variable, named) in
            [(&by_environment, dead, "of `HTTPS_PROXY`"), (&by_policy, "", "of the key `proxy`")]
        {
            let done = run(folder, args, &[("HTTPS_PROXY", variable)]);
            let said = done.out() + &done.err();
            assert!(
                said.contains(&format!("the proxy `127.0.0.1`, port 1, {named} cannot be reached")),
                "{said}"
            );
        }
        // Its credentials are those of the variable.
        let proxy = TestProxy::start(None);
        let by_policy = folder(&format!("{section}ca = \"ca.pem\"\nproxy = \"http://{}\"\n", proxy.address));
        run(&by_policy, args, &[("HTTPS_PROXY", &format!("http://user:secret@{}", proxy.address))]);
        assert!(proxy.heads().last().unwrap().contains("proxy-authorization: Basic "), "{section}");
    }
}

#[test]
fn a_login_uses_the_proxy_and_the_authority_of_its_section() {
    let (server, login) = (server(), AttackRegistry::start());
    let issuer = login.url("");
    let resource = json!({"resource": server.url("/mcp"), "authorization_servers": [issuer]});
    server.reply("/.well-known/oauth-protected-resource/mcp", AttackReply::new(200, resource.to_string()));
    let metadata = json!({
        "issuer": issuer, "authorization_endpoint": login.url("/authorize"), "token_endpoint": login.url("/token"),
        "registration_endpoint": login.url("/register"), "code_challenge_methods_supported": ["S256"],
    });
    login.reply("/.well-known/oauth-authorization-server", AttackReply::new(200, metadata.to_string()));
    login.reply("/register", AttackReply::new(418, ""));
    let proxy = TestProxy::start(None);
    let section = format!(
        "[mcp.s]\nurl = \"{}\"\nnet_private = [\"127.0.0.1/32\"]\nproxy = \"http://{}\"\n",
        server.url("/mcp"),
        proxy.address
    );
    let args = ["mcp", "login", "s", "--no-browser"];
    run(&folder(&section), &args, &[]).says(1, &["no authority that is trusted here", "[mcp.s] ca = "]);
    // The server names its authorization server, which is reached in the same way.
    run(&folder(&format!("{section}ca = \"ca.pem\"\n")), &args, &[])
        .says(1, &["did not register the client", "status 418"]);
    for address in [&server.address, &login.address] {
        let passed = |head: &String| head.starts_with(&format!("CONNECT {address} "));
        assert!(proxy.heads().iter().any(passed), "{address}");
    }
    // An address that the server names is checked, also behind the proxy.
    let before = proxy.heads().len();
    let section = section.replace("net_private = [\"127.0.0.1/32\"]\n", "");
    run(&folder(&format!("{section}ca = \"ca.pem\"\n")), &args, &[]).says(1, &["[mcp.s] net_private = "]);
    let named = |head: &String| head.starts_with(&format!("CONNECT {} ", login.address));
    assert!(!proxy.heads().split_off(before).iter().any(named));
}
