//! An OCI registry over TLS that attacks its clients: it sends exactly what a test says, and records what it gets. All
//! registries of a test program have certificates of one authority.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The media type of a manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an index.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The repository that tests use.
pub(crate) const REPOSITORY: &str = "acme/text";
/// The address that registries listen on, and that their certificates are for.
const HOST: &str = "127.0.0.1";
/// Bytes of one chunk of an endless body.
const CHUNK: usize = 64 << 10;

/// The authority, and the settings of servers with its certificate.
static TLS: LazyLock<TlsIdentity> = LazyLock::new(TlsIdentity::new);

struct TlsIdentity {
    ca: String,
    config: Arc<ServerConfig>,
}

impl TlsIdentity {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let ca_key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap();
        let issuer = Issuer::from_params(&params, &ca_key);
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec![HOST.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = builder.with_single_cert(vec![leaf.der().clone()], key).unwrap();
        Self { ca: ca.pem(), config: Arc::new(config) }
    }
}

/// The digest of a blob.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: Vec<String> = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", hex.concat())
}

/// The descriptor of a component.
pub(crate) fn descriptor(layer: &[u8]) -> Value {
    json!({"mediaType": "application/wasm", "digest": digest(layer), "size": layer.len()})
}

/// A manifest with these layers.
pub(crate) fn manifest(layers: &[Value]) -> Value {
    let config =
        json!({"mediaType": "application/vnd.wasm.config.v0+json", "digest": digest(b"{}"), "size": 2});
    json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers})
}

/// A received request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenRequest {
    /// Path and query.
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
}

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyLength {
    /// As long as `content-length` says.
    Complete,
    /// Shorter than the `content-length`. Then the connection is closed.
    Promised(usize),
    /// It is repeated until the client closes the connection.
    Endless,
}

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct AttackReply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    length: BodyLength,
}

impl AttackReply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), length: BodyLength::Complete }
    }

    /// A redirect.
    pub(crate) fn redirect(to: &str) -> Self {
        Self::new(307, "").with_header("location", to)
    }

    /// A body without an end.
    pub(crate) fn endless(status: u16) -> Self {
        Self { length: BodyLength::Endless, ..Self::new(status, vec![b' '; CHUNK]) }
    }

    /// The same response, cut off after its body although `length` bytes were promised.
    pub(crate) fn promising(self, length: usize) -> Self {
        Self { length: BodyLength::Promised(length), ..self }
    }

    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes the response. Returns whether the connection stays open.
    fn write_to(&self, stream: &mut impl Write) -> io::Result<bool> {
        let mut head = format!("HTTP/1.1 {} X\r\n", self.status);
        self.headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        head += &match self.length {
            BodyLength::Complete => format!("content-length: {}\r\n\r\n", self.body.len()),
            BodyLength::Promised(length) => format!("content-length: {length}\r\n\r\n"),
            BodyLength::Endless => "transfer-encoding: chunked\r\n\r\n".to_owned(),
        };
        stream.write_all(head.as_bytes())?;
        if self.length == BodyLength::Endless {
            // Ends with the error of a closed connection.
            loop {
                write!(stream, "{:x}\r\n", self.body.len())?;
                stream.write_all(&self.body)?;
                stream.write_all(b"\r\n")?;
                stream.flush()?;
            }
        }
        stream.write_all(&self.body)?;
        stream.flush()?;
        Ok(self.length == BodyLength::Complete)
    }
}

/// What the threads of a registry share.
#[derive(Default)]
struct RegistryState {
    /// By path, without the query.
    replies: Mutex<BTreeMap<String, AttackReply>>,
    /// The `www-authenticate` that requests below `/v2/` get if they have no `authorization`.
    challenge: Mutex<Option<String>>,
    requests: Mutex<Vec<SeenRequest>>,
    connections: AtomicUsize,
}

/// A registry. Its threads end with the test's process.
pub(crate) struct AttackRegistry {
    /// `HOST:PORT`.
    pub(crate) address: String,
    state: Arc<RegistryState>,
}

