//! The readable text of an HTML page that a service sends as an error. It is text for a model, not a parser of HTML:
//! nothing in the page is followed or run.

/// The part of a page that is read, in characters.
const MAX_PAGE: usize = 256 << 10;
/// The longest reference to a character, in bytes: `&thetasym;`.
const MAX_REFERENCE: usize = 10;
/// Elements whose content no reader sees.
const HIDDEN: [&str; 6] = ["script", "style", "template", "svg", "noscript", "head"];

/// The text of a page in one line, of at most `most` characters.
pub(crate) fn html_text(page: &str, most: usize) -> String {
    let end = page.char_indices().nth(MAX_PAGE).map_or(page.len(), |(at, _)| at);
    let mut rest = page.get(..end).unwrap_or_default();
    let (mut out, mut length) = (String::new(), 0);
    while !rest.is_empty() && length < most {
        let (text, after) = rest.split_at_checked(next_tag(rest)).unwrap_or((rest, ""));
        for word in unescape(text).split_whitespace() {
            // A word that a tag interrupts is rare; two words that a tag separates are not.
            let gap = if out.is_empty() { "" } else { " " };
            length += gap.len() + word.chars().count();
            out.extend([gap, word]);
        }
        rest = after_tag(after);
    }
    out.chars().take(most).collect()
}

/// Where the next tag or comment is, or the end. Any other `<` is text.
fn next_tag(text: &str) -> usize {
    let begins = |(at, _): &(usize, &str)| {
        let next = text.as_bytes().get(at + 1);
        next.is_some_and(|b| b.is_ascii_alphabetic() || matches!(b, b'/' | b'!' | b'?'))
    };
    text.match_indices('<').find(begins).map_or(text.len(), |(at, _)| at)
}

/// What follows a tag, a comment or a hidden element. The text begins with a tag, or is empty.
fn after_tag(text: &str) -> &str {
    if text.starts_with("<!--") {
        return from(text, text.find("-->").map(|at| at + 3));
    }
    let inside = text.get(1..).unwrap_or_default();
    let rest = from(text, text.find('>').map(|at| at + 1));
    let name: String = inside.chars().take_while(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase();
    if name == "head" {
        // Its title is readable.
        let end = find_tag(rest, "</head").unwrap_or(rest.len());
        let title = rest.get(..end).and_then(|head| find_tag(head, "<title"));
        return from(rest, title.or(Some(end)));
    }
    if !HIDDEN.contains(&name.as_str()) {
        return rest;
    }
    from(rest, find_tag(rest, &format!("</{name}")))
}

/// The end of a text from a place, if there is one.
fn from(text: &str, at: Option<usize>) -> &str {
    at.and_then(|at| text.get(at..)).unwrap_or_default()
}

/// Where a tag is. `tag` is in lower case.
fn find_tag(text: &str, tag: &str) -> Option<usize> {
    let found = |window: &[u8]| window.eq_ignore_ascii_case(tag.as_bytes());
    text.as_bytes().windows(tag.len()).position(found)
}

/// A text with its references to characters replaced.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let end = after.bytes().take(MAX_REFERENCE + 1).position(|b| b == b';');
        let found = end.and_then(|end| Some((character(after.get(..end)?)?, after.get(end + 1..)?)));
        rest = if let Some((character, after)) = found {
            out.push(character);
            after
        } else {
            out.push('&');
            after
        };
    }
    out + rest
}

/// The character of a reference without `&` and `;`.
fn character(name: &str) -> Option<char> {
    let number = name.strip_prefix('#').and_then(|digits| match digits.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    });
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" => Some(' '),
        "copy" => Some('©'),
        "ndash" => Some('–'),
        "mdash" => Some('—'),
        _ => number.and_then(char::from_u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readable_text_of_a_page_remains() {
        for (page, text) in [
            ("<html>oops</html>", "oops"),
            (
                "<HTML><Head><style>a{}</style><title>502 Bad\n Gateway</title><script>x()</script></head><body><h1>Bad</h1><p>up&shy;&amp;down</p>",
                "502 Bad Gateway Bad up&shy;&down",
            ),
            ("<head><meta a></head><body>b", "b"),
            ("<script>if (a < b) alert('<p>x</p>')</script>y<!-- no <b>z</b> --> w", "y w"),
            (
                "a < b &#60;b&#x3e; &lt;script&gt; &unknown; & &#xffffffff;",
                "a < b <b> <script> &unknown; & &#xffffffff;",
            ),
            ("<p>one<br>two</p><svg><text>no</text></svg>", "one two"),
            ("x <unclosed", "x"),
            ("<script>never closed", ""),
            ("plain text", "plain text"),
            ("", ""),
            ("é<ü>&é;", "é<ü>&é;"),
        ] {
            assert_eq!(html_text(page, 1000), text, "{page}");
        }
    }

    #[test]
    fn the_text_of_a_page_is_bounded() {
        assert_eq!(html_text(&"ab ".repeat(1_000_000), 10).chars().count(), 10);
        for page in ["<head>", "<head></head>", "<", "<script>", "<!--", "&", "<p>", "&#60;"] {
            assert!(html_text(&page.repeat(200_000), 100).chars().count() <= 100, "{page}");
        }
    }
}
