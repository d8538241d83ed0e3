//! The connection to NATS.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{
    AccountErrorKind, CreateStreamError, CreateStreamErrorKind, GetStreamErrorKind, RequestError,
    RequestErrorKind,
};
use async_nats::jetstream::stream::{Config, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ConnectOptions, Event};
use tokio::sync::watch;
use toolbay_policy::name::PluginId;
use toolbay_policy::quantity::show_bytes;

use super::address::{Credentials, SharedAddress};
use super::buckets::{Bucket, Durability};
use super::describe;
use super::entries::Entries;
use super::objects::Objects;
use super::publish::error_code;
use super::records::Records;
use super::streams::{
    PlannedStream, StoragePlan, audit_stream, audit_subject, entries_bucket, outputs_bucket, stream_setting,
};

/// How often the connection is tested. The library's default of a minute would hide a lost server for two.
const PING: Duration = Duration::from_secs(1);
/// The longest pause between two attempts to connect again.
const MOST_PAUSE: Duration = Duration::from_secs(1);
/// How long the first connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a request may take.
pub(crate) const REQUEST: Duration = Duration::from_secs(2);
/// How often a stream is asked for. A cluster answers once the copies of the stream have a leader, which can take longer than a
/// request.
const MAX_REQUESTS: u32 = 5;
/// The first version that this code was tested with.
const OLDEST: (u64, u64) = (2, 11);
/// Most bytes of a credentials file.
const MAX_SECRET_BYTES: u64 = 64 << 10;

/// A connection to the shared state. Clones share it.
#[derive(Debug, Clone)]
pub struct Connection {
    client: Client,
    context: Context,
    address: Arc<SharedAddress>,
    /// The number of connections so far. Each new one may lead to a store that went back.
    connections: watch::Receiver<u64>,
}

/// The reason why there is no shared state.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// A file of the credentials cannot be used.
    #[error("`{file}`: {problem}")]
    File {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: io::Error,
    },
    /// No server answers, or none accepts the credentials.
    #[error("`--shared {address}`: {problem}")]
    Connect {
        /// The servers.
        address: String,
        /// What is wrong.
        problem: String,
    },
    /// Nobody has published anything there.
    #[error("`--shared {address}` has no stream `{stream}`: run `toolbay shared publish` first")]
    Unpublished {
        /// The servers.
        address: String,
        /// The stream.
        stream: String,
    },
    /// The server lacks something.
    #[error("the NATS server of `--shared {address}` {problem}")]
    Server {
        /// The servers.
        address: String,
        /// What it lacks, and what to do.
        problem: String,
    },
}

