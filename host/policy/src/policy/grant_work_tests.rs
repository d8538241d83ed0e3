//! Bounds on the time to compute a grant and on its size.

use std::path::Path;
use std::time::{Duration, Instant};

use super::*;

fn wishes(kind: &CapabilityKind, targets: impl Iterator<Item = String>) -> Vec<Capability> {
    let wish = |target| Capability { kind: kind.clone(), target, optional: true, reason: None };
    targets.map(wish).collect()
}

/// The grants of one tool for targets of one kind, with these policy lines.
fn grants_for(kind: &CapabilityKind, lines: &[String], targets: impl Iterator<Item = String>) -> Grants {
    let key = GrantKey::for_kind(kind).unwrap().name();
    let lines: Vec<String> = lines.iter().map(|line| format!("{line:?}")).collect();
    let policy = format!(
        "version = 1\n[programs.git]\npath = \"/usr/bin/git\"\n[plugins.p.grant]\n{key} = [{}]",
        lines.join(", ")
    );
    let policy = Policy::parse(&policy, Path::new("/w"), None).unwrap();
    let (plugin, tool) = (PluginId::new("p").unwrap(), ToolName::new("t").unwrap());
    policy.grant(&plugin, &tool, &wishes(kind, targets), None)
}

#[test]
fn many_declarations_and_lines_are_merged_quickly() {
    let (a, most) = ("a".repeat(120), 32);
    let start = Instant::now();
    // No pattern covers another, and all pairs overlap.
    let words = (0..most).map(|n| format!("* *{a}{n:02}*{a}*"));
    assert_eq!(grants_for(&CapabilityKind::Process, &["git *".to_owned()], words).process.len(), most);
    let patterns = (0..most).map(|n| {
        format!("git {}", (0..8).map(|m| format!("*{n:02}*{m}* *")).collect::<Vec<_>>().join(" & "))
    });
    assert_eq!(grants_for(&CapabilityKind::Process, &["git *".to_owned()], patterns).process.len(), most);
    let paths = (0..most).map(|n| format!("**/*{a}{n:02}*/**/{a}*"));
    assert_eq!(grants_for(&CapabilityKind::FsRead, &["$workspace".to_owned()], paths).fs_read.len(), most);
    let deep = (0..most).map(|n| format!("{}/**/{}/x{n:02}", "/a".repeat(50), "a/".repeat(50)));
    assert_eq!(grants_for(&CapabilityKind::FsRead, &["**".to_owned()], deep).fs_read.len(), most);
    let lines: Vec<String> = (0..30).map(|n| format!("git c{n} *")).collect();
    let each = (0..most).map(|n| format!("* *c* *{n}* *"));
    assert_eq!(grants_for(&CapabilityKind::Process, &lines, each).process.len(), 240);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn the_rules_of_several_declarations_are_bounded() {
    let lines: Vec<String> = (0..300).map(|n| format!("/srv/{n}")).collect();
    let targets = ["**", "/srv/7/x", "**/*x*", "/srv/8/**"];
    let grants = grants_for(&CapabilityKind::FsRead, &lines, targets.iter().map(ToString::to_string));
    assert_eq!(grants.fs_read.len(), 300);
    assert!(grants.decisions.iter().all(|decision| !decision.granted.is_empty()));
    let grants = grants_for(
        &CapabilityKind::FsRead,
        &lines,
        ["**/*x*", "/srv/7", "**/*y*"].map(str::to_owned).into_iter(),
    );
    let hints: Vec<bool> =
        grants.missing().map(|d| d.hint().unwrap().to_string().contains("256 lines of `fs_read`")).collect();
    assert_eq!((grants.fs_read.len(), hints), (300, vec![true, true]));
}
