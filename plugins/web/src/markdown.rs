//! Converts a page to Markdown for a model: text, headings, lists, tables, code, links; no scripts, styles, menus.
//!
//! The tokenizer implements the WHATWG standard (`html5gum`). The converter keeps a few counters instead of
//! a tree: a page may be malformed or arbitrarily deep, and the conversion takes time and memory in
//! proportion to its length.

use std::collections::BTreeMap;

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{HtmlString, Spanned, StartTag, Token, Tokenizer};

use crate::address;

/// The longest output, in bytes. The host truncates results far below.
const MAX_BYTES: usize = 2 << 20;
/// The deepest indentation of lists and quotes.
const MAX_DEPTH: usize = 8;
/// The longest title.
const MAX_TITLE: usize = 300;

/// A converted page.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct MarkdownPage {
    /// The text of its `<title>`.
    pub(crate) title: Option<String>,
    /// Its text as Markdown.
    pub(crate) markdown: String,
}

/// The separator before the next text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BlockGap {
    None,
    Space,
    Line,
    Paragraph,
}

/// Converts a page. `base` is its address; `menus` keeps the navigation (`nav`, `footer`).
pub(crate) fn convert(html: &str, base: &str, menus: bool) -> MarkdownPage {
    let mut writer = MarkdownWriter::new(base, menus);
    let mut emitter = DefaultEmitter::default();
    // The text of scripts and styles is not HTML.
    emitter.naively_switch_states(true);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => writer.open(&tag),
            Token::EndTag(tag) => writer.close(&text(&tag.name)),
            Token::String(string) => writer.text(&text(&string)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
        if writer.out.len() > MAX_BYTES {
            break;
        }
    }
    writer.finish()
}

fn text(bytes: &HtmlString) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn attribute(tag: &StartTag<()>, name: &str) -> Option<String> {
    let all: &BTreeMap<HtmlString, Spanned<HtmlString, ()>> = &tag.attributes;
    all.get(name.as_bytes()).map(|value| text(value))
}

struct MarkdownWriter {
    base: String,
    menus: bool,
    out: String,
    gap: BlockGap,
    /// The element whose content is skipped, and how many of its name are open.
    skipped: Option<(String, usize)>,
    title: Option<String>,
    in_title: bool,
    pre: usize,
    quotes: usize,
    /// For each open list, the next number, or none for bullets.
    lists: Vec<Option<u64>>,
    /// For each open link, its target and the start of its text.
    links: Vec<(Option<String>, usize)>,
    /// The number of cells of the row so far, and whether the table has a row.
    cells: usize,
    rows: usize,
}

impl MarkdownWriter {
    fn new(base: &str, menus: bool) -> Self {
        Self {
            base: base.to_owned(),
            menus,
            out: String::new(),
            gap: BlockGap::None,
            skipped: None,
            title: None,
            in_title: false,
            pre: 0,
            quotes: 0,
            lists: Vec::new(),
            links: Vec::new(),
            cells: 0,
            rows: 0,
        }
    }

    fn finish(mut self) -> MarkdownPage {
        if self.pre > 0 {
            self.out.push_str("\n```");
        }
        let title = self.title.map(|title| title.split_whitespace().collect::<Vec<_>>().join(" "));
        let title = title.filter(|title| !title.is_empty());
        MarkdownPage { title, markdown: self.out.trim().to_owned() }
    }

