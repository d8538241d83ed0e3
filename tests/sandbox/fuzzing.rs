//! Runs each target of the fuzzer for a second in its own process. `cargo xtask fuzz` runs them longer.

use std::time::Duration;

use integration_tests::in_a_process;

fn one_second(target: &str) {
    let name = format!("sandbox::fuzzing::{}", target.replace('-', "_"));
    if in_a_process(&name, "ulimit -c 0") {
        return;
    }
    let target = fuzz::TARGETS.iter().find(|known| known.name == target).unwrap();
    let run = fuzz::run(target, Duration::from_secs(1), 1).unwrap_or_else(|problem| panic!("{problem}"));
    assert!(run.inputs > 0, "{run:?}");
}

macro_rules! targets {
    ($($name:ident: $target:literal;)*) => {
        $(#[test]
        fn $name() {
            one_second($target);
        })*

        #[test]
        fn every_target_is_run() {
            let run = [$($target),*];
            let all: Vec<_> = fuzz::TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(run[..], all[..]);
        }
    };
}

targets! {
    policy: "policy";
    rule_reach: "rule-reach";
    rule_net: "rule-net";
    rule_program: "rule-program";
    rule_secret: "rule-secret";
    rule_kv: "rule-kv";
    rule_env: "rule-env";
    rule_attachment: "rule-attachment";
    rule_invoke: "rule-invoke";
    name: "name";
    quantity: "quantity";
    text: "text";
    json: "json";
    schema: "schema";
    manifest: "manifest";
    definitions: "definitions";
    load: "load";
}
