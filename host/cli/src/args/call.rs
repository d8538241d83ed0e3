//! The arguments of the commands that call tools, and of the one that prints their saved output.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::ValueHint;
use clap_complete::ArgValueCandidates;
use toolbay::{Session, TurnContext};

use super::candidates;
use crate::setup::approval;

/// How calls run, and who approves those that need it. Without a flag the terminal asks; without a terminal the call is
/// refused.
#[derive(Debug, clap::Args)]
pub(crate) struct TurnArgs {
    /// The maximum number of characters of all results together.
    #[arg(long, value_name = "CHARS", default_value_t = toolbay_core::call::DEFAULT_BUDGET_CHARS)]
    pub(crate) budget: usize,
    /// Check the call, and run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The session of the calls. It saves results that are cut; `toolbay output` prints them.
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Approve every call for which the policy requires approval. What the policy denies stays denied.
    #[arg(long, short, conflicts_with = "deny")]
    pub(crate) yes: bool,
    /// Refuse every call for which the policy requires approval.
    #[arg(long)]
    pub(crate) deny: bool,
}

impl TurnArgs {
    /// The context that the calls share. Without `--session`, they run in the session `unnamed`.
    pub(crate) fn context(&self, unnamed: Session) -> TurnContext {
        let Self { budget, dry_run, session: name, yes, deny } = self;
        let mut session = name.as_deref().map(Session::with_name).unwrap_or(unnamed);
        if let Some(approver) = approval::approver(*yes, *deny) {
            session = session.with_approver(approver);
        }
        let mut turn = TurnContext {
            budget_chars: *budget,
            dry_run: *dry_run,
            session: Arc::new(session),
            ..TurnContext::default()
        };
        turn.identity.platform = Some("cli".to_owned());
        turn
    }
}

/// The attachments of a call.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachmentArgs {
    /// Attach a file for tools that are granted its media type. Repeatable.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) attach: Vec<PathBuf>,
    /// Write the attachments that the tool creates into this directory. Nothing is overwritten.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) save_attachments: Option<PathBuf>,
}

/// The arguments of a tool, as JSON.
#[derive(Debug, clap::Args)]
pub(crate) struct InputArgs {
    /// The arguments, a JSON object; `-` reads them from stdin.
    #[arg(value_name = "JSON", conflicts_with = "args_file")]
    json_args: Option<String>,
    /// Read the arguments from a file; `-` is stdin.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    args_file: Option<PathBuf>,
}

impl InputArgs {
    /// Reads the arguments.
    pub(crate) fn read(&self) -> Result<String> {
        match (&self.json_args, &self.args_file) {
            (Some(json), _) if json != "-" => Ok(json.clone()),
            (Some(_), _) => read_text(Path::new("-")),
            (None, Some(file)) => read_text(file),
            (None, None) => Ok(String::new()),
        }
    }
}

/// The arguments of `toolbay call`.
#[derive(Debug, clap::Args)]
pub(crate) struct CallArgs {
    /// The tool's name, as `list` shows it.
    #[arg(add = ArgValueCandidates::new(candidates::tools))]
    pub(crate) tool: String,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) attachments: AttachmentArgs,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

/// The arguments of `toolbay batch`.
#[derive(Debug, clap::Args)]
pub(crate) struct BatchArgs {
    /// JSON lines, or one JSON array, of `{"id": "1", "tool": "text__word_count", "args": {…}}`; `-` is stdin.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

/// The arguments of `toolbay bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// The tool's name, as `list` shows it.
    #[arg(add = ArgValueCandidates::new(candidates::tools))]
    pub(crate) tool: String,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// The number of calls, made one after the other and again as one batch.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) calls: u32,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

/// The arguments of `toolbay output`.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// The id that the cut result names. Default: list the saved results of the session.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The session of the call.
    #[arg(long, value_name = "NAME")]
    pub(crate) session: String,
    /// Print the first lines.
    #[arg(long, value_name = "N", group = "part", requires = "id")]
    pub(crate) head: Option<usize>,
    /// Print the last lines.
    #[arg(long, value_name = "N", group = "part", requires = "id")]
    pub(crate) tail: Option<usize>,
    /// Print a range of lines, counted from 1: `10:20`, `10:`, `:20`.
    #[arg(long, value_name = "A:B", group = "part", requires = "id", value_parser = parse_span)]
    pub(crate) range: Option<(usize, usize)>,
    /// Print a range of characters, counted from 1.
    #[arg(long, value_name = "A:B", group = "part", requires = "id", value_parser = parse_span)]
    pub(crate) chars: Option<(usize, usize)>,
    /// Print the lines that contain a text.
    #[arg(long, value_name = "TEXT", group = "part", requires = "id")]
    pub(crate) grep: Option<String>,
    /// Read `--grep` as a regular expression.
    #[arg(long, requires = "grep")]
    pub(crate) regex: bool,
    /// Ignore case.
    #[arg(long, short, requires = "grep")]
    pub(crate) ignore_case: bool,
    /// The number of lines to print around each match.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "grep")]
    pub(crate) around: usize,
    /// Print the size.
    #[arg(long, group = "part", requires = "id")]
    pub(crate) size: bool,
}

/// Parses `A:B`, where either may be omitted.
fn parse_span(text: &str) -> Result<(usize, usize), &'static str> {
    let number = |text: &str, default| if text.is_empty() { Some(default) } else { text.parse().ok() };
    let parse = || {
        let (from, to) = text.split_once(':')?;
        Some((number(from, 1)?, number(to, usize::MAX)?))
    };
    parse().ok_or("write `10:20`, `10:` or `:20`")
}

/// Reads a file, or stdin for `-`.
pub(crate) fn read_text(file: &Path) -> Result<String> {
    let read = || {
        if file == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text)?;
            Ok(text)
        } else {
            std::fs::read_to_string(file)
        }
    };
    read().with_context(|| format!("`{}` cannot be read", file.display()))
}

#[cfg(test)]
mod tests {
    use super::parse_span;

    #[test]
    fn a_span_may_leave_out_an_end() {
        for (text, expect) in [
            ("10:20", Some((10, 20))),
            (":20", Some((1, 20))),
            ("10:", Some((10, usize::MAX))),
            (":", Some((1, usize::MAX))),
            ("10", None),
            ("a:b", None),
            ("-1:2", None),
        ] {
            assert_eq!(parse_span(text).ok(), expect, "{text}");
        }
    }
}
