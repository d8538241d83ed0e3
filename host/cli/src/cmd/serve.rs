//! `toolbay serve`: MCP over stdin and stdout.

use tokio_util::sync::CancellationToken;
use toolbay::{Filter, Host};
use toolbay_mcp::{Options, Server};

use crate::args::SetupArgs;
use crate::setup::{self, Tell};
use crate::{Stop, Verdict};

pub(crate) async fn run(args: &SetupArgs) -> Result<Verdict, Stop> {
    let host = setup::loaded(args, Tell::Warnings).await?;
    let server = Server::new(
        host.registry().clone(),
        host.pipeline().clone(),
        Filter::default(),
        Options { max_line_bytes: longest_line(&host), ..Options::default() },
    );
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    tokio::spawn(async move {
        wait_for_signal().await;
        stop.cancel();
    });
    toolbay_mcp::serve_stdio(server, cancel).await.map_err(Stop::Host)?;
    Ok(Verdict::Good)
}

/// Room for the largest arguments that any tool takes, each character escaped, and the request around them.
fn longest_line(host: &Host) -> usize {
    let catalog = host.registry().snapshot();
    let largest = catalog.tools().map(|entry| entry.args_bytes).max().unwrap_or(0);
    let line = usize::try_from(largest.saturating_mul(4)).unwrap_or(usize::MAX).saturating_add(64 << 10);
    line.max(Options::default().max_line_bytes)
}

async fn wait_for_signal() {
    let interrupt = tokio::signal::ctrl_c();
    let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
        interrupt.await.ok();
        return;
    };
    tokio::select! {
        _ = interrupt => {}
        _ = terminate.recv() => {}
    }
}
