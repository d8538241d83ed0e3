//! An OCI registry of 2.8: a small server on this machine that stores what it gets and lists no referrers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::fixture::HostFolder;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The media type and content of each path.
pub(crate) type Content = BTreeMap<String, (String, Vec<u8>)>;

/// A registry.
pub(crate) struct TestRegistry {
    address: String,
    pub(crate) content: Arc<Mutex<Content>>,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: Vec<String> = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", hex.concat())
}

impl TestRegistry {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let registry = Self { address, content: Arc::default(), requests: Arc::default() };
        let (content, requests) = (Arc::clone(&registry.content), Arc::clone(&registry.requests));
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (content, requests) = (Arc::clone(&content), Arc::clone(&requests));
                std::thread::spawn(move || answer(stream.unwrap(), &content, &requests));
            }
        });
        registry
    }

    /// Publishes a component under a repository and tag.
    pub(crate) fn push(&self, name: &str, tag: &str, guest: &str) -> String {
        let layer = fs::read(guest).unwrap();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.wasm.config.v0+json", "digest": digest(b"{}"), "size": 2},
            "layers": [{"mediaType": "application/wasm", "digest": digest(&layer), "size": layer.len()}],
        });
        let manifest = manifest.to_string().into_bytes();
        let pinned = digest(&manifest);
        let mut content = self.content.lock().unwrap();
        content
            .insert(format!("/v2/{name}/blobs/{}", digest(&layer)), ("application/wasm".to_owned(), layer));
        for tag in [tag, &pinned] {
            content.insert(format!("/v2/{name}/manifests/{tag}"), (MANIFEST.to_owned(), manifest.clone()));
        }
        pinned
    }

    pub(crate) fn reference(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// A folder whose policy knows this registry.
    pub(crate) fn folder(&self) -> HostFolder {
        HostFolder::new(&format!("[registry.\"{}\"]\nplain_http = true\n", self.address))
    }
}

fn answer(stream: TcpStream, content: &Mutex<Content>, requests: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim_end().is_empty() {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let (method, path) = lines[0].rsplit_once(' ').unwrap().0.split_once(' ').unwrap();
        let header = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let sent = header("content-length: ").map_or(0, |length| length.parse().unwrap());
        let mut sent = vec![0; sent];
        reader.read_exact(&mut sent).unwrap();
        requests.lock().unwrap().push(path.to_owned());
        let kind = header("content-type: ").unwrap_or_default();
        let (status, (kind, body)) = respond(method, path, (kind, sent), &mut content.lock().unwrap());
        let length = body.len();
        let path = path.split_once("/v2/").map_or("", |_| path);
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nlocation: {path}1\r\ncontent-length: {length}\r\n\r\n"
        );
        let body = if method == "HEAD" { Vec::new() } else { body };
        let stream = reader.get_mut();
        // A client that was killed reads no further.
        if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).is_err() {
            return;
        }
    }
}

/// Stores uploads, and finds everything else.
fn respond(
    method: &str,
    path: &str,
    sent: (String, Vec<u8>),
    content: &mut Content,
) -> (&'static str, (String, Vec<u8>)) {
    match (method, path.split_once("uploads/")) {
        ("POST", _) => ("202 Accepted", Default::default()),
        ("PUT", Some((before, upload))) => {
            let digest = upload.split_once("digest=").unwrap().1.replace("%3A", ":");
            content.insert(format!("{before}{digest}"), sent);
            ("201 Created", Default::default())
        }
        ("PUT", None) => {
            let by_digest = format!("{}/{}", path.rsplit_once('/').unwrap().0, digest(&sent.1));
            content.insert(by_digest, sent.clone());
            content.insert(path.to_owned(), sent);
            ("201 Created", Default::default())
        }
        ("GET", None) if path.contains("/tags/list") => {
            let manifests = format!("{}/manifests/", path.split_once("/tags/list").unwrap().0);
            let names = content.keys().filter_map(|path| path.strip_prefix(&manifests));
            let tags: Vec<&str> = names.filter(|name| !name.contains(':')).collect();
            ("200 OK", ("application/json".to_owned(), json!({"tags": tags}).to_string().into_bytes()))
        }
        _ => match content.get(path) {
            Some(found) => ("200 OK", found.clone()),
            None => ("404 Not Found", Default::default()),
        },
    }
}
