//! What an epoch applies: the policy and the operator's decisions, as one immutable value that its digest names.
//!
//! | file | what |
//! |---|---|
//! | `policy.toml` | the policy |
//! | `toolbay.lock` | the plugins, by digest |
//! | `consents.json`, `switches.json`, `stop.json` | the decisions of operators |
//!
//! It also names the components of a plugin directory by their digests. A replica writes the files into a folder of its
//! own and reads them as if an operator had put them there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toolbay_state::digest::Digest;

/// Increased when the meaning of a bundle changes.
const FORMAT: u32 = 1;
/// Most bytes of a bundle: thousands of plugins.
pub const MAX_BUNDLE_BYTES: usize = 32 << 20;
/// The files that a bundle may have. Other names could lead out of the folder of a replica.
pub const FILES: [&str; 5] = ["policy.toml", "toolbay.lock", "consents.json", "switches.json", "stop.json"];

/// Most components of a plugin directory.
const MAX_PLUGINS: usize = 10_000;

/// The files of an epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    files: BTreeMap<String, String>,
    plugins: BTreeMap<String, Digest>,
}

/// The reason why bytes are no bundle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The bytes have another digest: they are damaged, or another party wrote them.
    #[error("the bundle has the digest {found}, and its epoch names {named}")]
    WrongDigest {
        /// What the epoch names.
        named: Digest,
        /// What the bytes have.
        found: Digest,
    },
    /// A newer Toolbay wrote it.
    #[error("the bundle has format {0}, and this version reads up to {FORMAT}: upgrade this replica")]
    Newer(u32),
    /// The bundle is too large.
    #[error("the bundle has {0} bytes; the limit is {MAX_BUNDLE_BYTES} bytes")]
    TooLarge(usize),
    /// The content is not a bundle.
    #[error("the bundle cannot be read: {0}")]
    Malformed(String),
}

#[derive(Serialize, Deserialize)]
struct StoredBundle {
    format: u32,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    plugins: BTreeMap<String, Digest>,
}

impl Bundle {
    /// A bundle with these files.
    ///
    /// # Errors
    /// A file has a name that no bundle may have.
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Result<Self, BundleError> {
        let files: BTreeMap<_, _> = files.into_iter().collect();
        match files.keys().find(|name| !FILES.contains(&name.as_str())) {
            Some(name) => Err(BundleError::Malformed(format!("no bundle has a file {name:?}"))),
            None => Ok(Self { files, plugins: BTreeMap::new() }),
        }
    }

    /// The bundle with the components of a plugin directory, by file name.
    ///
    /// # Errors
    /// A name is no plain `.wasm` file name, or there are too many.
    pub fn with_plugins(
        self,
        plugins: impl IntoIterator<Item = (String, Digest)>,
    ) -> Result<Self, BundleError> {
        let plugins: BTreeMap<_, _> = plugins.into_iter().collect();
        if plugins.len() > MAX_PLUGINS {
            return Err(BundleError::Malformed(format!("more than {MAX_PLUGINS} plugins")));
        }
        match plugins.keys().find(|name| !is_component(name)) {
            Some(name) => Err(BundleError::Malformed(format!("{name:?} is no name of a component"))),
            None => Ok(Self { plugins, ..self }),
        }
    }

    /// The files by name.
    #[must_use]
    pub fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }

    /// The components of the plugin directory, by file name.
    #[must_use]
    pub fn plugins(&self) -> &BTreeMap<String, Digest> {
        &self.plugins
    }

    /// The content of a file.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&str> {
        self.files.get(name).map(String::as_str)
    }

    /// The bytes, and the digest that names them. Equal files have equal bytes.
    ///
    /// # Errors
    /// The bundle is too large.
    pub fn to_bytes(&self) -> Result<(Vec<u8>, Digest), BundleError> {
        let stored =
            StoredBundle { format: FORMAT, files: self.files.clone(), plugins: self.plugins.clone() };
        let bytes = serde_json::to_vec(&stored).map_err(|error| BundleError::Malformed(error.to_string()))?;
        if bytes.len() > MAX_BUNDLE_BYTES {
            return Err(BundleError::TooLarge(bytes.len()));
        }
        let digest = Digest::of(&bytes);
        Ok((bytes, digest))
    }

    /// Reads the bytes of the bundle with this digest.
    ///
    /// # Errors
    /// The bytes have another digest, or are no bundle that this version can read.
    pub fn from_bytes(bytes: &[u8], named: &Digest) -> Result<Self, BundleError> {
        if bytes.len() > MAX_BUNDLE_BYTES {
            return Err(BundleError::TooLarge(bytes.len()));
        }
        let found = Digest::of(bytes);
        if found != *named {
            return Err(BundleError::WrongDigest { named: *named, found });
        }
        let stored: StoredBundle =
            serde_json::from_slice(bytes).map_err(|error| BundleError::Malformed(error.to_string()))?;
        if stored.format > FORMAT {
            return Err(BundleError::Newer(stored.format));
        }
        Self::new(stored.files)?.with_plugins(stored.plugins)
    }
}

/// Whether this is the name of a component: no other could lead out of the folder of a replica.
fn is_component(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() <= 255 && name.ends_with(".wasm") && !name.starts_with('.') && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_bundle_is_named_by_its_files() {
        let one = Bundle::new(files(&[("policy.toml", "version = 1\n"), ("stop.json", "{}")])).unwrap();
        let same = Bundle::new(files(&[("stop.json", "{}"), ("policy.toml", "version = 1\n")])).unwrap();
        let (bytes, digest) = one.to_bytes().unwrap();
        assert_eq!((&bytes, &digest), (&same.to_bytes().unwrap().0, &same.to_bytes().unwrap().1));
        assert_eq!(Bundle::from_bytes(&bytes, &digest).unwrap(), one);
        assert_eq!((one.file("policy.toml"), one.file("switches.json")), (Some("version = 1\n"), None));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        let other = Bundle::new(files(&[("policy.toml", "version = 2\n")])).unwrap();
        assert_ne!(other.to_bytes().unwrap().1, digest);
    }

    #[test]
    fn bytes_that_are_no_bundle_are_refused() {
        let (bytes, digest) = Bundle::default().to_bytes().unwrap();
        let mut damaged = bytes.clone();
        damaged[0] ^= 1;
        let wrong = Bundle::from_bytes(&damaged, &digest).unwrap_err();
        assert!(matches!(wrong, BundleError::WrongDigest { .. }), "{wrong}");
        for (text, told) in [
            ("{}", "missing field `format`"),
            (r#"{"format": 2, "files": {}}"#, "upgrade this replica"),
            (r#"{"format": 1, "files": {"../policy.toml": ""}}"#, "no bundle has a file"),
            (
                r#"{"format": 1, "plugins": {"../a.wasm": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}"#,
                "no name of a component",
            ),
            (
                r#"{"format": 1, "plugins": {".a.wasm": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}"#,
                "no name of a component",
            ),
            (r#"{"format": 1, "plugins": {"a.wasm": "00"}}"#, "64 hexadecimal digits"),
            (
                r#"{"format": 1, "plugins": {"a.toml": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}"#,
                "no name of a component",
            ),
            ("", "cannot be read"),
        ] {
            let problem = Bundle::from_bytes(text.as_bytes(), &Digest::of(text.as_bytes())).unwrap_err();
            assert!(problem.to_string().contains(told), "{text}: {problem}");
        }
        let large = Bundle::new(files(&[("policy.toml", &"#".repeat(MAX_BUNDLE_BYTES))])).unwrap();
        assert!(matches!(large.to_bytes(), Err(BundleError::TooLarge(_))));
    }
}
