//! Makes the links of a page absolute (RFC 3986, section 5.2, as far as pages need it). The host parses and checks each
//! address again before it sends a request.

/// The longest link that is kept. A page that repeats a longer one thousands of times would fill the output.
const MAX_BYTES: usize = 2000;

/// Returns a link as an absolute address; `None` if it is invalid or points into the page itself.
pub(crate) fn join(base: &str, link: &str) -> Option<String> {
    let link: String = link.trim().chars().filter(|c| !c.is_control()).map(encoded).collect();
    let link = link.split_once('#').map_or(link.as_str(), |(before, _)| before);
    if link.is_empty() {
        return None;
    }
    let joined = match scheme(link) {
        Some("http" | "https" | "mailto") => link.to_owned(),
        Some(_) => return None,
        None => relative(base, link)?,
    };
    (joined.len() <= MAX_BYTES).then_some(joined)
}

/// A space or a bracket in an address would end a Markdown link.
fn encoded(c: char) -> String {
    match c {
        ' ' => "%20".to_owned(),
        '(' => "%28".to_owned(),
        ')' => "%29".to_owned(),
        '<' => "%3C".to_owned(),
        '>' => "%3E".to_owned(),
        c => c.to_string(),
    }
}

fn scheme(link: &str) -> Option<&str> {
    let (scheme, _) = link.split_once(':')?;
    let sound = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let known = ["http", "https", "mailto"].into_iter().find(|known| scheme.eq_ignore_ascii_case(known));
    sound.then(|| known.unwrap_or("other"))
}

fn relative(base: &str, link: &str) -> Option<String> {
    let (scheme, rest) = base.split_once("://")?;
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if let Some(link) = link.strip_prefix("//") {
        return Some(format!("{scheme}://{link}"));
    }
    let (link_path, query) = link.find('?').map_or((link, ""), |at| link.split_at(at));
    let whole = if link_path.starts_with('/') {
        link_path.to_owned()
    } else if link_path.is_empty() {
        path.to_owned()
    } else {
        let folder = path.rfind('/').map_or("/", |at| path.get(..=at).unwrap_or("/"));
        format!("{folder}{link_path}")
    };
    Some(format!("{scheme}://{authority}{}{query}", without_dots(&whole)))
}

fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').skip(1) {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    if path.ends_with("/.") || path.ends_with("/..") {
        parts.push("");
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_absolute() {
        let base = "https://example.com/a/b/page.html?x=1";
        for (link, address) in [
            ("c.html", Some("https://example.com/a/b/c.html")),
            ("../c", Some("https://example.com/a/c")),
            ("../../../../c", Some("https://example.com/c")),
            ("./", Some("https://example.com/a/b/")),
            ("..", Some("https://example.com/a/")),
            ("/c?d=e#f", Some("https://example.com/c?d=e")),
            ("?y=2", Some("https://example.com/a/b/page.html?y=2")),
            ("//other.example/x", Some("https://other.example/x")),
            ("http://other.example", Some("http://other.example")),
            ("HTTPS://other.example/(x y)", Some("HTTPS://other.example/%28x%20y%29")),
            ("mailto:me@example.com", Some("mailto:me@example.com")),
            ("java\nscript:alert(1)", None),
            ("javascript:alert(1)", None),
            ("data:text/html,x", None),
            ("file:///etc/passwd", None),
            ("#top", None),
            ("  ", None),
            ("a/b:c", Some("https://example.com/a/b/a/b:c")),
        ] {
            assert_eq!(join(base, link).as_deref(), address, "{link:?}");
        }
        assert_eq!(join("https://example.com", "a").as_deref(), Some("https://example.com/a"));
        assert_eq!(join(base, &"x".repeat(3000)), None);
        assert_eq!(join("nonsense", "a"), None);
    }
}
