//! A grant under review: the plugin, what it asks for, and the lines that the policy would get.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use toolbay::{FileConsents, Host, LoadError, LoadProblem, PluginId, PluginInfo, timestamp_now};
use toolbay_core::audit::{AuditSink, GrantEvent, GrantRecord};
use toolbay_policy::consent::{Authority, Consent, ConsentChange, ConsentStore};

use super::held::HeldVersion;
use super::proposal::GrantEdit;
use super::{GrantPreview, NamedTools, authority, named_tools};
use crate::installation::install;
use crate::output::{CommandError, host_failure};
use crate::policy_edit;
use crate::setup::{self, PolicyFile, SetupArgs};

/// A grant that the operator may agree to.
pub(crate) struct GrantReview {
    pub(crate) file: PolicyFile,
    pub(crate) host: Host,
    pub(crate) info: PluginInfo,
    pub(crate) tools: NamedTools,
    pub(crate) consents: FileConsents,
    pub(crate) known: Option<Consent>,
    pub(crate) edit: GrantEdit,
    /// The update that waits, if it is one.
    pub(crate) held: Option<HeldVersion>,
}

/// The file of the version that waits while an older one runs.
fn waiting_file(host: &Host, id: &PluginId) -> Option<PathBuf> {
    let is_it = |problem: &LoadProblem| {
        problem.plugin.as_ref() == Some(id) && matches!(*problem.error, LoadError::ConsentRequired(_))
    };
    host.problems().into_iter().find(is_it).map(|problem| problem.file)
}

impl GrantReview {
    /// The grant of the plugin that a command names: its held update, or the plugin itself.
    pub(crate) async fn find(
        args: &SetupArgs,
        plugin: &str,
        only: &[String],
        tool: Option<&str>,
    ) -> Result<Self> {
        let file = PolicyFile::find_or_new(args, true)?;
        let policy = file.policy()?;
        match HeldVersion::find(args, &policy, plugin).await? {
            Some(held) => {
                let loaded = (held.host.clone(), held.info.clone());
                Self::new(args, file, loaded, Some(held), only, tool)
            }
            None => {
                let (host, info) = setup::require_plugin(args, policy.clone(), plugin).await?;
                // While an older version runs, the one that waits is the one to agree to.
                let loaded = match waiting_file(&host, &info.id) {
                    Some(waiting) => {
                        install::load(args, policy, (&info.id, info.id.as_str()), &waiting).await?
                    }
                    None => (host, info),
                };
                Self::new(args, file, loaded, None, only, tool)
            }
        }
    }

    /// The grant of everything that a plugin file asks for.
    pub(crate) async fn of_file(args: &SetupArgs, id: &PluginId, plugin: &Path) -> Result<Self> {
        let file = PolicyFile::find_or_new(args, true)?;
        let loaded = install::load(args, file.policy()?, (id, id.as_str()), plugin).await?;
        Self::new(args, file, loaded, None, &[], None)
    }

    fn new(
        args: &SetupArgs,
        file: PolicyFile,
        (host, info): (Host, PluginInfo),
        held: Option<HeldVersion>,
        only: &[String],
        tool: Option<&str>,
    ) -> Result<Self> {
        let tools = named_tools(&host, &info.id);
        if let Some(name) = tool
            && !tools.iter().any(|(own, _)| own.as_str() == name)
        {
            let known = tools.iter().map(|(own, _)| own.as_str());
            let what = format!("tool of the plugin `{}`:", info.id);
            return Err(CommandError::unknown("unknown_tool", &what, name, known).into());
        }
        let consents = setup::consents(args)?;
        let known = consents.get(&info.id).map_err(|e| host_failure(anyhow!(e)))?;
        let edit = GrantEdit::propose(&file, &host.policy(), &info.id, &tools, only, tool)?;
        Ok(Self { file, host, info, tools, consents, known, edit, held })
    }

    /// All that the plugin would have.
    fn granted(&self) -> Authority {
        authority(&self.edit.policy, &self.info.id, &self.tools)
    }

    pub(crate) fn preview(&self) -> GrantPreview<'_> {
        GrantPreview {
            info: &self.info,
            tools: &self.tools,
            edit: &self.edit,
            known: self.known.as_ref(),
            granted: self.granted(),
        }
    }

    /// Writes the lines into the policy, locks a held update, and records the consent.
    pub(crate) async fn apply(
        &self,
        args: &SetupArgs,
        by: &str,
        audit: Option<&dyn AuditSink>,
    ) -> Result<()> {
        if !self.edit.proposals.is_empty() {
            policy_edit::write(&self.file, &self.edit.text)?;
        }
        if let Some(held) = &self.held {
            held.apply(args).await?;
        }
        self.record(by, audit)
    }

    fn record(&self, by: &str, audit: Option<&dyn AuditSink>) -> Result<()> {
        let (info, granted) = (&self.info, self.granted());
        let version = info.about.as_ref().map(|about| about.version.clone());
        let consent = Consent {
            digest: info.digest.to_string(),
            version: version.clone(),
            granted: granted.clone(),
            at: timestamp_now(),
            by: by.to_owned(),
        };
        self.consents
            .update(&info.id, &mut |_| ConsentChange::Replace(consent.clone()))
            .map_err(|e| host_failure(anyhow!(e)))?;
        if let Some(audit) = audit {
            audit.record_grant(GrantRecord {
                event: GrantEvent::Granted,
                plugin: info.id.to_string(),
                version,
                digest: Some(info.digest.to_string()),
                origin: info.origin.clone(),
                granted,
                refused: BTreeMap::new(),
                held: Vec::new(),
                by: Some(by.to_owned()),
            });
        }
        Ok(())
    }
}
