//! Edits of the policy file that preserve comments, order and white space.

pub(crate) mod new_secrets;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anstyle::Style;
use anyhow::{Context, Result, anyhow, bail};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};
use toolbay::read_regular_text;
use toolbay_policy::ProposedLine;
use toolbay_policy::hidden_chars::escape_hidden;
use toolbay_policy::name::PluginId;

use crate::output::findings::MAX_POLICY_BYTES;
use crate::output::{self, CommandError, format};
use crate::setup::PolicyFile;
use crate::setup::named_path::{path_failure, replace_atomically};

/// Parses the text of a policy for an edit.
pub(crate) fn parse(text: &str) -> Result<DocumentMut> {
    text.parse().context("the policy is not TOML")
}

/// Adds proposed lines to the text of a policy.
pub(crate) fn with_proposals(text: &str, proposals: &[ProposedLine]) -> Result<String> {
    let mut document = parse(text)?;
    for proposal in proposals {
        let key = proposal.key.name();
        let table =
            proposal.table.iter().try_fold(document.as_item_mut(), |item, name| section(item, name))?;
        let table = table.as_table_like_mut().ok_or_else(|| anyhow!("`{key}` has no table"))?;
        if proposal.key.is_switch() {
            turn_on(table.entry(key).or_insert_with(|| toml_edit::value(true)))?;
            continue;
        }
        let list = table.entry(key).or_insert_with(|| toml_edit::value(Array::new()));
        let list = list.as_array_mut().ok_or_else(|| anyhow!("`{key}` in the policy is not a list"))?;
        if !list.iter().any(|line| line.as_str() == Some(&proposal.line)) {
            push(list, &proposal.line);
        }
    }
    Ok(document.to_string())
}

/// Sets a switch to `true` and keeps the comment behind it.
fn turn_on(switch: &mut Item) -> Result<()> {
    let value =
        switch.as_value_mut().ok_or_else(|| anyhow!("a switch in the policy must be `true` or `false`"))?;
    let decor = value.decor().clone();
    *value = Value::from(true);
    *value.decor_mut() = decor;
    Ok(())
}

/// A table within another one, created if it is missing: with a header, or inline if the other one is inline.
pub(crate) fn section<'a>(item: &'a mut Item, name: &str) -> Result<&'a mut Item> {
    let inline = item.is_inline_table();
    let table =
        item.as_table_like_mut().ok_or_else(|| anyhow!("`{name}` is below a key that is not a table"))?;
    Ok(table.entry(name).or_insert_with(|| {
        if inline {
            return toml_edit::value(InlineTable::new());
        }
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    }))
}

/// A table of sections such as `[mcp.NAME]`, created without a header if it is missing.
pub(crate) fn sections<'a>(document: &'a mut DocumentMut, kind: &str) -> Result<&'a mut Table> {
    let item = section(document.as_item_mut(), kind)?;
    item.as_table_mut()
        .ok_or_else(|| anyhow!("`{kind}` of the policy is not written as [{kind}.NAME] tables"))
}

/// Adds a line to a list in its own style: on one line, or one element per line.
fn push(list: &mut Array, line: &str) {
    let prefix =
        |value: &Value| value.decor().prefix().and_then(|p| p.as_str()).unwrap_or_default().to_owned();
    let below =
        list.iter().map(prefix).find_map(|p| p.rfind('\n').and_then(|at| p.get(at..).map(str::to_owned)));
    let Some(indent) = below else {
        list.push(line);
        return;
    };
    // A comment behind the last element stays there.
    let trailing = list.trailing().as_str().unwrap_or_default().to_owned();
    let comment = trailing.rfind('\n').and_then(|at| trailing.get(..at)).unwrap_or_default();
    let mut value = Value::from(line);
    value.decor_mut().set_prefix(format!("{comment}{indent}"));
    let end = trailing.get(comment.len()..).unwrap_or("\n").to_owned();
    list.push_formatted(value);
    list.set_trailing(if end.is_empty() { "\n".to_owned() } else { end });
    list.set_trailing_comma(true);
}

/// Removes a plugin's grant, or some of its lists, from the text of a policy. Returns the text and the removed lines.
pub(crate) fn without_grant(text: &str, plugin: &PluginId, only: &[String]) -> Result<(String, Vec<String>)> {
    let mut document = parse(text)?;
    let mut taken = Vec::new();
    let section = document
        .get_mut("plugins")
        .and_then(Item::as_table_like_mut)
        .and_then(|plugins| plugins.get_mut(plugin.as_str()))
        .and_then(Item::as_table_like_mut);
    let Some(section) = section else { return Ok((text.to_owned(), taken)) };
    let Some(grant) = section.get_mut("grant").and_then(Item::as_table_like_mut) else {
        return Ok((text.to_owned(), taken));
    };
    let keys: Vec<String> = grant.iter().map(|(key, _)| key.to_owned()).collect();
    for key in keys.into_iter().filter(|key| only.is_empty() || only.contains(key)) {
        if let Some(item) = grant.remove(&key) {
            taken.push(format!("{key} = {}", item.to_string().trim()));
        }
    }
    if grant.is_empty() {
        section.remove("grant");
    }
    Ok((document.to_string(), taken))
}

