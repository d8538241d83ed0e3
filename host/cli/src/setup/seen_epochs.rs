//! The epochs that this machine has published, in its state directory. A store with a lower one is an old copy.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolbay::read_regular_text;
use toolbay_shared::nats::SharedAddress;
use toolbay_shared::publication::EpochGap;
use toolbay_state::private;

use super::args::SetupArgs;
use super::paths::state_dir;
use crate::output::Printer;

const FILE: &str = "published.json";
/// Largest file, in bytes: thousands of addresses.
const MAX_BYTES: u64 = 1 << 20;

/// The highest epoch that this machine has published at an address.
#[derive(Debug)]
pub(crate) struct SeenEpochs {
    file: PathBuf,
    address: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredEpochs {
    /// By address.
    epochs: BTreeMap<String, u64>,
}

impl SeenEpochs {
    pub(crate) fn new(args: &SetupArgs, address: &SharedAddress) -> Result<Self> {
        Ok(Self { file: state_dir(args)?.join(FILE), address: address.to_string() })
    }

    /// The highest epoch; zero if there is none. A file that cannot be read is as good as none: what the servers have seen
    /// counts, too.
    pub(crate) fn highest(&self) -> u64 {
        self.read().epochs.get(&self.address).copied().unwrap_or(0)
    }

    /// Records an epoch. A failure costs the next command this knowledge only.
    pub(crate) fn record(&self, epoch: u64) {
        let mut stored = self.read();
        let known = stored.epochs.entry(self.address.clone()).or_default();
        if *known >= epoch {
            return;
        }
        *known = epoch;
        let folder = self.file.parent().unwrap_or(&self.file);
        let text = json!(stored).to_string();
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let written = created.and_then(|()| private::replace(&self.file, text.as_bytes()));
        if let Err(error) = written {
            tracing::debug!(%error, "the published epoch was not recorded");
        }
    }

    fn read(&self) -> StoredEpochs {
        let text = read_regular_text(&self.file, MAX_BYTES).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }
}

/// Says that a store was behind, and what that means.
pub(crate) fn report_gap(printer: Printer, gap: Option<EpochGap>) {
    if let Some(EpochGap { stored, seen }) = gap {
        let had = if stored == 0 { "no epoch".to_owned() } else { format!("epoch {stored}") };
        printer.warning(&format!(
            "the shared state went back: it had {had}, and epoch {seen} was in force. Decisions since then are lost: check \
             `toolbay list --shared`, and disable, grant, revoke or stop again what is missing"
        ));
    }
}
