//! What an operator can do about a refusal: policy lines that allow it, a setting that raises a limit, or a note.
//!
//! A hint is a value from where a refusal is made to where it is shown. In records and in JSON it is a text:
//!
//! | remedy | text |
//! |---|---|
//! | [`Remedy::Allow`] | `SENTENCES To allow it, write in the policy:` and the lines |
//! | [`Remedy::AllowUnasked`] | `To allow it without asking, write in the policy:` and the lines |
//! | [`Remedy::Set`] | `to PURPOSE, write in the policy: [table] key = value` |
//! | [`Remedy::Raise`] | `To raise it, write in the policy: [table] key = …` |
//! | [`Remedy::Note`] | the note |

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const ALLOW: &str = "To allow it, write in the policy:\n";
const ALLOW_UNASKED: &str = "To allow it without asking, write in the policy:\n";
const RAISE: &str = "To raise it, write in the policy: ";

/// What an operator can do about a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The refusal, where the hint stands apart from it.
    pub about: Option<Box<str>>,
    /// What would help. Boxed: every result of a call has room for a hint.
    pub remedy: Box<Remedy>,
}

/// What would help against a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Lines that allow the use.
    Allow {
        /// Sentences about what else the use needs.
        first: Option<String>,
        /// The lines, those of a table together.
        lines: Vec<PolicyLine>,
    },
    /// A permission rule that allows the call without asking.
    AllowUnasked {
        /// The number of the rule that it must precede.
        before_rule: Option<usize>,
        /// The lines of the rule.
        lines: Vec<PolicyLine>,
    },
    /// A line with a purpose.
    Set {
        /// The purpose: `to allow it`.
        purpose: String,
        /// The line.
        line: PolicyLine,
    },
    /// A setting that raises a limit.
    Raise {
        /// The table with its brackets.
        table: String,
        /// The key.
        key: String,
        /// The present value as the policy writes it, if it is known.
        value: Option<String>,
    },
    /// Anything else, as sentences or as a clause.
    Note(String),
}

/// A line of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyLine {
    /// The table with its brackets: `[plugins.files.grant]`.
    pub table: String,
    /// The key.
    pub key: String,
    /// The value.
    pub value: LineValue,
}

/// The value of a policy line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineValue {
    /// `true`.
    Switch,
    /// A list of texts.
    List(Vec<String>),
    /// A text.
    Text(String),
}

impl Hint {
    /// Names the refusal, for a reader who has only the hint.
    #[must_use]
    pub fn with_about(self, refusal: &str) -> Self {
        Self { about: Some(refusal.into()), ..self }
    }

    /// Puts a sentence before what would allow the use.
    #[must_use]
    pub fn with_first(self, sentence: &str) -> Self {
        let remedy = match *self.remedy {
            Remedy::Allow { first, lines } => {
                let first = first.map_or_else(|| sentence.to_owned(), |first| format!("{sentence} {first}"));
                Remedy::Allow { first: Some(first), lines }
            }
            other => Remedy::Note(format!("{sentence} {other}")),
        };
        Self { about: self.about, remedy: Box::new(remedy) }
    }

    /// The policy lines that would help.
    #[must_use]
    pub fn lines(&self) -> &[PolicyLine] {
        match &*self.remedy {
            Remedy::Allow { lines, .. } | Remedy::AllowUnasked { lines, .. } => lines,
            Remedy::Set { line, .. } => std::slice::from_ref(line),
            Remedy::Raise { .. } | Remedy::Note(_) => &[],
        }
    }

    /// Changes all texts in the same way: removes the values of secrets from them, or cuts them.
    #[must_use]
    pub fn map_texts(self, change: impl Fn(String) -> String) -> Self {
        let lines = |lines: Vec<PolicyLine>| lines.into_iter().map(|line| line.map_texts(&change)).collect();
        let remedy = match *self.remedy {
            Remedy::Allow { first, lines: all } => {
                Remedy::Allow { first: first.map(&change), lines: lines(all) }
            }
            Remedy::AllowUnasked { before_rule, lines: all } => {
                Remedy::AllowUnasked { before_rule, lines: lines(all) }
            }
            Remedy::Set { purpose, line } => {
                Remedy::Set { purpose: change(purpose), line: line.map_texts(&change) }
            }
            Remedy::Raise { table, key, value } => Remedy::Raise { table: change(table), key, value },
            Remedy::Note(note) => Remedy::Note(change(note)),
        };
        let about = self.about.map(|about| change(about.into()).into());
        Self { about, remedy: Box::new(remedy) }
    }

