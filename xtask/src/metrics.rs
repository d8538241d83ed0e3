//! `metrics`: Debian's Prometheus scrapes a running server and answers queries; `promtool` checks the metrics and the alert
//! rules of the documentation, and the dashboard's queries are known to Prometheus. PyPI's `rotel` receives the traces.

mod collector;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use collector::Collector;

use crate::foreign::{shell, unpacked_package};
use crate::programs::{RunningProgram, fetched, free_port, retried};
use crate::{cargo, plugins};

/// The Debian package.
const PROMETHEUS: &str = "prometheus";
/// The token of the scraper, and its SHA-256.
const TOKEN: &str = "test";
const TOKEN_SHA256: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
/// The trace of the calls.
const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
/// Calls before the scrape.
const CALLS: u64 = 25;
/// How long something may take to appear.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Installs Prometheus and the collector.
pub(crate) fn install(workspace: &Path) -> Result<()> {
    unpacked_package(workspace, PROMETHEUS)?;
    collector::install(&wasm::target_dir(workspace)).map(drop)
}

/// Runs all exchanges.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let target = wasm::target_dir(workspace);
    let package = unpacked_package(workspace, PROMETHEUS)?;
    let program = |name: &str| Command::new(package.join("usr/bin").join(name));
    let folder = target.join("metrics");
    crate::folder::emptied(&folder)?;
    std::fs::create_dir_all(folder.join("plugins"))?;

    let collector = Collector::start(&target, &folder)?;
    let server = ToolbayServer::start(workspace, &folder, &collector.url)?;
    let deploy = workspace.join("docs/deploy");
    shell(program("promtool").args(["check", "rules"]).arg(deploy.join("alerts.yml")))?;
    let mut prometheus = program("prometheus");
    let prometheus = Prometheus::start(&mut prometheus, &folder, &server.address)?;
    let count =
        "sum(toolbay_calls_total{job=\"toolbay\",plugin=\"text\",tool=\"text__word_count\",outcome=\"ok\"})";
    prometheus.wait_for(count, &CALLS.to_string())?;
    prometheus.wait_for("toolbay_stopped", "0")?;
    prometheus.wait_for("sum(toolbay_call_duration_seconds_count{plugin=\"text\"})", &CALLS.to_string())?;
    let calls = usize::try_from(CALLS)?;
    let spans =
        [("tools/call text__word_count", calls), ("queue", calls), ("run", calls), (TRACE_ID, 3 * calls)];
    collector.wait_for(&spans)?;
    collector.wait_for(&[("mcp.server.operation.duration", 1)])?;
    let token = format!("Authorization: Bearer {TOKEN}");
    let page = fetched(&format!("http://{}/metrics", server.address), &["--header", &token])?;
    ensure!(page.contains("\ntoolbay_spans_lost_total 0\n"), "spans were lost: {page}");
    check_names(&mut program("promtool"), &page)?;
    let queries = prometheus.check_dashboard(
        &deploy.join("dashboard.json"),
        &std::fs::read_to_string(workspace.join("docs/reference/metrics.md"))?,
    )?;
    println!(
        "Prometheus counted {CALLS} calls; {queries} queries of the dashboard have metrics; `rotel` received the spans"
    );
    Ok(())
}

