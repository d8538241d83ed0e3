//! Tests of the pattern syntax, and the laws of rules on generated ones.

use proptest::prelude::*;

use super::*;
use crate::rule::{covers, intersect_lists};

fn workspace() -> &'static Path {
    Path::new("/w")
}

fn rule(text: &str) -> ProgramRule {
    ProgramRule::parse(text, workspace()).unwrap_or_else(|error| panic!("{error}"))
}

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(ToString::to_string).collect()
}

/// A rule, argument lists that it allows, and argument lists that it refuses.
type Case = (&'static str, &'static [&'static [&'static str]], &'static [&'static [&'static str]]);

#[test]
fn arguments_are_matched_as_a_whole() {
    let cases: &[Case] = &[
        ("make", &[&[]], &[&[""], &["all"]]),
        (
            "git status",
            &[&["status"]],
            &[&[], &["status", "-s"], &["Status"], &["status "], &["-c", "status"]],
        ),
        ("git status *", &[&["status"], &["status", "-s", ""]], &[&["statusx"], &["-C", "/", "status"]]),
        ("git *", &[&[], &["-c", "x"]], &[]),
        (
            "git log -n <arg>",
            &[&["log", "-n", "5"], &["log", "-n", "a b"]],
            &[&["log", "-n"], &["log", "-n", ""], &["log", "-n", "--output=x"], &["log", "-n", "5", "x"]],
        ),
        ("cat <args>", &[&[], &["a", "b"], &["a-b"]], &[&["-"], &["a", "-n"], &["--", "a"], &["a", ""]]),
        (
            "git log --max-count=*",
            &[&["log", "--max-count="], &["log", "--max-count=5 6"]],
            &[&["log", "--max-count"], &["log", "x--max-count=5"], &["log", "--max-count=5", "x"]],
        ),
        (
            "cc *.c -o out",
            &[&["a.c", "-o", "out"], &[".c", "-o", "out"]],
            &[&["-x.c", "-o", "out"], &["--wrapper=x.c", "-o", "out"], &["a.h", "-o", "out"]],
        ),
        ("a x*y*z", &[&["xyz"], &["x--y//z"], &["xyyzz"]], &[&["xz"], &["xyzz "], &["zyx"]]),
        ("git -*", &[&["-"], &["--anything"]], &[&["status"], &["-a", "b"]]),
        ("echo \"two words\" 'it is'", &[&["two words", "it is"]], &[&["two", "words", "it", "is"]]),
        ("echo \"*\" '<arg>' \"&\" \"\"", &[&["*", "<arg>", "&", ""]], &[&["x", "y", "&", ""]]),
        ("echo pre\" fix\"*", &[&["pre fix"], &["pre fix!"]], &[&["prefix"]]),
        (r#"echo "a\"b\\c\n""#, &[&["a\"b\\c\n"]], &[]),
        (r"echo 'a\n'", &[&["a\\n"]], &[&["a\n"]]),
        ("git log * & <arg> -*", &[&["log", "-n"]], &[&["log", "n"], &["show", "-n"], &["log", "-n", "1"]]),
        ("  git \t status  ", &[&["status"]], &[]),
        ("echo $HOME;ls|x `y` $(z)", &[&["$HOME;ls|x", "`y`", "$(z)"]], &[&["/root"]]),
    ];
    for (text, yes, no) in cases {
        let rule = rule(text);
        for arguments in *yes {
            assert!(rule.allows(rule.program(), &words(arguments)), "`{text}` must allow {arguments:?}");
        }
        for arguments in *no {
            assert!(!rule.allows(rule.program(), &words(arguments)), "`{text}` must not allow {arguments:?}");
        }
        assert!(!rule.allows("other", &words(yes.first().copied().unwrap_or_default())), "{text}");
    }
}

#[test]
fn an_invalid_line_is_refused_with_the_reason() {
    for (text, part) in [
        ("", "name of a program"),
        ("/bin/sh -c x", "not a path"),
        ("./git", "not a path"),
        ("../git", "not a path"),
        ("-x", "name of a program"),
        ("g*t status", "name of a program"),
        ("\"git\" status", "name of a program"),
        ("git * status", "last"),
        ("git <args> x", "last"),
        ("git log * & * --oneline", "last"),
        ("git <file>", "<arg>"),
        ("git a\\ b", "backslash"),
        ("git \"open", "not closed"),
        ("git 'open", "not closed"),
        ("git \"\\x\"", "double quotes"),
        ("git a\0b", "zero byte"),
        ("git \"a\0b\"", "zero byte"),
        ("git status & log", "no arguments match"),
        ("git & status *", "no arguments match"),
    ] {
        let error = ProgramRule::parse(text, workspace()).unwrap_err();
        assert!(error.contains(part), "{text:?}: {error}");
    }
    assert!(ProgramRule::parse(&format!("git {}", "x".repeat(1000)), workspace()).is_err());
}

#[test]
fn a_declaration_of_a_name_asks_for_all_arguments() {
    let wish = |text: &str| ProgramRule::parse_declared(text, workspace()).unwrap();
    assert_eq!(wish("git"), rule("git *"));
    assert_eq!(wish("*"), rule("* *"));
    assert_eq!(wish("git status"), rule("git status"));
    assert_eq!(rule("* --version").intersect(&rule("git *")), Some(rule("git --version")));
    // The proposed line is valid in a policy.
    assert_eq!(rule(&wish("*").proposed_line(workspace())).program(), "PROGRAM");
    assert_eq!(wish("git").proposed_line(workspace()), "git *");
}

#[test]
fn an_intersection_is_the_narrower_rule_if_one_covers_the_other() {
    for (left, right, both) in [
        ("git *", "git status *", Some("git status *")),
        ("git status *", "git status --short", Some("git status --short")),
        ("git <args>", "git status <arg>", Some("git status <arg>")),
        ("git <args>", "git status", Some("git status")),
        ("git <args>", "git -*", None),
        ("git <args>", "git", Some("git")),
        ("git", "git *", Some("git")),
        ("git", "git status", None),
        ("git status *", "git log *", None),
        ("git status *", "make *", None),
        ("* *", "git status *", Some("git status *")),
        ("cc *.c", "cc a*", Some("cc *.c & a*")),
        ("cc *.c", "cc -*", None),
        ("cc *.c", "cc <arg>", Some("cc *.c")),
        ("cc a*b", "cc a*", Some("cc a*b")),
        ("cc a*", "cc b*", None),
        ("cc *a*b*", "cc *b*a*", Some("cc *a*b* & *b*a*")),
        ("cc \"\"", "cc <arg>", None),
    ] {
        let met = rule(left).intersect(&rule(right));
        assert_eq!(met, both.map(rule), "{left} and {right}");
        assert_eq!(met, rule(right).intersect(&rule(left)), "{left} and {right}");
    }
}

#[test]
fn a_guests_command_line_becomes_a_rule_that_allows_only_it() {
    for arguments in [
        words(&[]),
        words(&["status"]),
        words(&["*", "a*", "<arg>", "<args>", "<x", "&", "", " ", "a b", "'", "\"", "\\", "a\nb\tc\r", "-"]),
        words(&["ä & ö", "&&", "a&", "$(x)", "`y`", "#", "{a,b}", "[a]", "~"]),
    ] {
        let exact = ProgramRule::exact("git", &arguments);
        let shown = exact.show(workspace());
        assert_eq!(rule(&shown), exact, "{shown}");
        assert!(exact.allows("git", &arguments), "{shown}");
        let mut more = arguments.clone();
        more.push("x".to_owned());
        assert!(!exact.allows("git", &more), "{shown}");
    }
}

/// Texts over few characters, so that patterns overlap often.
fn an_argument() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[ab-]{0,3}", 1 => "[ab* \"'&<>\\\\\n-]{0,4}"]
}

fn a_line() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[ab*-]{1,4}".prop_filter("last only", |text| text.chars().any(|c| c != '*')),
        1 => Just("<arg>".to_owned()),
        1 => Just("\"\"".to_owned()),
        1 => Just("'a b'".to_owned()),
    ];
    let end = prop_oneof![3 => Just(""), 1 => Just(" *"), 1 => Just(" <args>")];
    let pattern = (proptest::collection::vec(part, 0..4), end)
        .prop_map(|(parts, end)| format!(" {}{end}", parts.join(" ")));
    let program = prop_oneof![4 => Just("git"), 1 => Just("make"), 1 => Just("*")];
    (program, proptest::collection::vec(pattern, 1..3))
        .prop_map(|(program, patterns)| format!("{program}{}", patterns.join(" &")))
}