    /// Reads the text of a record. A text of another form is a note.
    fn read(text: String) -> Self {
        if let Some((first, lines)) = text.split_once(ALLOW)
            && let Some(lines) = PolicyLine::read_all(lines)
        {
            let first = Some(first.trim_end().to_owned()).filter(|first| !first.is_empty());
            return Remedy::Allow { first, lines }.into();
        }
        if let Some(lines) = text.strip_prefix(ALLOW_UNASKED).and_then(PolicyLine::read_all) {
            return Remedy::AllowUnasked { before_rule: None, lines }.into();
        }
        if let Some((about, setting)) = text.split_once(RAISE)
            && let Some((table, key)) = read_setting(setting)
        {
            let (table, key) = (table.to_owned(), key.to_owned());
            let raise = Self::from(Remedy::Raise { table, key, value: None });
            let about = about.trim_end_matches(['.', ' ']);
            return if about.is_empty() { raise } else { raise.with_about(about) };
        }
        text.into()
    }
}

/// Reads a setting without its value, `[table] key = …`: the table with its brackets, and the key.
pub(crate) fn read_setting(text: &str) -> Option<(&str, &str)> {
    text.strip_suffix(" = …")?.rsplit_once(' ')
}

impl PolicyLine {
    /// Creates a line. The table has its brackets.
    #[must_use]
    pub fn new(table: impl Into<String>, key: impl Into<String>, value: LineValue) -> Self {
        Self { table: table.into(), key: key.into(), value }
    }

    fn map_texts(self, change: impl Fn(String) -> String) -> Self {
        let value = match self.value {
            LineValue::Switch => LineValue::Switch,
            LineValue::List(texts) => LineValue::List(texts.into_iter().map(&change).collect()),
            LineValue::Text(text) => LineValue::Text(change(text)),
        };
        Self { table: change(self.table), key: self.key, value }
    }

    /// Reads what [`PolicyLines`] writes.
    fn read_all(text: &str) -> Option<Vec<Self>> {
        let (mut table, mut lines) = ("", Vec::new());
        for line in text.lines() {
            if line.starts_with('[') {
                table = line;
                continue;
            }
            let (key, value) = line.split_once(" = ")?;
            let value = match serde_json::from_str(value).ok()? {
                serde_json::Value::Bool(true) => LineValue::Switch,
                serde_json::Value::String(text) => LineValue::Text(text),
                list => LineValue::List(serde_json::from_value(list).ok()?),
            };
            lines.push(Self::new(table, key, value));
        }
        (!table.is_empty() && !lines.is_empty()).then_some(lines)
    }
}

/// Lines as TOML: each table once.
#[derive(Debug, Clone, Copy)]
pub struct PolicyLines<'a>(pub &'a [PolicyLine]);

impl fmt::Display for PolicyLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = "";
        for (at, line) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            if line.table != table {
                table = &line.table;
                writeln!(f, "{table}")?;
            }
            write!(f, "{} = {}", line.key, line.value)?;
        }
        Ok(())
    }
}