impl Connection {
    /// Connects and checks the server.
    ///
    /// # Errors
    /// No server answers within five seconds, or the server refuses the credentials or lacks something.
    pub async fn open(
        address: SharedAddress,
        credentials: &Credentials,
        name: &str,
    ) -> Result<Self, ConnectionError> {
        let (count, connections) = watch::channel(0);
        let options = options(&address, credentials, name)?.event_callback(move |event| {
            report(&event);
            if matches!(event, Event::Connected) {
                count.send_modify(|connections| *connections += 1);
            }
            std::future::ready(())
        });
        let failed = |problem: String| ConnectionError::Connect { address: address.to_string(), problem };
        let connecting = tokio::time::timeout(CONNECT, options.connect(address.servers().to_vec()));
        let client = match connecting.await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(failed(describe(&error))),
            Err(_) => return Err(failed(format!("no answer within {} s", CONNECT.as_secs()))),
        };
        let mut context = jetstream::new(client.clone());
        context.set_timeout(REQUEST);
        let connection = Self { client, context, address: Arc::new(address), connections };
        connection.check_server().await?;
        Ok(connection)
    }

    async fn check_server(&self) -> Result<(), ConnectionError> {
        let lacks = |problem: String| ConnectionError::Server { address: self.address.to_string(), problem };
        let version = self.client.server_info().version;
        let mut parts = version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
        let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if found < OLDEST {
            let version: String = version.chars().take(40).collect();
            return Err(lacks(format!(
                "has version {version:?}; Toolbay needs {}.{} or later",
                OLDEST.0, OLDEST.1
            )));
        }
        let Err(error) = self.context.query_account().await else { return Ok(()) };
        let code = match error.kind() {
            AccountErrorKind::JetStream(problem) => Some(problem.error_code()),
            _ => error_code(&error),
        };
        let has_no_quorum =
            matches!(error.kind(), AccountErrorKind::TimedOut) || code.is_some_and(is_leaderless);
        Err(lacks(match has_no_quorum {
            true => format!(
                "has no quorum: JetStream does not answer ({}) before more than half of its servers run and reach each \
                 other; `nats server report jetstream` shows them",
                describe(&error)
            ),
            false => format!(
                "does not let this account use JetStream ({}): start it with `jetstream`, and see `toolbay shared \
                 permissions`",
                describe(&error)
            ),
        }))
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> &SharedAddress {
        &self.address
    }

    /// The number of connections so far, and its changes.
    #[must_use]
    pub fn connections(&self) -> watch::Receiver<u64> {
        self.connections.clone()
    }

    /// Creates a bucket, unless it exists.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn create(&self, bucket: Bucket, durability: Durability) -> Result<(), ConnectionError> {
        let stream = bucket.stream(self.address.prefix(), durability);
        let created = until_answered(|| self.context.get_or_create_stream(stream.clone())).await;
        created.map(drop).map_err(|error| self.not_created(&stream, &error))
    }

    /// Creates the streams of a plan, or applies its limits to them.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn create_storage(
        &self,
        plan: &StoragePlan,
        durability: Durability,
    ) -> Result<(), ConnectionError> {
        for PlannedStream { config, .. } in plan.streams(self.address.prefix(), durability) {
            let created = until_answered(|| self.context.create_or_update_stream(config.clone())).await;
            created.map_err(|error| self.not_created(&config, &error))?;
        }
        Ok(())
    }

    /// The settings of all buckets and of the streams of a plan that endanger a promise, with what mends each.
    ///
    /// # Errors
    /// A stream cannot be seen.
    pub async fn check(
        &self,
        plan: &StoragePlan,
        durability: Durability,
    ) -> Result<Vec<String>, ConnectionError> {
        let prefix = self.address.prefix();
        let of_buckets = Bucket::ALL.map(|bucket| PlannedStream::of_bucket(bucket, prefix, durability));
        let mut problems = Vec::new();
        for planned in of_buckets.into_iter().chain(plan.streams(prefix, durability)) {
            let found = match self.stream(&planned.config.name).await {
                Ok(stream) => Some(stream),
                Err(ConnectionError::Unpublished { .. }) => None,
                Err(error) => return Err(error),
            };
            problems.extend(planned.problems(found.as_ref().map(|stream| &stream.cached_info().config)));
        }
        Ok(problems)
    }

    /// Opens an existing bucket of records.
    ///
    /// # Errors
    /// The bucket does not exist, or the server refuses it.
    pub async fn records(&self, bucket: Bucket) -> Result<Records, ConnectionError> {
        self.open_records(&bucket.name(self.address.prefix())).await
    }

    /// Opens an existing bucket of objects.
    ///
    /// # Errors
    /// The bucket does not exist, or the server refuses it.
    pub async fn objects(&self, bucket: Bucket) -> Result<Objects, ConnectionError> {
        self.open_objects(&bucket.name(self.address.prefix())).await
    }

    /// Opens the entries of a plugin.
    ///
    /// # Errors
    /// The plugin has no stream, or the server refuses it.
    pub async fn entries(&self, plugin: &PluginId) -> Result<Entries, ConnectionError> {
        let bucket = entries_bucket(self.address.prefix(), plugin);
        let stream = self.stream(&format!("KV_{bucket}")).await?;
        Ok(Entries::new(stream, self.context.clone(), format!("$KV.{bucket}.")))
    }

    /// Opens the saved outputs: the lists, and the texts.
    ///
    /// # Errors
    /// The buckets do not exist, or the server refuses it.
    pub async fn outputs(&self) -> Result<(Records, Objects), ConnectionError> {
        let bucket = outputs_bucket(self.address.prefix());
        Ok((self.open_records(&bucket).await?, self.open_objects(&bucket).await?))
    }

    /// The stream of audit lines, what sends them, and the start of their subjects.
    pub(crate) async fn audit(&self) -> Result<(Stream, Context, String), ConnectionError> {
        let name = audit_stream(self.address.prefix());
        let stream = self.stream(&name).await?;
        Ok((stream, self.context.clone(), audit_subject(self.address.prefix())))
    }

    async fn open_records(&self, bucket: &str) -> Result<Records, ConnectionError> {
        let name = format!("KV_{bucket}");
        self.stream(&name).await?;
        let store = self.context.get_key_value(bucket).await;
        store
            .map(|store| Records::new(store, self.context.clone()))
            .map_err(|error| self.lacks(&name, &error))
    }

    async fn open_objects(&self, bucket: &str) -> Result<Objects, ConnectionError> {
        let name = format!("OBJ_{bucket}");
        self.stream(&name).await?;
        let store = self.context.get_object_store(bucket).await;
        store.map(|store| Objects::new(store, bucket.to_owned())).map_err(|error| self.lacks(&name, &error))
    }

    async fn stream(&self, name: &str) -> Result<Stream, ConnectionError> {
        until_answered(|| self.context.get_stream(name)).await.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(problem) if problem.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                ConnectionError::Unpublished { address: self.address.to_string(), stream: name.to_owned() }
            }
            _ => self.lacks(name, &error),
        })
    }

    /// The reason why a stream was not created or changed.
    fn not_created(&self, stream: &Config, error: &CreateStreamError) -> ConnectionError {
        let code = match error.kind() {
            CreateStreamErrorKind::JetStream(problem) => Some(problem.error_code()),
            _ => error_code(error),
        };
        if !code.is_some_and(lacks_space) {
            return self.lacks(&stream.name, error);
        }
        let copies = match stream.num_replicas {
            0 | 1 => String::new(),
            replicas => format!(" on each of {replicas} servers"),
        };
        let size = match u64::try_from(stream.max_bytes).ok().filter(|bytes| *bytes > 0) {
            Some(bytes) => format!(", which may have up to {}", show_bytes(bytes.next_multiple_of(1 << 20))),
            None => String::new(),
        };
        let key = stream_setting(&stream.name, self.address.prefix());
        ConnectionError::Server {
            address: self.address.to_string(),
            problem: format!(
                "has no disk space for the stream `{}`{size}{copies} ({}): free space below its `store_dir`, raise \
                 `max_file_store` in its `jetstream` block, or lower {key}",
                stream.name,
                describe(error)
            ),
        }
    }

    fn lacks(&self, stream: &str, error: &(dyn Error + 'static)) -> ConnectionError {
        // A server does not answer what it does not permit, either.
        let cause = match has_timed_out(error) {
            true => "its copies have no leader (`nats stream report`), or this account has no permission: ",
            false => "",
        };
        let error = describe(error);
        ConnectionError::Server {
            address: self.address.to_string(),
            problem: format!(
                "does not give the stream `{stream}` ({error}): {cause}see `toolbay shared permissions`"
            ),
        }
    }

    /// Sends what is buffered, and closes the connection.
    pub async fn close(&self) {
        // A server that does not take it any more would lose it anyway.
        drop(tokio::time::timeout(REQUEST, self.client.drain()).await);
    }
}

