use super::*;
use proptest::prelude::*;

const TEXT: &str = "one\ntwo Error\nthree\nfour error\nfive\n";

fn grep_for(pattern: &str, regular: bool, ignore_case: bool, around: usize) -> TextQuery {
    TextQuery::Grep { pattern: SearchPattern::new(pattern, regular, ignore_case).unwrap(), around }
}

#[test]
fn each_query_is_answered() {
    let all = "1: one\n2: two Error\n3: three\n4: four error\n5: five";
    for (question, expect) in [
        (TextQuery::Head(2), "First 2 of 5 lines\n1: one\n2: two Error".to_owned()),
        (TextQuery::Head(0), "First 0 of 5 lines".to_owned()),
        (TextQuery::Tail(2), "Last 2 of 5 lines\n4: four error\n5: five".to_owned()),
        (TextQuery::Tail(usize::MAX), format!("Last 5 of 5 lines\n{all}")),
        (TextQuery::Head(100), format!("First 5 of 5 lines\n{all}")),
        (TextQuery::Lines(2, 3), "Lines 2 to 3 of 5\n2: two Error\n3: three".to_owned()),
        (TextQuery::Lines(0, 1), "Lines 1 to 1 of 5\n1: one".to_owned()),
        (TextQuery::Lines(4, 2), "Lines 4 to 2 of 5".to_owned()),
        (TextQuery::Lines(usize::MAX, usize::MAX), format!("Lines {} to 5 of 5", usize::MAX)),
        (TextQuery::Chars(3, 7), "Characters 3 to 7 of 36\ne\ntwo".to_owned()),
        (TextQuery::Chars(35, usize::MAX), "Characters 35 to 36 of 36\ne\n".to_owned()),
        (TextQuery::Chars(7, 3), "Characters 7 to 3 of 36".to_owned()),
        (grep_for("error", false, false, 0), "1 of 5 lines match \"error\"\n4: four error".to_owned()),
        (
            grep_for("ERROR", false, true, 1),
            "2 of 5 lines match \"ERROR\"\n1: one\n2: two Error\n3: three\n4: four error\n5: five".to_owned(),
        ),
        (grep_for("^f.*e$", true, false, 0), "1 of 5 lines match \"^f.*e$\"\n5: five".to_owned()),
        (grep_for("^f.*e$", false, false, 0), "0 of 5 lines match \"^f.*e$\"".to_owned()),
        (grep_for("one|five", true, false, 0), "2 of 5 lines match \"one|five\"\n1: one\n5: five".to_owned()),
        (TextQuery::Size, "5 lines, 36 characters, 36 bytes, about 9 tokens".to_owned()),
    ] {
        assert_eq!(answer(TEXT, &question, 1000), expect, "{question:?}");
    }
    assert!(answer(TEXT, &grep_for("o", false, false, 1), 1000).contains("1: one"));
    let apart = answer("a\nb\nc\nd\ne\nf\na\n", &grep_for("a", false, false, 1), 1000);
    assert_eq!(apart, "2 of 7 lines match \"a\"\n1: a\n2: b\n--\n6: f\n7: a");
}

/// Follows the notes from one answer to the next.
#[test]
fn following_the_notes_reads_the_whole_text() {
    let many: String = (0..500).map(|n| format!("line {n}\n")).collect();
    let (mut from, mut read) = (1, String::new());
    loop {
        let page = answer(&many, &TextQuery::Lines(from, usize::MAX), 1000);
        assert!(page.chars().count() <= 1000);
        for line in page.lines().skip(1).filter(|line| !line.starts_with('[')) {
            read.push_str(line.split_once(": ").unwrap().1);
            read.push('\n');
        }
        let Some((_, next)) = page.split_once("ask for `lines` from ") else { break };
        from = next.trim_end_matches(']').parse().unwrap();
    }
    assert_eq!(read, many);

    let wide = format!("head\n{}", "äx".repeat(5000));
    let page = answer(&wide, &TextQuery::Head(9), 1000);
    assert!(page.ends_with("1: head\n[no room for more: ask for `lines` from 2]"), "{page}");
    let page = answer(&wide, &TextQuery::Lines(2, 2), 1000);
    let next = page.split_once("ask for `chars` from ").unwrap().1.trim_end_matches(']').parse().unwrap();
    let shown = page.lines().nth(1).unwrap().split_once(": ").unwrap().1;
    let after = answer(&wide, &TextQuery::Chars(next, next + 9), 1000);
    assert_eq!(
        format!("head\n{shown}{}", after.split_once('\n').unwrap().1),
        wide.chars().take(next + 9).collect::<String>()
    );

    let end = answer(&wide, &TextQuery::Tail(1), 1000);
    assert!(end.ends_with("äx") && end.starts_with("Characters "), "{end}");
    let end = answer(&many, &TextQuery::Tail(400), 1000);
    assert!(end.ends_with("500: line 499") && end.contains("read `lines` up to "), "{end}");
}

#[test]
fn a_match_in_a_long_line_is_shown_with_its_position() {
    let line = format!("{}needle{}", "é".repeat(100_000), "y".repeat(100_000));
    let text = format!("first\n{line}\nlast\n");
    let page = answer(&text, &grep_for("needle", false, false, 0), 5000);
    assert!(page.contains("needle") && page.chars().count() < 1000, "{page}");
    let from: usize = page.split_once("`chars` ").unwrap().1.split_once(')').unwrap().0.parse().unwrap();
    let there = answer(&text, &TextQuery::Chars(from, from + 205), 1000);
    assert!(there.ends_with("needle"), "{there}");
}

#[test]
fn a_search_is_bounded() {
    for (pattern, part) in [
        ("", "empty"),
        ("(", "not a valid regular expression"),
        ("(?:a{1000}){1000}", "too large"),
        (&"x".repeat(MAX_PATTERN + 1), "longer"),
        (&"(".repeat(900), "not a valid regular expression"),
    ] {
        let error = SearchPattern::new(pattern, true, false).unwrap_err();
        assert!(error.contains(part), "{pattern:.20}: {error}");
    }
    let start = Instant::now();
    let text = "a".repeat(16 << 20);
    let page = answer(&text, &grep_for("(a|b|ab)*c[a-z]{1,60}z", true, true, 0), 1000);
    assert!(start.elapsed() < Duration::from_secs(60), "{page}");
    let breaks = "\n".repeat(4 << 20);
    let page = answer(&breaks, &grep_for("^", true, false, 50), 1000);
    assert!(page.chars().count() <= 1000 && page.contains("no room for more"), "{page}");
}

proptest! {
    #[test]
    fn an_answer_never_exceeds_its_limit(
        text in "(?s)(.{0,9}|\n|é|x{500}){0,60}", most in 0usize..900, a in 0usize..30, b in 0usize..300, word in "[a-z.]{1,3}"
    ) {
        for question in [
            TextQuery::Head(a),
            TextQuery::Tail(a),
            TextQuery::Lines(a, b),
            TextQuery::Chars(a, b),
            grep_for(&word, a % 3 == 0, a % 2 == 0, b % 5),
            TextQuery::Size,
        ] {
            let length = answer(&text, &question, most).chars().count();
            prop_assert!(length <= most, "{question:?}: {length} > {most}");
        }
    }
}
