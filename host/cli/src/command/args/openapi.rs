//! The command line of `toolbay openapi`.

use clap::{Subcommand, ValueHint};

use super::DecisionArgs;

/// What to do with services that an OpenAPI document describes.
#[derive(Debug, Subcommand)]
pub(crate) enum OpenApiCommand {
    /// List the services of the policy: document, tools, what could not be read.
    List {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
        /// Ask servers of documents whether there are newer ones.
        #[arg(long)]
        refresh: bool,
    },
    /// Show what would become a tool of a document, and what not and why. Changes nothing.
    Check {
        #[command(flatten)]
        document: DocumentArgs,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write a service into the policy.
    Add {
        /// What it is to be called; stands before the names of its tools.
        name: String,
        #[command(flatten)]
        document: DocumentArgs,
        /// Pin the document: only this very content is taken from then on.
        #[arg(long)]
        pin: bool,
        #[command(flatten)]
        decision: DecisionArgs,
    },
    /// Take a service out of the policy again.
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        decision: DecisionArgs,
    },
}

/// A document, and what is said of it.
#[derive(Debug, clap::Args)]
pub(crate) struct DocumentArgs {
    /// The document: a file, or a URL of `https`.
    #[arg(value_name = "FILE|URL", value_hint = ValueHint::FilePath)]
    pub(crate) document: String,
    /// Where the service is, instead of what the document says.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) server: Option<String>,
    /// Take only these operations: `tag:NAME`, `op:ID`, `GET`, `/path/*`, `GET /path/*`. Can be given several times.
    #[arg(long, value_name = "WHICH")]
    pub(crate) include: Vec<String>,
    /// Leave these operations out. Can be given several times.
    #[arg(long, value_name = "WHICH")]
    pub(crate) exclude: Vec<String>,
    /// The secret that answers a security scheme of the document. Can be given several times.
    #[arg(long, value_name = "SCHEME=SECRET")]
    pub(crate) secret: Vec<String>,
    /// A private network that the service and its document may be in: `127.0.0.1`, `10.0.0.0/8`. Can be given several
    /// times.
    #[arg(long, value_name = "NETWORK")]
    pub(crate) net_private: Vec<String>,
}