impl fmt::Display for LineValue {
    /// Writes the value as TOML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        match self {
            Self::Switch => f.write_str("true"),
            Self::List(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                write!(f, "[{}]", texts.join(", "))
            }
            Self::Text(text) => f.write_str(&quoted(text)),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow { first: Some(first), lines } => write!(f, "{first} {ALLOW}{}", PolicyLines(lines)),
            Self::Allow { first: None, lines } => write!(f, "{ALLOW}{}", PolicyLines(lines)),
            Self::AllowUnasked { before_rule: None, lines } => {
                write!(f, "{ALLOW_UNASKED}{}", PolicyLines(lines))
            }
            Self::AllowUnasked { before_rule: Some(rule), lines } => write!(
                f,
                "To allow it without asking, write in the policy before rule {rule}:\n{}",
                PolicyLines(lines)
            ),
            Self::Set { purpose, line } => {
                let PolicyLine { table, key, value } = line;
                write!(f, "{purpose}, write in the policy: {table} {key} = {value}")
            }
            Self::Raise { table, key, .. } => write!(f, "{RAISE}{table} {key} = …"),
            Self::Note(note) => f.write_str(note),
        }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.about {
            Some(refusal) => f.write_str(&append(refusal, &self.remedy.to_string())),
            None => write!(f, "{}", self.remedy),
        }
    }
}

/// Appends a remedy to its refusal: a clause after a semicolon, a sentence after a full stop.
pub(crate) fn append(refusal: &str, remedy: &str) -> String {
    if remedy.starts_with(char::is_lowercase) {
        format!("{refusal}; {remedy}")
    } else {
        format!("{}. {remedy}", refusal.trim_end_matches('.'))
    }
}

impl From<Remedy> for Hint {
    fn from(remedy: Remedy) -> Self {
        Self { about: None, remedy: Box::new(remedy) }
    }
}

impl From<String> for Hint {
    fn from(note: String) -> Self {
        Remedy::Note(note).into()
    }
}

impl From<&str> for Hint {
    fn from(note: &str) -> Self {
        note.to_owned().into()
    }
}

impl Serialize for Hint {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hint {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self::read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(table: &str, key: &str, texts: &[&str]) -> PolicyLine {
        PolicyLine::new(table, key, LineValue::List(texts.iter().map(|&text| text.to_owned()).collect()))
    }

    #[test]
    fn a_hint_survives_its_record() {
        let grant = "[plugins.p.grant]";
        let lines = vec![
            line(grant, "fs_read", &["a = \"b\"", "[c]\n"]),
            PolicyLine::new(grant, "clock", LineValue::Switch),
            line("[profile.\"a b\"]", "fs_read", &["a"]),
        ];
        let rule = PolicyLine::new("[[rule]]", "tool", LineValue::Text("p__t".to_owned()));
        let first = Some("The folder `/x` does not exist: create it.".to_owned());
        let raise = Remedy::Raise { table: "[host]".to_owned(), key: "queued_calls".to_owned(), value: None };
        let hints: Vec<Hint> = vec![
            Remedy::Allow { first: None, lines: lines.clone() }.into(),
            Remedy::Allow { first, lines }.into(),
            Remedy::AllowUnasked { before_rule: None, lines: vec![rule] }.into(),
            raise.clone().into(),
            Hint::from(raise).with_about("busy"),
            "`toolbay resume` allows calls again".into(),
        ];
        for hint in hints {
            let text = serde_json::to_string(&hint).unwrap();
            assert_eq!(serde_json::from_str::<Hint>(&text).unwrap(), hint, "{text}");
        }
    }

    #[test]
    fn a_text_of_another_form_is_a_note() {
        for text in ["", "To allow it, write in the policy:\n", "To allow it, write in the policy:\nx", RAISE]
        {
            let hint = Hint::read(text.to_owned());
            assert_eq!(hint, text.into());
            assert_eq!(hint.to_string(), text);
        }
    }

    #[test]
    fn a_clause_follows_a_semicolon_and_a_sentence_a_full_stop() {
        let hint = |note: &str| Hint::from(note).with_about("it is gone").to_string();
        assert_eq!(hint("to start it, wait"), "it is gone; to start it, wait");
        assert_eq!(hint("Start it."), "it is gone. Start it.");
        assert_eq!(hint("`a` excludes it."), "it is gone. `a` excludes it.");
    }

    #[test]
    fn all_texts_are_changed() {
        let hint: Hint =
            Remedy::Set { purpose: "secret".to_owned(), line: line("[secret]", "net", &["secret"]) }.into();
        let text = hint.with_about("secret").map_texts(|text| text.replace("secret", "***")).to_string();
        assert!(!text.contains("secret") && text.contains("[***] net = [\"***\"]"), "{text}");
    }
}
