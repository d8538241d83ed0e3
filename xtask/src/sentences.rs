//! `sentences`: draws sentences at random from comments, messages and documentation, for a review of the prose.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::tidy::{self, Source};

const DRAWN: usize = 50;
/// Shorter texts are headings, keys and formats.
const MIN_WORDS: usize = 4;
/// Texts of others.
const EXCLUDED: [&str; 3] = ["tests/data/", "/bindings/", "LICENSE"];

/// Prints as many sentences as a review judges. The same seed and tree give the same sentences.
pub(crate) fn run(workspace: &Path, seed: &str) -> Result<()> {
    let mut state: u64 = seed.parse().context("the seed is a whole number")?;
    let sources = tidy::read(workspace)?;
    let mut sentences: Vec<(String, String)> = Vec::new();
    for source in sources.iter().filter(|source| !EXCLUDED.iter().any(|part| source.path.contains(part))) {
        sentences.extend(collect(source));
    }
    println!("{} sentences, {DRAWN} drawn with seed {seed}", sentences.len());
    for number in 1..=DRAWN.min(sentences.len()) {
        let (place, sentence) = sentences.swap_remove(draw(&mut state, sentences.len()));
        println!("{number:>2}. {place}: {sentence}");
    }
    Ok(())
}

/// A number below `end`: splitmix64.
fn draw(state: &mut u64, end: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap_or_default()
}

/// The sentences of a file, each with its path and line.
fn collect(source: &Source) -> Vec<(String, String)> {
    let read: fn(&str) -> Option<&str> = match source.path.rsplit_once('.') {
        Some((_, "rs" | "wit" | "js" | "ts" | "c" | "h")) => comment,
        Some((_, "py" | "toml" | "sh")) => |line| line.trim_start().strip_prefix("# "),
        Some((_, "md")) => |line| Some(line).filter(|line| !line.starts_with(['#', '|', '<', '`'])),
        _ => return Vec::new(),
    };
    let mut sentences = Vec::new();
    let (mut paragraph, mut first, mut in_code) = (String::new(), 0, false);
    for (index, line) in source.text.lines().chain([""]).enumerate() {
        let text = read(line).map(str::trim);
        in_code ^= text.unwrap_or(line).trim_start_matches(['/', '!', ' ']).starts_with("```");
        let text = text.filter(|text| !in_code && !text.is_empty() && !text.starts_with(['|', '`']));
        let is_item = text.is_some_and(|text| text.starts_with(['-', '*', '1', '2', '3', '4', '5']));
        if text.is_none() || is_item {
            sentences
                .extend(split(&paragraph).map(|sentence| (format!("{}:{first}", source.path), sentence)));
            paragraph.clear();
        }
        if let Some(text) = text {
            first = if paragraph.is_empty() { index + 1 } else { first };
            paragraph.push_str(text);
            paragraph.push(' ');
        }
        if source.path.ends_with(".rs") && source.path.contains("/src/") && comment(line).is_none() {
            sentences.extend(messages(line).map(|text| (format!("{}:{}", source.path, index + 1), text)));
        }
    }
    sentences
}

fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start();
    ["//!", "///", "//", "* "].into_iter().find_map(|marker| text.strip_prefix(marker))
}

/// The sentences of a paragraph.
fn split(paragraph: &str) -> impl Iterator<Item = String> {
    let ends = paragraph.match_indices(". ").map(|(at, _)| at + 1).chain([paragraph.len()]);
    let mut start = 0;
    let parts = ends.filter_map(move |end| {
        let sentence = paragraph.get(start..end)?.trim();
        start = end;
        (sentence.split_whitespace().count() >= MIN_WORDS).then(|| sentence.to_owned())
    });
    parts.collect::<Vec<_>>().into_iter()
}

/// String literals of a line that read like a message.
fn messages(line: &str) -> impl Iterator<Item = String> {
    let literals = line.split('"').skip(1).step_by(2);
    let is_message = |text: &&str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.len() >= MIN_WORDS
            && words.iter().filter(|word| word.chars().all(|c| c.is_ascii_lowercase())).count()
                >= MIN_WORDS - 1
    };
    literals.filter(is_message).map(ToOwned::to_owned).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(path: &str, text: &str) -> Vec<String> {
        let source = Source { path: path.to_owned(), text: text.to_owned() };
        collect(&source).into_iter().map(|(_, sentence)| sentence).collect()
    }

    #[test]
    fn finds_sentences_of_comments_messages_and_pages() {
        let code = "/// The host stops the call. It then\n/// records the call once.\nfn stop() {}\n\
                    let text = \"the plugin cannot be loaded\";\n";
        assert_eq!(
            sentences("host/a/src/a.rs", code),
            ["The host stops the call.", "It then records the call once.", "the plugin cannot be loaded"]
        );
        let page =
            "# A title of the page\n\nOne sentence stands here.\n```toml\nno sentence in code blocks\n```\n";
        assert_eq!(sentences("docs/a.md", page), ["One sentence stands here."]);
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let numbers = |mut state| [draw(&mut state, 1000), draw(&mut state, 1000), draw(&mut state, 1000)];
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
    }
}
