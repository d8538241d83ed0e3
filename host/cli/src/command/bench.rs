//! `toolbay bench`: how long calls of one tool take, here and now.

mod machine;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use toolbay::{Host, ToolCall, TurnContext, View};
use toolbay_core::pipeline::CallResult;
use toolbay_policy::limits::Usage;
use toolbay_policy::quantity;

use crate::command::args::{BenchArgs, SetupArgs};
use crate::command::servers;
use crate::command::setup::{self, Purpose, Tell};
use crate::{Verdict, output};
use machine::{Before, Conditions};

/// Calls that are not counted: the first one maps or compiles the code, the next ones fill caches.
const WARM_UP: u32 = 3;

/// What was measured.
struct Measured {
    /// One call after the other, sorted.
    times: Vec<Duration>,
    /// Calls a second of one batch.
    batch: f64,
    /// What one call used.
    usage: Usage,
    /// What else the machine did, where it can be told.
    conditions: Option<Conditions>,
}

pub(crate) async fn run(setup: &SetupArgs, mut asked: BenchArgs) -> Result<Verdict> {
    let text = super::arguments(asked.json_args.take(), asked.args_file.take())?;
    let host = setup::loaded(setup, Tell::Problems, Purpose::Run).await?;
    let servers = servers::attach_for(&host, &[asked.tool.as_str()]).await;
    let view = super::view(setup, &host)?;
    let bench = Bench { view, host: &host, turn: asked.turn.context(), asked: &asked, text: &text };
    let measured = bench.run().await;
    servers.close().await;
    match measured {
        Ok(measured) => show(&asked, &measured).map(|()| Verdict::Good),
        // Of calls that fail it is not the time that matters.
        Err(failed) => Ok(output::result(&failed).map(|()| Verdict::Bad)?),
    }
}

struct Bench<'a> {
    host: &'a Host,
    view: View,
    turn: TurnContext,
    asked: &'a BenchArgs,
    text: &'a str,
}

impl Bench<'_> {
    async fn run(&self) -> Result<Measured, Box<CallResult>> {
        for _ in 0..WARM_UP {
            self.calls(1).await?;
        }
        let before = Before::now();
        let (mut times, mut usage) = (Vec::new(), Usage::default());
        for _ in 0..self.asked.calls {
            let start = Instant::now();
            let done = self.calls(1).await?;
            times.push(start.elapsed());
            usage = done.first().map_or(usage, |done| done.usage);
        }
        times.sort_unstable();
        let start = Instant::now();
        self.calls(self.asked.calls).await?;
        let batch = f64::from(self.asked.calls) / start.elapsed().as_secs_f64();
        Ok(Measured { times, batch, usage, conditions: before.and_then(|before| before.until_now()) })
    }

    /// So many calls as one batch; the first that fails, if one does.
    async fn calls(&self, count: u32) -> Result<Vec<CallResult>, Box<CallResult>> {
        let call = |n: u32| ToolCall::new(n.to_string(), &*self.asked.tool, self.text);
        let turn = self.turn.clone();
        let mut done = self.host.call_all(&self.view, (1..=count).map(call).collect(), turn).await;
        match done.iter().position(|one| one.result.is_err()) {
            Some(at) => Err(Box::new(done.swap_remove(at))),
            None => Ok(done),
        }
    }
}

impl Measured {
    /// The time that so many of a hundred calls took at most.
    fn at(&self, percent: usize) -> Duration {
        let at = (self.times.len() * percent).div_ceil(100).saturating_sub(1);
        self.times.get(at).copied().unwrap_or_default()
    }
}

fn show(asked: &BenchArgs, measured: &Measured) -> Result<()> {
    let us = |time: Duration| (time.as_secs_f64() * 1e7).round() / 10.0;
    let (p50, p99, most) = (us(measured.at(50)), us(measured.at(99)), us(measured.at(100)));
    let (batch, usage) = (measured.batch.round(), &measured.usage);
    let conditions = measured.conditions;
    let fault = conditions.and_then(Conditions::fault);
    if let Some(fault) = &fault {
        output::note(&format!("{fault}: figures of a busy machine cannot stand beside those of another run"));
    }
    let mut out = output::out();
    if asked.json {
        let all = json!({
            "tool": asked.tool, "calls": asked.calls, "p50_us": p50, "p99_us": p99, "most_us": most,
            "batch_per_s": batch, "usage": usage, "load": conditions.map(|seen| seen.load),
            "stolen_percent": conditions.map(|seen| seen.stolen_percent),
            "comparable": conditions.is_some() && fault.is_none(),
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&all).map_err(std::io::Error::from)?)?;
        return Ok(());
    }
    let memory = quantity::show_bytes(usage.peak_memory_bytes);
    for (what, value) in [
        ("half of the calls took at most", format!("{p50} us")),
        ("99 of 100 took at most", format!("{p99} us")),
        ("the longest took", format!("{most} us")),
        ("as one batch", format!("{batch} calls/s")),
        ("the guest took, of one call", format!("{} us", usage.wall_us)),
        ("its fuel", usage.fuel.map_or_else(|| "not counted".to_owned(), |fuel| fuel.to_string())),
        ("its memory at most", memory),
    ] {
        writeln!(out, "{what:<32}{value:>16}")?;
    }
    Ok(())
}
