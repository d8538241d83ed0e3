//! Lists of rules as a policy writes them.

use std::marker::PhantomData;
use std::path::Path;

use schemars::json_schema;
use serde::{Deserialize, Deserializer};

use crate::capability::path_rule::PathRule;
use crate::capability::switch::SwitchRule;
use crate::problem::{PolicyProblem, of_key};
use crate::rule::GrantRule;
use crate::schema::inline_schema;

/// Matches a path rule without wildcards, except `**` at the end.
const FOLDER_PATTERN: &str = r"^(/|\$workspace(/|$)|\*\*$)([^*?\[\\]|\\.)*(/\*\*)*/*$";

/// An optional list of rule lines. A switch is a list with at most one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleList<R>(pub(crate) Option<Vec<String>>, PhantomData<R>);

impl<R> Default for RuleList<R> {
    fn default() -> Self {
        Self(None, PhantomData)
    }
}

impl<'de, R: GrantRule> Deserialize<'de> for RuleList<R> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let lines = if R::IS_SWITCH {
            bool::deserialize(input)?.then(|| SwitchRule::ON.to_owned()).into_iter().collect()
        } else {
            Vec::deserialize(input)?
        };
        Ok(Self(Some(lines), PhantomData))
    }
}

impl<R: GrantRule> RuleList<R> {
    /// Parses the rules. `None` if the list is absent.
    pub(crate) fn rules(&self, key: &str, workspace: &Path) -> Result<Option<Vec<R>>, PolicyProblem> {
        let lines = self.0.as_ref().map(|lines| R::parse_list(lines, workspace));
        lines.transpose().map_err(of_key(key))
    }

    /// Parses the rules. An absent list is empty.
    pub(crate) fn rules_or_empty(&self, key: &str, workspace: &Path) -> Result<Vec<R>, PolicyProblem> {
        self.rules(key, workspace).map(Option::unwrap_or_default)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Vec::len)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whole folders and files, to which the kernel can confine a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct FolderList(RuleList<PathRule>);

impl FolderList {
    pub(crate) fn folders(&self, key: &str, workspace: &Path) -> Result<Vec<PathRule>, PolicyProblem> {
        let folders = self.0.rules_or_empty(key, workspace)?;
        match folders.iter().enumerate().find(|(_, rule)| !rule.is_whole()) {
            Some((index, rule)) => {
                let message = format!(
                    "`{key}`: `{}` has a pattern or an exclusion; the kernel confines programs to whole folders only",
                    rule.show(workspace)
                );
                Err(PolicyProblem::at_keys([key], message).in_line(index))
            }
            None => Ok(folders),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

inline_schema! {
    [R: GrantRule] RuleList<R>, "Rules" => R::list_schema();
    [] FolderList, "Folders" => json_schema!({"type": "array", "items": {"type": "string", "pattern": FOLDER_PATTERN}});
}
