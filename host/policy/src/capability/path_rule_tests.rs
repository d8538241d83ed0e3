//! Tests of [`super`].

use super::*;
use crate::rule::{covers, intersect_lists};

use proptest::prelude::*;

const W: &str = "/home/me/project";

fn parse(text: &str) -> Result<PathRule, String> {
    PathRule::parse(text, Path::new(W))
}

fn reach(text: &str) -> PathRule {
    parse(text).unwrap()
}

fn list(texts: &[&str]) -> Result<Vec<PathRule>, PolicyProblem> {
    let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
    PathRule::parse_list(&texts, Path::new(W))
}

#[test]
fn a_rule_is_shown_in_its_canonical_form() {
    for (text, path, shown) in [
        ("$workspace", W, "$workspace"),
        ("$workspace/**", W, "$workspace"),
        ("$workspace/", W, "$workspace"),
        ("$workspace/a/../b/./c", "/home/me/project/b/c", "$workspace/b/c"),
        ("/srv/data/**", "/srv/data", "/srv/data"),
        ("//srv//data/", "/srv/data", "/srv/data"),
        ("**", "/", "/"),
        ("/", "/", "/"),
        ("/srv/*.csv", "/srv", "/srv/*.csv"),
        ("**/*.rs", "/", "**/*.rs"),
        ("$workspace/**/*.rs", W, "$workspace/**/*.rs"),
        ("/srv/*/out/**", "/srv", "/srv/*/out/**"),
        ("/a\\*b", "/a*b", "/a\\*b"),
        ("/a\\[1]/*", "/a[1]", "/a\\[1]/*"),
        ("/R&D", "/R&D", "/R&D"),
        ("/R \\& D", "/R & D", "/R \\& D"),
        ("/srv & !**/.env", "/srv", "/srv & !**/.env"),
        ("/srv & /srv/a", "/srv/a", "/srv/a"),
        ("/srv/a & /srv/*/b*", "/srv/a", "/srv/a & /srv/*/b*"),
        ("/srv & !/etc", "/srv", "/srv"),
        ("/srv/a & /srv/*/**", "/srv/a", "/srv/a"),
    ] {
        let reach = reach(text);
        assert_eq!((reach.folder(), reach.show(Path::new(W)).as_str()), (Path::new(path), shown), "{text}");
        assert_eq!(parse(shown), Ok(reach), "{shown} parses back");
    }
    let long = format!("/{}", "x".repeat(600));
    for text in [
        "",
        "notes",
        "./notes",
        "*.rs",
        "~/x",
        "~",
        "$HOME/x",
        "$workspacex",
        "/..",
        "/a/../../b",
        "/*/../b",
        "/a\0",
        "!/a",
        "!**/.env",
        "/a & !/a",
        "/a & !/",
        "/a & /b",
        "/a & ",
        "/a**",
        "/[",
        "/{a,b}",
        &long,
    ] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn exclusions_apply_to_all_lines_of_a_list() {
    let workspace = Path::new(W);
    let rules =
        list(&["$workspace/**", "!**/.env", "!**/.git/**", "/srv/*.csv", "$workspace/src/**/*.rs"]).unwrap();
    assert_eq!(rules.len(), 3);
    assert!(rules.iter().all(|rule| !rule.allows(Path::new("/srv/.env"))
        && !rule.allows_at_or_below(Path::new("/home/me/project/.git/x"))));
    let shown = PathRule::show_list(&rules, workspace);
    assert_eq!(shown, ["$workspace", "/srv/*.csv", "$workspace/src/**/*.rs", "!**/.env", "!**/.git"]);
    assert_eq!(PathRule::parse_list(&shown, workspace).unwrap(), rules);
    let mixed = [reach("/srv & !/srv/x"), reach("/opt")];
    let shown = PathRule::show_list(&mixed, workspace);
    assert_eq!(shown, ["/srv & !/srv/x", "/opt"], "an exclusion of one rule is shown with it");
    assert!(list(&["!**/.env"]).unwrap_err().message.contains("a list of exclusions"));
    assert!(list(&["/srv/a", "!/srv"]).unwrap_err().message.contains("covers it"));
    assert_eq!(list(&[]).unwrap(), []);
}

#[test]
fn the_workspace_is_proposed_for_a_declaration_of_everything() {
    for (asked, proposed) in [
        ("**", "$workspace"),
        ("**/*.rs", "$workspace & **/*.rs"),
        ("/srv", "/srv"),
        ("$workspace/a", "$workspace/a"),
    ] {
        assert_eq!(reach(asked).proposed_line(Path::new(W)), proposed);
        assert!(covers(&reach(asked), &reach(proposed)));
    }
}

#[test]
fn an_excluded_path_names_its_line() {
    let rule = reach("$workspace & !**/.env & !$workspace/private");
    let why = |path: &str| rule.excluded_by(Path::new(path), Path::new(W));
    assert_eq!(why("/home/me/project/a/.env").as_deref(), Some("!**/.env"));
    assert_eq!(why("/home/me/project/private/x").as_deref(), Some("!$workspace/private"));
    assert_eq!((why("/home/me/project/x"), why("/srv/.env")), (None, None));
    let without = reach("/home/me").without_path(Path::new("/home/me/.ssh")).unwrap();
    assert!(
        !without.allows_at_or_below(Path::new("/home/me/.ssh/id"))
            && without.allows(Path::new("/home/me/.sshx"))
    );
    assert_eq!(reach("/home/me").without_path(Path::new("/home")), None);
}

#[test]
fn an_intersection_is_included_in_both_rules() {
    let cases = ["**", "$workspace", "$workspace/a", "$workspace/a/b", "/srv", "/srv/x", "/other"].map(reach);
    for left in &cases {
        for right in &cases {
            let both = intersect_lists(std::slice::from_ref(left), std::slice::from_ref(right));
            assert!(
                both.iter().all(|r| left.allows(r.folder()) && right.allows(r.folder())),
                "{left:?} {right:?}"
            );
            assert_eq!(both, intersect_lists(std::slice::from_ref(right), std::slice::from_ref(left)));
        }
    }
    assert_eq!(intersect_lists(&cases, &[]), []);
    let kept = intersect_lists(&[reach("**")], &[reach("/srv/x"), reach("/srv"), reach("/srv")]);
    assert_eq!(kept, [reach("/srv")], "a covered rule is dropped");
}

/// Checks the table of the documentation: `| line | path | yes or no |`.
#[test]
fn the_documentation_table_is_true() {
    let page = include_str!("../../../../docs/reference/capabilities/files.md");
    let cells = |row: &str| row.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    let rows = page.lines().skip_while(|line| !line.starts_with("| list | path")).skip(2);
    let rows: Vec<_> = rows.take_while(|line| line.starts_with('|')).map(cells).collect();
    assert!(!rows.is_empty());
    for row in rows {
        let [lines, path, expected] = row.as_slice() else { panic!("{row:?}") };
        let lines: Vec<String> = lines.split("`, `").map(|line| line.trim_matches('`').to_owned()).collect();
        let path = path.trim_matches('`').replace("$workspace", W);
        let rules = PathRule::parse_list(&lines, Path::new(W)).unwrap_or_else(|e| panic!("{row:?}: {e}"));
        let allowed = rules.iter().any(|rule| rule.allows(Path::new(&path)));
        assert_eq!(if allowed { "yes" } else { "no" }, expected, "{row:?}");
    }
}

fn pattern() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "ab", ".e", "a*", "*b", "?", "[ab]", "**", "*"]);
    let start = prop::sample::select(vec!["/", "$workspace/", "/a/"]);
    (start, prop::collection::vec(name, 0..4))
        .prop_map(|(start, names)| format!("{start}{}", names.join("/")))
}

