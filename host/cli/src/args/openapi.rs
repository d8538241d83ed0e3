//! The command line of `toolbay openapi`.

use clap::{Subcommand, ValueHint};

use super::{DecisionArgs, pair};

/// The commands below `toolbay openapi`.
#[derive(Debug, Subcommand)]
pub(crate) enum OpenApiCommand {
    /// List the services of the policy with their documents and tools.
    List {
        /// Fetch documents again if they changed.
        #[arg(long)]
        refresh: bool,
    },
    /// Show which operations of a document would become tools, and why others would not.
    Check {
        #[command(flatten)]
        document: DocumentArgs,
        /// Treat warnings as failures.
        #[arg(long)]
        strict: bool,
    },
    /// Add a service to the policy.
    Add {
        /// The service's name, which prefixes its tools.
        name: String,
        #[command(flatten)]
        document: DocumentArgs,
        /// Pin the document by its digest: a changed one is refused.
        #[arg(long)]
        pin: bool,
        #[command(flatten)]
        decision: DecisionArgs,
    },
    /// Remove a service from the policy.
    Remove {
        /// The service's name.
        name: String,
        #[command(flatten)]
        decision: DecisionArgs,
    },
}

/// A document and how to use it.
#[derive(Debug, clap::Args)]
pub(crate) struct DocumentArgs {
    /// The document: a file, or an `https` URL.
    #[arg(value_name = "FILE|URL", value_hint = ValueHint::FilePath)]
    pub(crate) document: String,
    /// The URL of the service, instead of the document's.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) server: Option<String>,
    /// Include only these operations: `tag:NAME`, `op:ID`, `GET`, `/path/*`, `GET /path/*`. Repeatable.
    #[arg(long, value_name = "WHICH")]
    pub(crate) include: Vec<String>,
    /// Exclude these operations. Repeatable.
    #[arg(long, value_name = "WHICH")]
    pub(crate) exclude: Vec<String>,
    /// The secret for a security scheme of the document. Repeatable.
    #[arg(long, value_name = "SCHEME=SECRET", value_parser = pair('='))]
    pub(crate) secret: Vec<(String, String)>,
    /// A header of every request with a secret: `NAME=SECRET` of the policy, or `NAME=env:VARIABLE`, `NAME=file:/path`,
    /// `NAME=keyring:ENTRY`. A text before the secret is its prefix: `Authorization=Token env:KEY`. Repeatable.
    #[arg(long, value_name = "NAME=SECRET", value_parser = pair('='))]
    pub(crate) header: Vec<(String, String)>,
    /// A private network of the service and its document: `127.0.0.1`, `10.0.0.0/8`. Repeatable.
    #[arg(long, value_name = "NETWORK")]
    pub(crate) net_private: Vec<String>,
    /// A file with certificates (PEM) of authorities to trust, for the service and its document.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<String>,
    /// The HTTP proxy to the service and its document: `http://HOST:PORT`.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) proxy: Option<String>,
}