/// Adds a section such as `[openapi.pets]` to the text of a policy.
pub(crate) fn with_section(text: &str, kind: &str, name: &str, table: Table) -> Result<String> {
    let mut document = parse(text)?;
    let sections = section(document.as_item_mut(), kind)?;
    let sections =
        sections.as_table_like_mut().ok_or_else(|| anyhow!("`{kind}` in the policy is not a table"))?;
    sections.insert(name, Item::Table(table));
    Ok(document.to_string())
}

/// Adds how the servers of a section are reached: `--ca`, whose path starts from the current directory, and `--proxy`.
pub(crate) fn put_route(section: &mut Table, ca: Option<&str>, proxy: Option<&str>) -> Result<()> {
    if let Some(ca) = ca {
        if !Path::new(ca).is_file() {
            bail!("--ca `{ca}`: there is no such file");
        }
        // Not the target of a link: a link may lead to another file tomorrow.
        let file = std::path::absolute(ca).with_context(|| format!("--ca `{ca}`"))?;
        let file =
            file.to_str().ok_or_else(|| anyhow!("--ca `{ca}`: a policy is UTF-8, and this path is not"))?;
        section.insert("ca", toml_edit::value(file));
    }
    if let Some(proxy) = proxy {
        section.insert("proxy", toml_edit::value(proxy));
    }
    Ok(())
}

/// Adds `[[trust]]` rules to the text of a policy.
pub(crate) fn with_trust_rules(text: &str, rules: impl Iterator<Item = Table>) -> Result<String> {
    let mut document = parse(text)?;
    let list = document.entry("trust").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let list = list
        .as_array_of_tables_mut()
        .ok_or_else(|| anyhow!("`trust` of the policy is not a list of tables"))?;
    rules.for_each(|table| list.push(table));
    Ok(document.to_string())
}

/// Removes a section from the text of a policy. Returns the text and the section, if there was one.
pub(crate) fn without_section(text: &str, kind: &str, name: &str) -> Result<(String, Option<String>)> {
    let mut document = parse(text)?;
    let sections = document.get_mut(kind).and_then(Item::as_table_like_mut);
    let taken = sections.and_then(|sections| sections.remove(name));
    let Some(taken) = taken else { return Ok((text.to_owned(), None)) };
    let empty = document.get(kind).and_then(Item::as_table_like).is_some_and(toml_edit::TableLike::is_empty);
    if empty {
        document.remove(kind);
    }
    Ok((document.to_string(), Some(format!("[{kind}.{name}]\n{}", taken.to_string().trim()))))
}

/// Prints the lines that a decision adds to a policy or removes from it.
pub(crate) fn print_lines(
    what: &str,
    style: Style,
    file: &PolicyFile,
    lines: &[impl AsRef<str>],
) -> io::Result<()> {
    let mut out = output::stdout();
    let path = file.file.as_deref().map_or_else(|| "the policy".to_owned(), format::path);
    writeln!(out, "These lines will be {what} {path}:")?;
    for line in lines {
        writeln!(out, "  {style}{}{style:#}", escape_hidden(line.as_ref()))?;
    }
    out.flush()
}

/// Replaces the policy; see [`replace`].
pub(crate) fn write(file: &PolicyFile, new: &str) -> Result<()> {
    replace(file.path()?, file.text.as_deref(), new, "policy").map_err(path_failure)
}