fn line() -> impl Strategy<Value = String> {
    (pattern(), prop::collection::vec(pattern(), 0..3)).prop_map(|(line, except)| {
        [line].into_iter().chain(except.into_iter().map(|e| format!("!{e}"))).collect::<Vec<_>>().join(AND)
    })
}

fn path() -> impl Strategy<Value = PathBuf> {
    let name = prop::sample::select(vec!["a", "b", "ab", ".e", "c", "bb"]);
    (any::<bool>(), prop::collection::vec(name, 0..5)).prop_map(|(inside, names)| {
        let base = PathBuf::from(if inside { W } else { "/" });
        names.into_iter().fold(base, |path, name| path.join(name))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_laws_of_a_rule(left in line(), right in line(), paths in prop::collection::vec(path(), 20)) {
        let workspace = Path::new(W);
        let (Ok(left), Ok(right)) = (parse(&left), parse(&right)) else { return Ok(()) };
        let both = left.intersect(&right);
        prop_assert_eq!(&both, &right.intersect(&left));
        prop_assert_eq!(left.intersect(&left), Some(left.clone()));
        for path in &paths {
            let allowed = both.as_ref().is_some_and(|both| both.allows(path));
            prop_assert_eq!(allowed, left.allows(path) && right.allows(path), "{:?}", path);
            if left.allows(path) {
                prop_assert!(path.ancestors().take_while(|p| p.starts_with(left.folder())).all(|p| left.allows_at_or_below(p)));
                prop_assert_eq!(left.excluded_by(path, workspace), None);
            }
        }
        prop_assert_eq!(covers(&left, &right), both.as_ref() == Some(&right), "{:?} {:?}", left, right);
        if let Some(both) = both {
            prop_assert!(covers(&left, &both) && covers(&right, &both));
            prop_assert_eq!(parse(&both.show(workspace)), Ok(both));
        }
        prop_assert_eq!(parse(&left.show(workspace)), Ok(left.clone()));
        let pair = [left, right];
        prop_assert_eq!(PathRule::parse_list(&PathRule::show_list(&pair, workspace), workspace), Ok(pair.to_vec()));
    }
}

/// Found by fuzzing: an escaped `..` was treated as a name and led out of the folder that covers it.
#[test]
fn an_escaped_dot_name_is_refused() {
    let workspace = Path::new("/w");
    for text in
        ["/srv/.\\./etc", "/srv/\\../etc", "/srv/\\.\\./etc", "/srv/\\./etc", "$workspace/\\.\\.", "**/\\.."]
    {
        assert!(PathRule::parse(text, workspace).is_err(), "{text}");
        assert!(PathRule::parse(&format!("/srv/** & !{text}"), workspace).is_err(), "{text}");
    }
    let odd = PathRule::parse("/srv/.\\.\\.", workspace).unwrap();
    assert_eq!(odd.folder(), Path::new("/srv/..."), "three dots are a name");
}

proptest! {
    /// Comparing bytes gives the same result as comparing path components.
    #[test]
    fn path_names_are_compared_as_a_whole(path in "/?([a.]{0,2}/){0,3}[a.]{0,2}", folder in "(/(a|aa|\\.a)){0,3}") {
        let parts = |path: &Path| {
            let mut out = PathBuf::from("/");
            for part in path.components() {
                match part {
                    Component::ParentDir if !out.pop() => return None,
                    Component::Normal(name) => out.push(name),
                    _ => {}
                }
            }
            Some(out)
        };
        let (path, folder) = (PathBuf::from("/").join(path), PathBuf::from("/").join(folder));
        let normal = normalize(&path);
        prop_assert_eq!(&normal, &parts(&path));
        if let Some(normal) = normal {
            prop_assert!(!normal.to_string_lossy().contains("//") && !normal.to_string_lossy().contains("/./"));
            prop_assert_eq!(is_below(&normal, &folder), normal.starts_with(&folder), "{:?} {:?}", normal, folder);
        }
    }
}