/// Makes a request, and makes it again while there is no answer. Each request to create a stream finds the stream of the first.
async fn until_answered<T, E: Error + 'static, F: Future<Output = Result<T, E>>>(
    mut request: impl FnMut() -> F,
) -> Result<T, E> {
    let mut asked = 1;
    loop {
        match request().await {
            Err(error) if has_timed_out(&error) && asked < MAX_REQUESTS => asked += 1,
            answer => return answer,
        }
    }
}

/// Whether no server answered the request.
fn has_timed_out(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| (*error).source()).any(|error| {
        error.downcast_ref::<RequestError>().is_some_and(|error| error.kind() == RequestErrorKind::TimedOut)
            || error
                .downcast_ref::<CreateStreamError>()
                .is_some_and(|error| error.kind() == CreateStreamErrorKind::TimedOut)
    })
}

/// Whether JetStream says that it has no room for what a stream may have.
fn lacks_space(code: ErrorCode) -> bool {
    [
        ErrorCode::STORAGE_RESOURCES_EXCEEDED,
        ErrorCode::INSUFFICIENT_RESOURCES,
        ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
        // In a cluster, no server with enough room is a suitable peer.
        ErrorCode::CLUSTER_NO_PEERS,
    ]
    .contains(&code)
}

/// Whether JetStream says that its cluster has no leader.
fn is_leaderless(code: ErrorCode) -> bool {
    [ErrorCode::CLUSTER_NOT_AVAILABLE, ErrorCode::CLUSTER_NOT_LEADER, ErrorCode::CLUSTER_NOT_ACTIVE]
        .contains(&code)
}