    fn open(&mut self, tag: &StartTag<()>) {
        let name = text(&tag.name);
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth += usize::from(*skipped == name);
            return;
        }
        if self.is_skipped(tag, &name) {
            self.skipped = Some((name, 1));
            return;
        }
        match name.as_str() {
            "title" => self.in_title = self.title.is_none(),
            "base" => self.rebase(tag),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.block();
                let level = name.bytes().last().map_or(1, |digit| usize::from(digit - b'0'));
                self.write(&format!("{} ", "#".repeat(level)));
            }
            "br" => self.want(BlockGap::Line),
            "hr" => {
                self.block();
                self.write("---");
                self.block();
            }
            "pre" => {
                self.block();
                if self.pre == 0 {
                    self.write("```\n");
                }
                self.pre += 1;
            }
            "blockquote" => {
                self.block();
                self.quotes += 1;
            }
            "ul" | "ol" | "menu" | "dl" => {
                self.want(if self.lists.is_empty() { BlockGap::Paragraph } else { BlockGap::Line });
                self.lists.push((name == "ol").then(|| start(tag)));
            }
            "li" => self.item(),
            "dt" | "dd" | "figcaption" | "summary" | "legend" | "option" => self.want(BlockGap::Line),
            "table" => {
                self.block();
                self.rows = 0;
            }
            "tr" => {
                self.want(BlockGap::Line);
                self.cells = 0;
            }
            "td" | "th" => {
                self.write(if self.cells == 0 { "| " } else { " | " });
                self.cells += 1;
            }
            "a" => {
                let address = attribute(tag, "href").and_then(|link| address::join(&self.base, &link));
                self.links.push((address, self.out.len()));
            }
            "img" => self.image(tag),
            "code" | "kbd" | "samp" if self.pre == 0 => self.mark("`"),
            "strong" | "b" if self.pre == 0 => self.mark("**"),
            "em" | "i" if self.pre == 0 => self.mark("_"),
            name if is_block(name) => self.block(),
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        if let Some((skipped, depth)) = &mut self.skipped {
            if skipped == name {
                *depth -= 1;
                if *depth == 0 {
                    self.skipped = None;
                }
            }
            return;
        }
        match name {
            "title" => self.in_title = false,
            "pre" if self.pre > 0 => {
                self.pre -= 1;
                if self.pre == 0 {
                    self.gap = BlockGap::None;
                    let line = if self.out.ends_with('\n') { "" } else { "\n" };
                    self.out.push_str(&format!("{line}{}```", self.margin()));
                    self.block();
                }
            }
            "blockquote" => {
                self.block();
                self.quotes = self.quotes.saturating_sub(1);
            }
            "ul" | "ol" | "menu" | "dl" => {
                self.lists.pop();
                self.want(if self.lists.is_empty() { BlockGap::Paragraph } else { BlockGap::Line });
            }
            "tr" if self.cells > 0 => self.end_row(),
            "a" => self.end_link(),
            "code" | "kbd" | "samp" if self.pre == 0 => self.end_mark("`"),
            "strong" | "b" if self.pre == 0 => self.end_mark("**"),
            "em" | "i" if self.pre == 0 => self.end_mark("_"),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.block(),
            name if is_block(name) => self.block(),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            let title = self.title.get_or_insert_with(String::new);
            title.extend(text.chars().take(MAX_TITLE.saturating_sub(title.chars().count())));
            return;
        }
        if self.pre > 0 {
            // A row of backquotes would end the block.
            let line = format!("\n{}", self.margin());
            self.out.push_str(&text.replace("```", "` ` `").replace('\n', &line));
            return;
        }
        if text.starts_with(char::is_whitespace) {
            self.want(BlockGap::Space);
        }
        let mut words = text.split_whitespace().peekable();
        while let Some(word) = words.next() {
            self.write(word);
            if words.peek().is_some() {
                self.want(BlockGap::Space);
            }
        }
        if text.ends_with(char::is_whitespace) && !text.trim().is_empty() {
            self.want(BlockGap::Space);
        }
    }

    fn is_skipped(&self, tag: &StartTag<()>, name: &str) -> bool {
        // Their end tags are mandatory, so the text after them is not lost.
        const HIDEABLE: [&str; 8] = ["div", "span", "section", "aside", "ul", "a", "article", "table"];
        let hidden = || {
            let style = attribute(tag, "style").unwrap_or_default().to_ascii_lowercase().replace(' ', "");
            attribute(tag, "hidden").is_some()
                || style.contains("display:none")
                || style.contains("visibility:hidden")
        };
        match name {
            "script" | "style" | "noscript" | "template" | "svg" | "math" | "iframe" | "object"
            | "canvas" | "audio" | "video" | "select" | "textarea" | "button" | "noembed" | "noframes" => {
                true
            }
            "nav" | "footer" => !self.menus,
            name => HIDEABLE.contains(&name) && hidden(),
        }
    }

    fn rebase(&mut self, tag: &StartTag<()>) {
        let base = attribute(tag, "href").and_then(|base| address::join(&self.base, &base));
        if let Some(base) = base.filter(|base| base.contains("://")) {
            self.base = base;
        }
    }

    fn item(&mut self) {
        self.want(BlockGap::Line);
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            Some(None) | None => "- ".to_owned(),
        };
        let indent = "  ".repeat(self.lists.len().clamp(1, MAX_DEPTH) - 1);
        self.write(&format!("{indent}{mark}"));
    }

    fn image(&mut self, tag: &StartTag<()>) {
        let alt = attribute(tag, "alt").unwrap_or_default();
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ").replace(['[', ']'], "");
        // An image without alternative text is decoration.
        let source = attribute(tag, "src").and_then(|source| address::join(&self.base, &source));
        if let (false, Some(source)) = (alt.is_empty(), source) {
            self.write(&format!("![{alt}]({source})"));
        }
    }

    fn end_link(&mut self) {
        let Some((address, begin)) = self.links.pop() else { return };
        let label = self.out.get(begin..).unwrap_or_default();
        let (Some(address), false) = (address, label.trim().is_empty()) else { return };
        let lead = label.len() - label.trim_start().len();
        if label.trim().contains('\n') {
            // The address of a link around whole blocks stands after them.
            self.gap = BlockGap::Space;
            self.write(&format!("<{address}>"));
        } else {
            self.out.insert(begin + lead, '[');
            self.out.push_str(&format!("]({address})"));
        }
    }

    fn end_row(&mut self) {
        self.gap = BlockGap::None;
        self.out.push_str(" |");
        if self.rows == 0 {
            let line = format!("\n{}|{}", self.margin(), " --- |".repeat(self.cells.min(64)));
            self.out.push_str(&line);
        }
        self.rows += 1;
        self.cells = 0;
        self.want(BlockGap::Line);
    }

    fn mark(&mut self, mark: &str) {
        self.write(mark);
    }

    /// Ends emphasis. Empty emphasis is removed.
    fn end_mark(&mut self, mark: &str) {
        if self.out.ends_with(mark) && self.gap == BlockGap::None {
            self.out.truncate(self.out.len() - mark.len());
        } else {
            let gap = std::mem::replace(&mut self.gap, BlockGap::None);
            self.out.push_str(mark);
            self.gap = gap;
        }
    }

    fn block(&mut self) {
        // A line break inside a row would end the row.
        self.want(if self.cells > 0 { BlockGap::Space } else { BlockGap::Paragraph });
    }

    fn want(&mut self, gap: BlockGap) {
        let gap = if self.cells > 0 && gap > BlockGap::Space { BlockGap::Space } else { gap };
        self.gap = self.gap.max(gap);
    }

    /// The start of each line: marks of quotes.
    fn margin(&self) -> String {
        "> ".repeat(self.quotes.min(MAX_DEPTH))
    }

    fn write(&mut self, text: &str) {
        let gap = std::mem::replace(&mut self.gap, BlockGap::None);
        let margin = self.margin();
        if self.out.is_empty() {
            self.out.push_str(&margin);
        } else {
            match gap {
                BlockGap::None => {}
                BlockGap::Space if self.out.ends_with(' ') => {}
                BlockGap::Space => self.out.push(' '),
                BlockGap::Line => self.out.push_str(&format!("\n{margin}")),
                BlockGap::Paragraph => self.out.push_str(&format!("\n{}\n{margin}", margin.trim_end())),
            }
        }
        self.out.push_str(text);
    }
}

fn start(tag: &StartTag<()>) -> u64 {
    attribute(tag, "start").and_then(|start| start.trim().parse().ok()).unwrap_or(1)
}

fn is_block(name: &str) -> bool {
    matches!(
        name,
        "p" | "div"
            | "section"
            | "article"
            | "main"
            | "header"
            | "aside"
            | "figure"
            | "form"
            | "fieldset"
            | "address"
            | "details"
            | "body"
            | "table"
            | "nav"
            | "footer"
            | "center"
    )
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
