//! MCP servers: programs that the host starts for itself and not for a call. They run in the same sandbox as all
//! programs, with the files of their section of the policy instead of a tool's grants.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::server_connector::{ConnectorError, ProcessHandle, ServerProcess};
use toolbay_policy::capability::program::SandboxMode;
use toolbay_policy::hint::{LineValue, PolicyLine, Remedy};
use toolbay_policy::mcp_server::{ServerTransport, StdioServerConfig};
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_sandbox::process_sandbox::ProcessSandbox;

use super::ProcessLauncher;
use super::child::{self, LaunchPlan, RunningProgram, StartError};
use super::programs::{ListedProgram, ProgramError};
use super::request::open_program_folders;
use crate::Services;
use crate::secrets::SecretStore;

/// Maximum number of concurrent servers, including those that are being stopped: as many as a policy can name.
pub(super) const MAX_RUNNING: usize = 64;

/// The lists of folders in the section of a server.
const SERVER_LISTS: [&str; 3] = ["fs_read", "fs_write", "execute"];

/// Starts the program of a server.
pub async fn start_server(
    services: &Arc<Services>,
    name: &PluginId,
    child: &StdioServerConfig,
) -> Result<ServerProcess, ConnectorError> {
    let permit = Arc::clone(&services.process.servers).try_acquire_owned().map_err(|_| {
        let text =
            format!("{MAX_RUNNING} servers are running already, including those that are being stopped");
        ConnectorError::Failed(text.into())
    })?;
    check_section(services, name, child)?;
    let mut secrets = Vec::new();
    for (variable, secret) in &child.env_secrets {
        // The section was checked against the current policy, so the secret is allowed here.
        let value = services.secrets.value(secret).map_err(|why| ConnectorError::Denied(why.into()))?;
        secrets.push((OsString::from(variable), OsString::from(value)));
    }
    let (owner, owned, table) = (Arc::clone(services), child.clone(), format!("[mcp.{name}]"));
    // Runs on a blocking thread because a file system can hang.
    let plan = tokio::task::spawn_blocking(move || owner.process.plan_server(&owned, &table, secrets)).await;
    let plan = plan.map_err(|_| ConnectorError::Failed("the host failed to prepare the server".into()))??;
    let file = plan.file.clone();
    let mut running = RunningProgram::start(plan, permit).await.map_err(|error| match error {
        StartError::Io(error) => {
            ConnectorError::Failed(format!("`{}` cannot be started: {error}", file.display()).into())
        }
        StartError::Unconfined { problem, weaker } => ConnectorError::Denied(PolicyRefusal::new(
            format!("the server is not started, because this system cannot sandbox it: {problem}"),
            Remedy::Set {
                purpose: if weaker == SandboxMode::None {
                    let keys = child::keys_of_sandbox(SERVER_LISTS);
                    format!("to start it anyway, remove {keys} from its section, which have no effect then")
                } else {
                    "to start it anyway".to_owned()
                },
                line: PolicyLine::new(
                    format!("[mcp.{name}]"),
                    "sandbox",
                    LineValue::Text(weaker.name().to_owned()),
                ),
            },
        )),
        StartError::Unlimited(key) => ConnectorError::Denied(PolicyRefusal::new(
            format!("the server is not started, because this system does not enforce `{key}`"),
            format!("Remove `{key}` from [mcp.{name}] to start it without this limit."),
        )),
    })?;
    let confinement = running.confinement();
    let pipes = running
        .pipes()
        .ok_or_else(|| ConnectorError::Failed("the pipes of the server are already in use".into()))?;
    let (stdin, stdout, stderr) = pipes.into_parts();
    Ok(ServerProcess {
        stdin: Box::pin(stdin),
        stdout: Box::pin(stdout),
        stderr: Box::pin(stderr),
        confinement,
        handle: Box::new(RunningServer { running, _secrets: Arc::clone(&services.secrets) }),
    })
}

/// Checks that the current policy has the same section: a server can restart long after the host read it.
fn check_section(
    services: &Services,
    name: &PluginId,
    child: &StdioServerConfig,
) -> Result<(), ConnectorError> {
    let now = services.policy.mcp_server(name.as_str()).map(|server| &server.transport);
    let why = match now {
        Some(ServerTransport::Stdio(now)) if **now == *child => return Ok(()),
        Some(_) => format!(
            "the section [mcp.{name}] of the policy has changed: the server is not restarted with the old settings"
        ),
        None => format!("the policy no longer has a section [mcp.{name}]"),
    };
    Err(ConnectorError::Denied(why.into()))
}

impl ProcessLauncher {
    /// Checks the file, opens the folders and assembles the launch plan. Blocks.
    fn plan_server(
        &self,
        child: &StdioServerConfig,
        table: &str,
        secrets: Vec<(OsString, OsString)>,
    ) -> Result<LaunchPlan, ConnectorError> {
        let program = &child.program;
        let file = self.programs.check(&ListedProgram::resolve(program)).map_err(|error| match error {
            ProgramError::NotFound => {
                ConnectorError::Failed(format!("the file `{}` does not exist", program.path.display()).into())
            }
            ProgramError::Refused(problem) => ConnectorError::Denied(problem.into()),
        })?;
        let checked = self.programs.check_command_line(program, &child.args);
        checked.map_err(|problem| ConnectorError::Denied(problem.into()))?;
        let folders = open_program_folders(program, &self.protected, table, SERVER_LISTS)
            .map_err(ConnectorError::Denied)?;
        let cwd: OwnedFd = Dir::open_ambient_dir(&program.cwd, ambient_authority())
            .map_err(|e| ConnectorError::Failed(format!("`cwd`: `{}`: {e}", program.cwd.display()).into()))?
            .into();
        let listed = program.env.iter().filter_map(|rule| {
            let value = rule.value.clone().map(OsString::from).or_else(|| std::env::var_os(&rule.name));
            Some((OsString::from(&rule.name), value?))
        });
        Ok(LaunchPlan {
            sandbox: ProcessSandbox::new(program, &file, folders),
            name: program.path.clone().into_os_string(),
            file,
            args: child.args.iter().map(OsString::from).collect(),
            env: listed.chain(secrets).collect(),
            cwd,
            sandbox_mode: program.sandbox,
            memory_bytes: program.memory_bytes,
            // `RLIM_INFINITY`.
            file_bytes: u64::MAX,
            processes: (program.processes, format!("{table} processes = …")),
            guard: Arc::clone(&self.guard),
        })
    }
}

#[derive(Debug)]
struct RunningServer {
    running: RunningProgram,
    /// Keeps the secrets that the server received redacted from its output while it runs, whatever a later policy
    /// says.
    _secrets: Arc<SecretStore>,
}

impl ProcessHandle for RunningServer {
    fn wait(&mut self) -> BoxFuture<'_, String> {
        Box::pin(async move {
            match self.running.wait().await {
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