fn options(
    address: &SharedAddress,
    credentials: &Credentials,
    name: &str,
) -> Result<ConnectOptions, ConnectionError> {
    let mut options = ConnectOptions::new()
        .name(format!("toolbay/{name}"))
        .ping_interval(PING)
        .connection_timeout(CONNECT)
        .request_timeout(Some(REQUEST))
        .reconnect_delay_callback(|attempt| {
            let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
            Duration::from_millis(50).saturating_mul(1 << attempt.min(5)).min(MOST_PAUSE)
        })
        .require_tls(address.requires_tls());
    if let Some(file) = &credentials.credentials {
        let text = read_secret(file)?;
        options = options.credentials(&text).map_err(|problem| file_error(file, problem))?;
    }
    if let Some(file) = &credentials.nkey {
        options = options.nkey(read_secret(file)?.trim().to_owned());
    }
    if let Some(file) = &credentials.authorities {
        options = options.add_root_certificates(file.clone());
    }
    if let Some((certificate, key)) = &credentials.certificate {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(options)
}

fn read_secret(file: &Path) -> Result<String, ConnectionError> {
    use std::io::Read as _;
    let mut text = String::new();
    let read =
        std::fs::File::open(file).and_then(|open| open.take(MAX_SECRET_BYTES).read_to_string(&mut text));
    read.map(|_| text).map_err(|problem| file_error(file, problem))
}

fn file_error(file: &Path, problem: io::Error) -> ConnectionError {
    ConnectionError::File { file: file.display().to_string(), problem }
}

fn report(event: &Event) {
    match event {
        Event::Connected => tracing::info!("connected to NATS"),
        Event::Disconnected => tracing::warn!("the connection to NATS is lost"),
        Event::Draining | Event::Closed => tracing::debug!("the connection to NATS ends"),
        Event::SlowConsumer(_) => tracing::warn!("messages of NATS come faster than they are processed"),
        other => {
            let text: String = other.to_string().chars().take(200).collect();
            tracing::warn!(event = %text, "NATS");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use async_nats::jetstream::context::GetStreamError;

    use super::*;

    /// How often a stream is asked for whose leader answers the request of this number, and whether it is created.
    async fn asked(leader_since: u32) -> (u32, bool) {
        let asked = Cell::new(0);
        let created = until_answered(|| {
            asked.set(asked.get() + 1);
            let has_leader = asked.get() >= leader_since;
            let timed_out = || CreateStreamError::from(CreateStreamErrorKind::TimedOut);
            async move { has_leader.then_some(()).ok_or_else(timed_out) }
        });
        let created = created.await.is_ok();
        (asked.get(), created)
    }

    #[tokio::test]
    async fn a_request_without_an_answer_is_told_from_a_refusal() {
        let timeout = RequestError::new(RequestErrorKind::TimedOut);
        let refusal = RequestError::new(RequestErrorKind::NoResponders);
        for (source, timed_out) in [(timeout, true), (refusal, false)] {
            let error = GetStreamError::with_source(GetStreamErrorKind::Request, source);
            assert_eq!(has_timed_out(&error), timed_out, "{error}");
        }
    }

    #[tokio::test]
    async fn a_stream_is_asked_for_until_it_has_a_leader() {
        assert_eq!(asked(1).await, (1, true));
        assert_eq!(asked(3).await, (3, true));
        assert_eq!(asked(MAX_REQUESTS + 1).await, (MAX_REQUESTS, false));
    }
}
