//! serde's rename rules: `rename_all = "camelCase"`.

use syn::{LitStr, Result};

/// A rule that changes names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RenameRule {
    Lower,
    Upper,
    Pascal,
    Camel,
    Snake,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

const RULES: [(&str, RenameRule); 8] = [
    ("lowercase", RenameRule::Lower),
    ("UPPERCASE", RenameRule::Upper),
    ("PascalCase", RenameRule::Pascal),
    ("camelCase", RenameRule::Camel),
    ("snake_case", RenameRule::Snake),
    ("SCREAMING_SNAKE_CASE", RenameRule::ScreamingSnake),
    ("kebab-case", RenameRule::Kebab),
    ("SCREAMING-KEBAB-CASE", RenameRule::ScreamingKebab),
];

impl RenameRule {
    pub(super) fn parse(name: &LitStr) -> Result<Self> {
        let found = RULES.iter().find(|(known, _)| *known == name.value());
        found.map(|(_, rule)| *rule).ok_or_else(|| {
            let known = RULES.map(|(known, _)| known).join("`, `");
            syn::Error::new(name.span(), format!("unknown rule; known are `{known}`"))
        })
    }

    /// The name of a field, which is `snake_case` in the source.
    pub(super) fn field(self, name: &str) -> String {
        match self {
            Self::Lower | Self::Snake => name.to_owned(),
            Self::Upper | Self::ScreamingSnake => name.to_ascii_uppercase(),
            Self::Pascal => pascal(name),
            Self::Camel => uncapitalized(&pascal(name)),
            Self::Kebab => name.replace('_', "-"),
            Self::ScreamingKebab => name.to_ascii_uppercase().replace('_', "-"),
        }
    }

    /// The name of a variant, which is `PascalCase` in the source.
    pub(super) fn variant(self, name: &str) -> String {
        match self {
            Self::Pascal => name.to_owned(),
            Self::Lower => name.to_ascii_lowercase(),
            Self::Upper => name.to_ascii_uppercase(),
            Self::Camel => uncapitalized(name),
            Self::Snake => snake(name),
            Self::ScreamingSnake => snake(name).to_ascii_uppercase(),
            Self::Kebab => snake(name).replace('_', "-"),
            Self::ScreamingKebab => snake(name).to_ascii_uppercase().replace('_', "-"),
        }
    }
}

fn pascal(name: &str) -> String {
    let mut text = String::new();
    let mut capital = true;
    for c in name.chars() {
        if c == '_' {
            capital = true;
        } else {
            text.push(if capital { c.to_ascii_uppercase() } else { c });
            capital = false;
        }
    }
    text
}

fn uncapitalized(name: &str) -> String {
    let mut chars = name.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for (place, c) in name.char_indices() {
        if c.is_uppercase() && place > 0 {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_change_as_serde_changes_them() {
        let fields = ["x_coord", "x_coord", "X_COORD", "XCoord", "xCoord", "X_COORD", "x-coord", "X-COORD"];
        let order = [
            RenameRule::Lower,
            RenameRule::Snake,
            RenameRule::Upper,
            RenameRule::Pascal,
            RenameRule::Camel,
            RenameRule::ScreamingSnake,
            RenameRule::Kebab,
            RenameRule::ScreamingKebab,
        ];
        assert_eq!(order.map(|rule| rule.field("x_coord")), fields);
        let variants = [
            "verytasty",
            "very_tasty",
            "VERYTASTY",
            "VeryTasty",
            "veryTasty",
            "VERY_TASTY",
            "very-tasty",
            "VERY-TASTY",
        ];
        assert_eq!(order.map(|rule| rule.variant("VeryTasty")), variants);
    }
}
