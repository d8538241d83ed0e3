//! The machine that a policy is checked on. The same functions that a run uses decide what it would refuse.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use toolbay_capabilities::files::{FileAccess, FolderHandles, SharedProtectedPaths};
use toolbay_capabilities::process::ProcessLauncher;
use toolbay_capabilities::secrets::SecretStore;
use toolbay_policy::capability::path_rule::PathRule;
use toolbay_policy::capability::program::SandboxMode;
use toolbay_policy::{FileContent, Machine, PathKind, Policy, ProgramRefusal, ProgramSection};
use toolbay_sandbox::process_sandbox;

/// Reads a file as a run would, and fails with the reason why it cannot be used.
type FileCheck = fn(&Path) -> Result<(), String>;

/// How files of each content are read. A program without a feature never uses the files that only the feature reads.
const READERS: &[(FileContent, FileCheck)] = &[
    #[cfg(feature = "net")]
    (FileContent::Certificates, toolbay_capabilities::http::check_certificates),
    #[cfg(feature = "registry")]
    (FileContent::PublicKey, |file| toolbay_distribution::signature::key::read_public(file).map(drop)),
    #[cfg(feature = "registry")]
    (FileContent::TrustRoot, |file| {
        toolbay_distribution::signature::keyless::TrustRoot::read(file).map(drop)
    }),
    #[cfg(feature = "mcp")]
    (FileContent::IssuerKeys, toolbay_mcp::check_issuer_keys),
];

/// The files and the environment of this process.
#[derive(Debug, Default)]
pub(super) struct ThisMachine {
    /// The checks of a run. `None` for a running host, which has already made them.
    run: Option<RunDecisions>,
}

/// The checks of a run with a policy.
#[derive(Debug)]
struct RunDecisions {
    policy: Arc<Policy>,
    folders: FolderHandles,
    programs: ProcessLauncher,
}

impl ThisMachine {
    /// This machine, including what a run of the policy would refuse with these protected paths.
    pub(super) fn with_run(policy: &Arc<Policy>, protected: &SharedProtectedPaths) -> Self {
        let folders = FolderHandles::for_check(protected, policy);
        let mut programs = ProcessLauncher::new(policy);
        programs.protected = folders.protected();
        Self { run: Some(RunDecisions { policy: Arc::clone(policy), folders, programs }) }
    }
}

impl Machine for ThisMachine {
    fn path_kind(&self, path: &Path) -> PathKind {
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => PathKind::Folder,
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => PathKind::Program,
            Ok(found) if found.is_file() => PathKind::File,
            Ok(_) => PathKind::Other,
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                PathKind::Missing
            }
            Err(_) => PathKind::Other,
        }
    }

    fn has_variable(&self, name: &str) -> bool {
        std::env::var_os(name).is_some_and(|value| !value.is_empty())
    }

    fn grant_refusal(&self, rule: &PathRule, writing: bool) -> Option<String> {
        let run = self.run.as_ref()?;
        let access = if writing { FileAccess::Write } else { FileAccess::Read };
        run.folders.refusal(rule, access, run.policy.workspace())
    }

    fn program_refusal<'a>(&self, section: ProgramSection<'a>) -> Option<ProgramRefusal<'a>> {
        self.run.as_ref()?.programs.refusal(section)
    }

    fn file_problem(&self, file: &Path, content: FileContent) -> Option<String> {
        self.run.as_ref()?;
        let (_, read) = READERS.iter().find(|(known, _)| *known == content)?;
        read(file).err()
    }

    fn sandbox(&self) -> Option<SandboxMode> {
        let confinement = process_sandbox::available().ok()?;
        let mode = confinement.weaker_mode().unwrap_or(SandboxMode::Required);
        (mode != SandboxMode::None).then_some(mode)
    }

    fn secret_problem(&self, name: &str) -> Option<String> {
        SecretStore::problem(&self.run.as_ref()?.policy, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;

    #[test]
    fn the_sandbox_of_the_checks_is_the_one_that_programs_get() {
        let complete = ThisMachine::default().sandbox() == Some(SandboxMode::Required);
        assert_eq!(complete, Host::missing_program_sandbox().is_none());
    }
}