impl AttackRegistry {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((HOST, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let registry = Self { address, state: Arc::default() };
        let state = Arc::clone(&registry.state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                state.connections.fetch_add(1, Ordering::SeqCst);
                let state = Arc::clone(&state);
                // A client that refuses a response closes the connection.
                std::thread::spawn(move || serve(stream.unwrap(), &state).ok());
            }
        });
        registry
    }

    /// A registry with a component under the tag `1`.
    pub(crate) fn with_component(layer: &[u8]) -> Self {
        let registry = Self::start();
        registry.publish("1", layer);
        registry
    }

    /// The certificate of the authority, in PEM.
    pub(crate) fn ca() -> &'static str {
        &TLS.ca
    }

    /// Sets the response for a path.
    pub(crate) fn reply(&self, path: &str, reply: AttackReply) {
        self.state.replies.lock().unwrap().insert(path.to_owned(), reply);
    }

    /// Sets the response for a blob.
    pub(crate) fn reply_to_blob(&self, layer: &[u8], reply: AttackReply) {
        self.reply(&format!("/v2/{REPOSITORY}/blobs/{}", digest(layer)), reply);
    }

    /// Sets the response for a tag or digest.
    pub(crate) fn reply_to_manifest(&self, name: &str, reply: AttackReply) {
        self.reply(&format!("/v2/{REPOSITORY}/manifests/{name}"), reply);
    }

    /// Publishes a document under a tag and its digest, which is returned.
    pub(crate) fn publish_manifest(&self, tag: &str, media_type: &str, document: &Value) -> String {
        let bytes = document.to_string().into_bytes();
        let pinned = digest(&bytes);
        for name in [tag, &pinned] {
            let reply = AttackReply::new(200, bytes.clone()).with_header("content-type", media_type);
            self.reply_to_manifest(name, reply);
        }
        pinned
    }

    /// Publishes a component under a tag, and returns the digest of its manifest.
    pub(crate) fn publish(&self, tag: &str, layer: &[u8]) -> String {
        self.reply_to_blob(layer, AttackReply::new(200, layer));
        self.publish_manifest(tag, MANIFEST, &manifest(&[descriptor(layer)]))
    }

    /// Requires a token of this realm.
    pub(crate) fn require_token(&self, realm: &str) {
        let challenge = format!("Bearer realm=\"{realm}\",service=\"s\"");
        *self.state.challenge.lock().unwrap() = Some(challenge);
    }

    /// `https://HOST:PORT` with this suffix.
    pub(crate) fn url(&self, rest: &str) -> String {
        format!("https://{}{rest}", self.address)
    }

    /// The reference of the tag `1`.
    pub(crate) fn reference(&self) -> String {
        format!("{}/{REPOSITORY}:1", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<SeenRequest> {
        self.state.requests.lock().unwrap().clone()
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

impl RegistryState {
    fn reply(&self, request: &SeenRequest) -> AttackReply {
        let challenge = self.challenge.lock().unwrap().clone();
        let challenge =
            challenge.filter(|_| request.authorization.is_none() && request.path.starts_with("/v2/"));
        if let Some(challenge) = challenge {
            return AttackReply::new(401, "").with_header("www-authenticate", &challenge);
        }
        let path = request.path.split('?').next().unwrap();
        let found = self.replies.lock().unwrap().get(path).cloned();
        found.unwrap_or_else(|| AttackReply::new(404, ""))
    }
}

fn serve(stream: TcpStream, state: &RegistryState) -> io::Result<()> {
    let connection = ServerConnection::new(Arc::clone(&TLS.config)).map_err(io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    while let Some(request) = read_request(&mut reader)? {
        let reply = state.reply(&request);
        state.requests.lock().unwrap().push(request);
        if !reply.write_to(reader.get_mut())? {
            break;
        }
    }
    Ok(())
}

/// Reads a request, and forgets its body; `None` at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<SeenRequest>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let path = lines[0].split(' ').nth(1).unwrap().to_owned();
    let header = |wanted: &str| {
        let mut headers = lines.iter().filter_map(|line| line.split_once(": "));
        headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.to_owned())
    };
    let length = header("content-length").map_or(0, |length| length.parse().unwrap());
    io::copy(&mut reader.take(length), &mut io::sink())?;
    Ok(Some(SeenRequest { path, authorization: header("authorization") }))
}
