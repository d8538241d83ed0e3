//! `toolbay bench`: how long calls of one tool take on this machine.

mod machine;

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use toolbay::{Host, Session, ToolCall, TurnContext, View};
use toolbay_core::pipeline::CallResult;
use toolbay_policy::limits::Usage;
use toolbay_policy::quantity;

use crate::args::BenchArgs;
use crate::output::{self, CommandStatus, Printer, TextTable, format};
use crate::report::call_error;
use crate::setup::{ReportLevel, SetupArgs, servers, services};
use machine::{MachineLoad, MachineSample};

/// Calls before the measurement: the first one maps or compiles the code, the next ones fill caches.
const WARM_UP: u32 = 3;

/// The measurement of one tool.
struct BenchResult {
    /// The times of calls made one after the other, sorted.
    times: Vec<Duration>,
    /// Calls per second of one batch.
    batch: f64,
    /// The resources that one call used.
    usage: Usage,
    /// The load of the machine, where the kernel reports it.
    conditions: Option<MachineLoad>,
}

pub(crate) async fn run(setup: &SetupArgs, options: BenchArgs) -> Result<CommandStatus> {
    let text = options.input.read()?;
    let host = services::load_host_for(setup, ReportLevel::Problems, &[options.tool.as_str()]).await?;
    let servers = servers::connect_for(setup, &host, &[options.tool.as_str()]).await;
    let view = servers::view(setup, &host)?;
    let turn = options.turn.context(Session::default());
    let bench = BenchRun { view, host: &host, turn, options: &options, text: &text };
    let measured = bench.run().await;
    servers.close().await;
    match measured {
        Ok(measured) => show(setup.printer, &options, &measured).map(|()| CommandStatus::Success),
        Err(failed) => {
            if setup.printer.is_json() {
                output::print_json(&output::result_json(&failed))?;
            } else if let Err(failure) = &failed.result {
                call_error::print(&failed, failure, &host, &bench.view, setup);
            }
            Ok(CommandStatus::Failed)
        }
    }
}

struct BenchRun<'a> {
    host: &'a Host,
    view: View,
    turn: TurnContext,
    options: &'a BenchArgs,
    text: &'a str,
}

impl BenchRun<'_> {
    async fn run(&self) -> Result<BenchResult, Box<CallResult>> {
        for _ in 0..WARM_UP {
            self.run_batch(1).await?;
        }
        let before = MachineSample::take();
        let (mut times, mut usage) = (Vec::new(), Usage::default());
        for _ in 0..self.options.calls {
            let start = Instant::now();
            let done = self.run_batch(1).await?;
            times.push(start.elapsed());
            usage = done.first().map_or(usage, |done| done.usage);
        }
        times.sort_unstable();
        let start = Instant::now();
        self.run_batch(self.options.calls).await?;
        let batch = f64::from(self.options.calls) / start.elapsed().as_secs_f64();
        Ok(BenchResult { times, batch, usage, conditions: before.and_then(|before| before.load_since()) })
    }

    /// Runs `count` calls as one batch.
    ///
    /// # Errors
    /// The first call that failed.
    async fn run_batch(&self, count: u32) -> Result<Vec<CallResult>, Box<CallResult>> {
        let call = |n: u32| ToolCall::new(n.to_string(), &*self.options.tool, self.text);
        let turn = self.turn.clone();
        let mut done = self.host.call_all(&self.view, (1..=count).map(call).collect(), turn).await;
        match done.iter().position(|one| one.result.is_err()) {
            Some(at) => Err(Box::new(done.swap_remove(at))),
            None => Ok(done),
        }
    }
}

fn show(printer: Printer, options: &BenchArgs, measured: &BenchResult) -> Result<()> {
    let percentile = |percent| format::percentile(&measured.times, percent);
    let us = |percent| (percentile(percent).as_secs_f64() * 1e7).round() / 10.0;
    let (batch, usage) = (measured.batch.round(), &measured.usage);
    let conditions = measured.conditions;
    let fault = conditions.and_then(MachineLoad::disturbance);
    if let Some(fault) = &fault {
        printer.note(&format!("{fault}; do not compare these figures with those of another run"));
    }
    if printer.is_json() {
        let all = json!({
            "tool": options.tool, "calls": options.calls, "p50_us": us(50), "p99_us": us(99), "most_us": us(100),
            "batch_per_s": batch, "usage": usage, "load": conditions.map(|seen| seen.load),
            "stolen_percent": conditions.map(|seen| seen.stolen_percent),
            "comparable": conditions.is_some() && fault.is_none(),
        });
        output::print_json(&all)?;
        return Ok(());
    }
    let memory = quantity::show_bytes(usage.peak_memory_bytes);
    let time = |percent| format::time(percentile(percent));
    let mut table = TextTable::new(["", ""]);
    for (what, value) in [
        ("median", time(50)),
        ("99 of 100 at most", time(99)),
        ("longest", time(100)),
        ("as one batch", format!("{} calls/s", format::grouped(batch as u64))),
        ("guest time of a call", format::time(Duration::from_micros(usage.wall_us))),
        ("fuel of a call", usage.fuel.map_or_else(|| "not counted".to_owned(), format::grouped)),
        ("memory at most", memory),
    ] {
        table.push_fact(what, value);
    }
    table.print()?;
    Ok(())
}
