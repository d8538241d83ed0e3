//! What a build with some of the features refuses. The tests hold for every choice of features.

use std::path::Path;

use toolbay::{Filter, Host, HostBuilder, HostError, PluginId, Policy, ToolCall, TurnContext};

/// Names the compile worker of a build that has no compiler.
const WORKER: &str = "TOOLBAY_TEST_WORKER";
/// Each feature that a policy can need: its name, whether this build has it, and a policy.
const NEEDS: [(&str, bool, &str); 3] = [
    ("net", cfg!(feature = "net"), "[plugins.web.grant]\nnet = [\"https://example.com\"]"),
    ("mcp", cfg!(feature = "mcp"), "[mcp.git]\ncommand = [\"/usr/bin/git-mcp\"]"),
    ("openapi", cfg!(feature = "openapi"), "[openapi.pets]\ndocument = \"pets.yaml\""),
];

fn policy(text: &str) -> Policy {
    Policy::parse(&format!("version = 1\n{text}"), Path::new("/srv/agent"), None).unwrap()
}

/// A builder with a worker, if this build needs one.
fn builder(policy: Policy) -> HostBuilder {
    let builder = Host::builder(policy);
    if cfg!(feature = "compiler") {
        builder
    } else {
        builder.compile_worker(std::env::var_os(WORKER).unwrap())
    }
}

#[tokio::test]
async fn a_policy_that_names_what_the_program_lacks_is_refused_with_the_feature() {
    let running = builder(policy("")).build().unwrap();
    for (feature, is_built, text) in NEEDS {
        let built = builder(policy(text)).build().map(drop);
        let reloaded = running.reload_policy(policy(text)).await.map(drop);
        for result in [built, reloaded] {
            match result {
                Ok(()) => assert!(is_built, "{feature}"),
                Err(HostError::Policy(error)) => {
                    assert!(!is_built && error.findings().len() == 1, "{feature}: {error}");
                    assert!(error.to_string().contains(&format!("`{feature}`")), "{error}");
                }
                Err(other) => panic!("{feature}: {other}"),
            }
        }
    }
}

#[test]
fn a_program_without_a_compiler_needs_a_worker() {
    let built = Host::builder(policy("")).build();
    assert_eq!(matches!(built, Err(HostError::NoCompiler)), !cfg!(feature = "compiler"));
    assert!(Host::builder(policy("")).compile_worker("/nowhere").build().is_ok());
}

/// A component that exports the function `one`, with these imports.
fn component(imports: &str) -> Vec<u8> {
    let text = format!(
        r#"(component {imports}
            (core module $m (func (export "one") (result i32) i32.const 1))
            (core instance $i (instantiate $m))
            (func (export "one") (result u32) (canon lift (core func $i "one"))))"#
    );
    wat::parse_str(text).unwrap()
}

#[tokio::test]
async fn a_component_runs_in_every_build() {
    let host = builder(policy("")).build().unwrap();
    host.load_bytes(PluginId::new("numbers").unwrap(), component("")).await.unwrap();
    let calls = vec![ToolCall::new("1", "numbers__one", "{}")];
    let results = host.call_all(&host.view(Filter::default()), calls, TurnContext::default()).await;
    assert_eq!(results[0].result.as_ref().unwrap().value, "1");
}

#[tokio::test]
async fn a_component_that_imports_what_the_program_lacks_is_refused_with_the_feature() {
    let host = builder(policy("")).build().unwrap();
    let imports = r#"(import "wasi:http/types@0.2.3" (instance (export "fields" (type (sub resource)))))"#;
    let loaded = host.load_bytes(PluginId::new("web").unwrap(), component(imports)).await;
    assert_eq!(loaded.is_ok(), cfg!(feature = "net"));
    if let Err(error) = loaded {
        assert!(error.to_string().contains("`net`"), "{error}");
    }
}