/// Replaces a file atomically, and only if it still has the old text. `what` names the file in errors.
pub(crate) fn replace(file: &Path, old: Option<&str>, new: &str, what: &str) -> Result<()> {
    // A symbolic link to the policy stays a link.
    let file = match old {
        Some(_) => file.canonicalize().with_context(|| format!("{what} `{}`", file.display()))?,
        None => file.to_path_buf(),
    };
    let dir = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir).with_context(|| format!("`{}`", dir.display()))?;
    let replaced = replace_atomically(&file, |part| -> Result<()> {
        let mut out = OpenOptions::new().write(true).create_new(true).open(part)?;
        if old.is_some() {
            out.set_permissions(fs::metadata(&file)?.permissions())?;
        }
        out.write_all(new.as_bytes())?;
        out.sync_all()?;
        let now = match read_regular_text(&file, MAX_POLICY_BYTES) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        if now.as_deref() != old {
            let why = format!("the {what} `{}` was changed meanwhile; nothing was written", file.display());
            return Err(CommandError::new("changed_meanwhile", why)
                .with_help("run the command again")
                .into());
        }
        Ok(())
    });
    let replaced = replaced.and_then(|()| Ok(File::open(dir)?.sync_all()?));
    replaced.with_context(|| format!("{what} `{}`", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolbay_policy::GrantKey;

    fn proposal(table: &str, key: GrantKey, line: &str) -> ProposedLine {
        ProposedLine { table: table.split('.').map(ToOwned::to_owned).collect(), key, line: line.to_owned() }
    }

    #[test]
    fn a_line_is_added_in_place_and_the_rest_is_preserved() {
        let grant = "plugins.p.grant";
        for (text, table, key, line, expect) in [
            (
                "version = 1\n",
                grant,
                GrantKey::FsRead,
                "$workspace",
                "version = 1\n\n[plugins.p.grant]\nfs_read = [\"$workspace\"]\n",
            ),
            (
                "version = 1 # v\n\n# read\n[plugins.p.grant] # g\nfs_read = [ \"/a\" ] # why\nnet = []\n[limits]\nfuel = 5\n",
                grant,
                GrantKey::FsRead,
                "/b",
                "version = 1 # v\n\n# read\n[plugins.p.grant] # g\nfs_read = [ \"/a\" , \"/b\"] # why\nnet = []\n[limits]\nfuel = 5\n",
            ),
            (
                "[plugins.p.grant]\nnet = [\n    \"https://a\", # one\n    \"https://b\", # two\n] # end\n",
                grant,
                GrantKey::Net,
                "https://c",
                "[plugins.p.grant]\nnet = [\n    \"https://a\", # one\n    \"https://b\", # two\n    \"https://c\",\n] # end\n",
            ),
            (
                "[plugins]\np = { file = \"x.wasm\" }\n",
                grant,
                GrantKey::Kv,
                "tool",
                "[plugins]\np = { file = \"x.wasm\" , grant = { kv = [\"tool\"] } }\n",
            ),
            (
                "[plugins.p.grant]\nclock = false # no\n",
                grant,
                GrantKey::Clock,
                "true",
                "[plugins.p.grant]\nclock = true # no\n",
            ),
            (
                "[plugins.p.grant]\nkv = [\"tool\"]\n",
                grant,
                GrantKey::Kv,
                "tool",
                "[plugins.p.grant]\nkv = [\"tool\"]\n",
            ),
            (
                "[plugins.p.tools.t]\nkv = []\n",
                "plugins.p.tools.t",
                GrantKey::Kv,
                "tool",
                "[plugins.p.tools.t]\nkv = [\"tool\"]\n",
            ),
            (
                "plugins.p.grant.kv = [\"tool\"]\n",
                grant,
                GrantKey::Env,
                "TZ",
                "plugins.p.grant.kv = [\"tool\"]\nplugins.p.grant.env = [\"TZ\"]\n",
            ),
        ] {
            let out = with_proposals(text, &[proposal(table, key, line)]).unwrap();
            assert_eq!(out, expect, "{text}");
            let again = with_proposals(&out, &[proposal(table, key, line)]).unwrap();
            assert_eq!(again, out, "twice is once");
        }
    }

    #[test]
    fn wrong_types_in_the_policy_are_errors() {
        for text in [
            "plugins = 1",
            "[plugins]\np = []",
            "[plugins.p]\ngrant = 5",
            "[plugins.p.grant]\nkv = \"tool\"",
            "[",
        ] {
            assert!(
                with_proposals(text, &[proposal("plugins.p.grant", GrantKey::Kv, "tool")]).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn a_grant_is_removed_and_the_rest_is_preserved() {
        let text = "version = 1\n# mine\n[plugins.p]\nsha256 = \"x\"\n\n[plugins.p.grant] # g\nkv = [\"tool\"]\nnet = [\"https://a\"]\n\n# other\n[plugins.q.grant]\nkv = [\"agent\"]\n";
        let id = PluginId::new("p").unwrap();
        let (all, taken) = without_grant(text, &id, &[]).unwrap();
        assert_eq!(
            all,
            "version = 1\n# mine\n[plugins.p]\nsha256 = \"x\"\n\n# other\n[plugins.q.grant]\nkv = [\"agent\"]\n"
        );
        assert_eq!(taken, ["kv = [\"tool\"]", "net = [\"https://a\"]"]);
        let (some, taken) = without_grant(text, &id, &["net".to_owned()]).unwrap();
        assert_eq!((some, taken.len()), (text.replace("net = [\"https://a\"]\n", ""), 1));
        for id in ["r", "sha256"] {
            let (none, taken) = without_grant(text, &PluginId::new(id).unwrap(), &[]).unwrap();
            assert_eq!((none.as_str(), taken.len()), (text, 0));
        }
    }

    #[test]
    fn a_policy_is_replaced_atomically_and_only_if_unchanged() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a/real.toml"), dir.path().join("link.toml"));
        replace(&file, None, "one", "policy").unwrap();
        assert!(replace(&file, None, "two", "policy").is_err(), "it is there now");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, Some("one"), "two", "policy").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        let error = replace(&file, Some("one"), "three", "policy").unwrap_err();
        assert!(format!("{error:#}").contains("changed meanwhile"), "{error:#}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 1, "nothing is left over");
    }
}