/// Lints the metrics.
fn check_names(promtool: &mut Command, page: &str) -> Result<()> {
    let mut child = promtool.args(["check", "metrics"]).stdin(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("no stdin")?;
    input.write_all(in_older_format(page).as_bytes())?;
    drop(input);
    ensure!(child.wait()?.success(), "promtool refuses the metrics");
    Ok(())
}

/// The metrics in the older text format, in which a counter is declared with its suffix and there is no unit.
fn in_older_format(page: &str) -> String {
    let is_kept = |line: &&str| !line.starts_with("# UNIT") && *line != "# EOF";
    let counter = |line| str::strip_prefix(line, "# TYPE ")?.strip_suffix(" counter");
    let counters: BTreeSet<&str> = page.lines().filter_map(counter).collect();
    let declared = |line: &str| {
        let [mark, kind, name, rest]: [&str; 4] = line.splitn(4, ' ').collect::<Vec<_>>().try_into().ok()?;
        (mark == "#" && counters.contains(name)).then(|| format!("# {kind} {name}_total {rest}\n"))
    };
    page.lines().filter(is_kept).map(|line| declared(line).unwrap_or_else(|| format!("{line}\n"))).collect()
}

/// `toolbay serve` with an admin listener, after some calls.
struct ToolbayServer {
    _program: RunningProgram,
    _stdin: ChildStdin,
    address: String,
}

impl ToolbayServer {
    fn start(workspace: &Path, folder: &Path, collector: &str) -> Result<Self> {
        std::fs::copy(plugins::folder(workspace).join("text.wasm"), folder.join("plugins/text.wasm"))?;
        let tokens = folder.join("admin.toml");
        std::fs::write(
            &tokens,
            format!("[[token]]\nname = \"prometheus\"\nsha256 = \"{TOKEN_SHA256}\"\nrole = \"view\"\n"),
        )?;
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600))?;
        let policy = format!(
            "version = 1\n[admin]\nlisten = \"127.0.0.1:0\"\ntokens = \"admin.toml\"\n[telemetry]\notlp = \"{collector}\"\n"
        );
        std::fs::write(folder.join("toolbay.toml"), policy)?;
        let mut command = Command::new(cargo::host(workspace));
        command.arg("serve").arg("--config").arg(folder.join("toolbay.toml"));
        command.arg("--plugins").arg(folder.join("plugins")).arg("--state-dir").arg(folder.join("state"));
        command.arg("--cache-dir").arg(folder.join("cache")).env("OTEL_METRIC_EXPORT_INTERVAL", "1000");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = RunningProgram::spawn(&mut command)?;
        let address = program.logged("operators reach it on http://")?;
        let mut stdin = program.child.stdin.take().context("no stdin")?;
        let mut answers = BufReader::new(program.child.stdout.take().context("no stdout")?).lines();
        let mut ask = |message: &Value| -> Result<()> {
            writeln!(stdin, "{message}")?;
            answers.next().context("no answer")??;
            Ok(())
        };
        let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        ask(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}))?;
        for id in 1..=CALLS {
            let traceparent = format!("00-{TRACE_ID}-00f067aa0ba902b7-01");
            let meta = json!({"traceparent": traceparent});
            let params = json!({"name": "text__word_count", "arguments": {"text": "a b"}, "_meta": meta});
            ask(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))?;
        }
        Ok(Self { _program: program, _stdin: stdin, address })
    }
}

/// A running Prometheus.
struct Prometheus {
    _program: RunningProgram,
    address: String,
}

impl Prometheus {
    fn start(program: &mut Command, folder: &Path, target: &str) -> Result<Self> {
        let token = folder.join("token");
        std::fs::write(&token, TOKEN)?;
        let settings = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: toolbay\n  authorization: {{credentials_file: \"{}\"}}\n  \
             static_configs: [{{targets: [\"{target}\"]}}]\n",
            token.display()
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, settings)?;
        let address = format!("127.0.0.1:{}", free_port()?);
        program.arg(format!("--config.file={}", file.display()));
        program.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
        program.arg(format!("--web.listen-address={address}")).arg("--log.level=warn");
        Ok(Self { _program: RunningProgram::start(program)?, address })
    }

    /// The value of a query, if it has one.
    fn query(&self, query: &str) -> Result<Option<String>> {
        let url = format!("http://{}/api/v1/query", self.address);
        let answer = fetched(&url, &["--get", "--data-urlencode", &format!("query={query}")])?;
        let answer: Value = serde_json::from_str(&answer)?;
        Ok(answer.pointer("/data/result/0/value/1").and_then(Value::as_str).map(str::to_owned))
    }

    /// Waits until a query has this value.
    fn wait_for(&self, query: &str, expected: &str) -> Result<()> {
        // Prometheus may not listen yet.
        retried(TIMEOUT, || {
            let found = self.query(query)?;
            ensure!(found.as_deref() == Some(expected), "`{query}` is not {expected}: {found:?}");
            Ok(())
        })
    }

    /// Runs the queries of a dashboard, whose metrics have to be on their page. Returns their number.
    fn check_dashboard(&self, file: &Path, page: &str) -> Result<usize> {
        let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        let panels = dashboard.get("panels").and_then(Value::as_array).context("no panels")?;
        for panel in panels {
            let query = panel.pointer("/targets/0/expr").and_then(Value::as_str).context("no query")?;
            self.query(&query.replace("$__rate_interval", "1m")).with_context(|| query.to_owned())?;
            let is_other = |c: char| !c.is_ascii_lowercase() && c != '_';
            let name = query.split_once("toolbay_").and_then(|(_, rest)| rest.split(is_other).next());
            let name = name.with_context(|| query.to_owned())?;
            let name = name.strip_suffix("_bucket").unwrap_or(name);
            ensure!(page.contains(&format!("\n| `toolbay_{name}` |")), "`toolbay_{name}` is not a metric");
        }
        Ok(panels.len())
    }
}
