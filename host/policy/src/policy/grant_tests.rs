//! Network grants never exceed the policy, however an author declares them.

use std::path::Path;

use super::*;
use crate::capability::net::{AddressScope, NetTarget, match_rules};

const FILE: &str = r#"
    version = 1
    [plugins.web.grant]
    net = ["https://*", "https://wiki.corp.example", "tcp://*:*"]
    net_private = ["10.0.0.0/8"]
    [plugins.web.tools.narrow]
    net = ["https://*"]
    [plugins.all.grant]
    net = ["https://*"]
    [profile.public]
    net = ["https://*"]
"#;

fn policy() -> Policy {
    Policy::parse(FILE, Path::new("/w"), None).unwrap()
}

fn net(target: &str) -> Capability {
    Capability { kind: CapabilityKind::Net, target: target.to_owned(), optional: true, reason: None }
}

fn address_scope(grants: &Grants, target: &str) -> Option<AddressScope> {
    let url = url::Url::parse(target).unwrap();
    let target = match url.scheme() {
        "tcp" => NetTarget::connection(
            crate::capability::net::Scheme::Tcp,
            url.host_str().unwrap(),
            url.port().unwrap(),
        ),
        _ => NetTarget::request("GET", &url),
    };
    match_rules(&grants.net, &target.unwrap()).ok()
}

#[test]
fn a_declaration_does_not_widen_the_address_scope() {
    let (policy, web) = (policy(), PluginId::new("web").unwrap());
    let (public, named) = (Some(AddressScope::PublicOnly), Some(AddressScope::IncludingPrivate));
    for (declared, profile, tool, target, expect) in [
        ("https://vault.corp.example", None, "fetch", "https://vault.corp.example", public),
        ("https://*.corp.example", None, "fetch", "https://vault.corp.example", public),
        ("https://10.0.0.7", None, "fetch", "https://10.0.0.7", public),
        ("tcp://10.0.0.7:22", None, "fetch", "tcp://10.0.0.7:22", public),
        ("https://wiki.corp.example", None, "fetch", "https://wiki.corp.example", named),
        ("https://*:*", None, "fetch", "https://wiki.corp.example", named),
        ("https://*:*", None, "fetch", "https://vault.corp.example", public),
        ("https://* public", None, "fetch", "https://wiki.corp.example", public),
        ("https://wiki.corp.example public", None, "fetch", "https://wiki.corp.example", public),
        ("https://*:*", Some("public"), "fetch", "https://wiki.corp.example", public),
        ("https://wiki.corp.example", Some("public"), "fetch", "https://wiki.corp.example", public),
        ("from-profile", Some("public"), "fetch", "https://wiki.corp.example", public),
        ("https://wiki.corp.example", None, "narrow", "https://wiki.corp.example", public),
        ("http://wiki.corp.example", None, "fetch", "http://wiki.corp.example", None),
    ] {
        let tool = ToolName::new(tool).unwrap();
        let grants = policy.grant(&web, &tool, &[net(declared)], profile);
        assert_eq!(
            address_scope(&grants, target),
            expect,
            "{declared} {profile:?} {tool} {target}: {grants:?}"
        );
    }
}

#[test]
fn a_named_host_is_kept_beside_every_host() {
    let (policy, web) = (policy(), PluginId::new("web").unwrap());
    let grants = policy.grant(&web, &ToolName::new("fetch").unwrap(), &[net("https://*:*")], None);
    assert_eq!(grants.decisions[0].granted, ["https://*", "https://wiki.corp.example"]);
    let asked = [net("https://wiki.corp.example"), net("https://a.org"), net("https://*.a.org")];
    let grants = policy.grant(&web, &ToolName::new("fetch").unwrap(), &asked, None);
    let shown: Vec<_> = grants.decisions.iter().flat_map(|one| one.granted.clone()).collect();
    assert_eq!(shown, ["https://wiki.corp.example", "https://a.org public", "https://*.a.org public"]);
}

#[test]
fn a_declaration_that_an_exclusion_covers_is_missing_and_the_hint_names_the_exclusion() {
    let text = "version = 1\n[plugins.web.grant]\nnet = [\"https://*\", \"!vault.x.org\", \"!*.in.x.org\"]";
    let policy = Policy::parse(text, Path::new("/w"), None).unwrap();
    let (web, tool) = (PluginId::new("web").unwrap(), ToolName::new("fetch").unwrap());
    for (declared, exclusion) in [
        ("https://vault.x.org/v1", "!vault.x.org"),
        ("https://a.in.x.org", "!*.in.x.org"),
        ("https://*.in.x.org", "!*.in.x.org"),
    ] {
        let grants = policy.grant(&web, &tool, &[net(declared)], None);
        let hint = grants.decisions[0].hint().unwrap().to_string();
        assert!(hint.contains(&format!("`{exclusion}` in `net` of [plugins.web.grant] excludes")), "{hint}");
        assert_eq!(grants.net, []);
    }
    for declared in ["https://*.x.org", "https://in.x.org", "https://*"] {
        assert!(policy.grant(&web, &tool, &[net(declared)], None).missing().next().is_none(), "{declared}");
    }
}