fn a_rule() -> impl Strategy<Value = ProgramRule> {
    a_line().prop_filter_map("excludes itself", |line| ProgramRule::parse(&line, workspace()).ok())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_of_rules_hold(a in a_rule(), b in a_rule(), c in a_rule()) {
        prop_assert_eq!(a.intersect(&a), Some(a.clone()));
        prop_assert_eq!(a.intersect(&b), b.intersect(&a));
        if let Some(both) = a.intersect(&b) {
            prop_assert!(covers(&a, &both) && covers(&b, &both), "{:?}", both);
            // The intersection of three rules does not depend on the order.
            let left = both.intersect(&c);
            let right = b.intersect(&c).and_then(|right| a.intersect(&right));
            prop_assert_eq!(left, right);
        }
        prop_assert_eq!(covers(&a, &b), a.intersect(&b).as_ref() == Some(&b), "{:?} {:?}", a, b);
        let all = intersect_lists(&[a.clone(), b.clone()], std::slice::from_ref(&c));
        prop_assert!(all.iter().all(|one| covers(&c, one)));
    }

    #[test]
    fn a_shown_rule_parses_back(a in a_rule()) {
        prop_assert_eq!(rule(&a.show(workspace())), a);
    }

    #[test]
    fn an_intersection_allows_what_both_rules_allow(a in a_rule(), b in a_rule(), line in proptest::collection::vec(an_argument(), 0..5)) {
        for program in ["git", "make"] {
            let both = a.intersect(&b).is_some_and(|both| both.allows(program, &line));
            prop_assert_eq!(both, a.allows(program, &line) && b.allows(program, &line), "{} {:?}", program, line);
        }
        if covers(&a, &b) && b.allows("git", &line) {
            prop_assert!(a.allows("git", &line));
        }
    }

    #[test]
    fn an_exact_rule_allows_only_its_command_line(line in proptest::collection::vec(an_argument(), 0..4), other in proptest::collection::vec(an_argument(), 0..4)) {
        let exact = ProgramRule::exact("git", &line);
        let read = rule(&exact.show(workspace()));
        prop_assert!(read.allows("git", &line));
        prop_assert_eq!(read.allows("git", &other), line == other);
    }

    #[test]
    fn every_parsed_text_parses_back(text in "\\PC{0,40}") {
        if let Ok(rule) = ProgramRule::parse(&text, workspace()) {
            prop_assert_eq!(ProgramRule::parse(&rule.show(workspace()), workspace()), Ok(rule));
        }
    }
}
