//! Programs that stay: other MCP servers, which are started for the host and not for a call. They run in the sandbox of
//! all programs, with the reach of their section of the policy instead of a tool's.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::outside::{Life, OutsideError, Started};
use toolbay_policy::mcp_server::{Child, Place};
use toolbay_policy::name::PluginId;

use super::Broker;
use super::cage::Cage;
use super::keeper::{Plan, Running, StartError};
use super::programs::{Listed, Unfit};
use super::request::own_folders;
use crate::capability::Services;
use crate::capability::secrets::Vault;

/// Servers that run at once, those that are being ended included: as many as a policy can name.
pub(super) const MAX_RUNNING: usize = 64;

/// Starts a server's program.
pub(crate) async fn serve(
    services: &Arc<Services>,
    name: &PluginId,
    child: &Child,
) -> Result<Started, OutsideError> {
    let place = Arc::clone(&services.process.servers).try_acquire_owned().map_err(|_| {
        OutsideError::Failed(format!(
            "{MAX_RUNNING} servers run already, those included that are being ended"
        ))
    })?;
    check_section(services, name, child)?;
    let mut secrets = Vec::new();
    for (variable, secret) in &child.env_secrets {
        // That it may be handed over was settled with the policy, which is the one of now.
        let value = services.secrets.value(secret).map_err(OutsideError::Denied)?;
        secrets.push((OsString::from(variable), OsString::from(value)));
    }
    let (owner, owned, table) = (Arc::clone(services), child.clone(), format!("[mcp.{name}]"));
    // A file system may hang.
    let plan = tokio::task::spawn_blocking(move || owner.process.plan(&owned, &table, secrets)).await;
    let plan = plan.map_err(|_| OutsideError::Failed("the host failed to prepare it".to_owned()))??;
    let file = plan.file.clone();
    let mut running = Running::start(plan, place).await.map_err(|error| match error {
        StartError::Io(error) => {
            OutsideError::Failed(format!("`{}` cannot be started: {error}", file.display()))
        }
        StartError::Unconfined(problem) => OutsideError::Denied(format!(
            "it is not started, since this system cannot confine it: {problem}; to start it all the same, write in \
             the policy: [mcp.{name}] sandbox = \"best-effort\""
        )),
    })?;
    let confinement = running.confinement();
    let pipes = running.pipes().ok_or_else(|| OutsideError::Failed("it has no pipes".to_owned()))?;
    let (stdin, stdout, stderr) = pipes.into_parts();
    Ok(Started {
        stdin: Box::pin(stdin),
        stdout: Box::pin(stdout),
        stderr: Box::pin(stderr),
        confinement,
        life: Box::new(Alive { running, _secrets: Arc::clone(&services.secrets) }),
    })
}

/// A server is started again long after its section was read: what it gets is what the policy of today gives it.
fn check_section(services: &Services, name: &PluginId, child: &Child) -> Result<(), OutsideError> {
    let now = services.policy.mcp_server(name.as_str()).map(|server| &server.place);
    match now {
        Some(Place::Child(now)) if **now == *child => Ok(()),
        Some(_) => Err(OutsideError::Denied(format!(
            "the policy says something else of [mcp.{name}] than when it was started: it is not started again as it was"
        ))),
        None => Err(OutsideError::Denied(format!("the policy has no [mcp.{name}] any more"))),
    }
}

impl Broker {
    /// Looks at the file, opens the folders, and puts together what is to be started. Blocking.
    fn plan(
        &self,
        child: &Child,
        table: &str,
        secrets: Vec<(OsString, OsString)>,
    ) -> Result<Plan, OutsideError> {
        let program = &child.program;
        let file = self.programs.check(&Listed::now(program)).map_err(|unfit| match unfit {
            Unfit::Absent => OutsideError::Failed(format!("there is no file `{}`", program.path.display())),
            Unfit::Refused(problem) => OutsideError::Denied(problem),
        })?;
        self.programs.check_line(program, &child.args).map_err(OutsideError::Denied)?;
        let keys = ["fs_read", "fs_write", "execute"];
        let folders = own_folders(program, &self.kept, table, keys)
            .map_err(|refusal| OutsideError::Denied(refusal.for_operator()))?;
        let cwd: OwnedFd = Dir::open_ambient_dir(&program.cwd, ambient_authority())
            .map_err(|e| OutsideError::Failed(format!("`cwd`: `{}`: {e}", program.cwd.display())))?
            .into();
        let listed = program.env.iter().filter_map(|rule| {
            let value = rule.value.clone().map(OsString::from).or_else(|| std::env::var_os(&rule.name));
            Some((OsString::from(&rule.name), value?))
        });
        Ok(Plan {
            cage: child.caged.then(|| Cage::new(program, &file, folders)),
            name: program.path.clone().into_os_string(),
            file,
            args: child.args.iter().map(OsString::from).collect(),
            env: listed.chain(secrets).collect(),
            cwd,
            sandbox: program.sandbox,
            memory_bytes: program.memory_bytes,
            // Unbounded, as `RLIM_INFINITY` is written.
            file_bytes: u64::MAX,
            processes: (program.processes, format!("{table} processes = …")),
            guard: self.guard.clone(),
        })
    }
}

#[derive(Debug)]
struct Alive {
    running: Running,
    /// What it was handed is taken out of what it says for as long as it runs, whatever the policy says by then.
    _secrets: Arc<Vault>,
}

impl Life for Alive {
    fn ended(&mut self) -> BoxFuture<'_, String> {
        Box::pin(async move {
            match self.running.ended().await {
                Ok(status) => match (status.code(), status.signal()) {
                    (Some(code), _) => format!("it ended with exit code {code}"),
                    (None, Some(signal)) => format!("it was ended by signal {signal}"),
                    (None, None) => "it ended".to_owned(),
                },
                Err(error) => format!("it ended: {error}"),
            }
        })
    }
}
