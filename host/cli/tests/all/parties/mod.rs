//! An author who publishes signed plugins, and an operator who adds them.

use std::fs;

use crate::fixture::{CommandRun, HostFolder};
use crate::test_registry::TestRegistry;

pub(crate) const REPOSITORY: &str = "acme/text";

/// An author with the keys `acme` and `other`, and an operator who trusts what a test says.
pub(crate) struct Parties {
    pub(crate) registry: TestRegistry,
    pub(crate) author: HostFolder,
    pub(crate) operator: HostFolder,
}

impl Parties {
    pub(crate) fn new() -> Self {
        let registry = TestRegistry::start();
        let (author, operator) = (registry.folder(), registry.folder());
        for name in ["acme", "other"] {
            author.good(&["key", "new", &file(&author, &format!("{name}.key"))]);
            let public = format!("{name}.pub");
            fs::copy(author.path(&public), operator.path(&public)).unwrap();
        }
        Self { registry, author, operator }
    }

    pub(crate) fn reference(&self, tag: &str) -> String {
        self.registry.reference(&format!("{REPOSITORY}:{tag}"))
    }

    /// Publishes a component, signed by the keys. Returns the digest of its manifest.
    pub(crate) fn publish(&self, tag: &str, guest: &str, keys: &[&str]) -> String {
        let mut digest = String::new();
        let signs = |key: &&str| vec!["--sign".to_owned(), file(&self.author, &format!("{key}.key"))];
        let all = keys.iter().map(signs);
        for more in all.chain(keys.is_empty().then(Vec::new)) {
            let reference = self.reference(tag);
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            let pushed = [&["push", &reference, guest, "--json"], more.as_slice()].concat();
            digest = self.author.run(&pushed).says(0, &[]).json()["manifest"].as_str().unwrap().to_owned();
        }
        digest
    }

    /// Lets the operator's policy end with these rules.
    pub(crate) fn trust(&self, rules: &str) {
        let address = self.registry.reference("");
        let host = address.trim_end_matches('/');
        let rules = rules.replace("HOST", host);
        self.operator.write_policy(&format!("[registry.\"{host}\"]\nplain_http = true\n{rules}"));
    }

    pub(crate) fn add(&self, tag: &str, more: &[&str]) -> CommandRun {
        self.operator.run(&[&["add", &self.reference(tag)], more].concat())
    }

    pub(crate) fn requests(&self) -> usize {
        self.registry.requests.lock().unwrap().len()
    }
}

/// A rule that trusts these keys.
pub(crate) fn signed_by(keys: &[&str]) -> String {
    let files: Vec<String> = keys.iter().map(|key| format!("{key}.pub")).collect();
    format!("[[trust]]\nscope = \"HOST/acme/\"\nkeys = {files:?}")
}

pub(crate) fn file(folder: &HostFolder, name: &str) -> String {
    folder.path(name).to_str().unwrap().to_owned()
}

/// The text plugin with another version and first word of a description. Both have the length of the original.
pub(crate) fn text_plugin(parties: &Parties, version: &str, word: &str) -> String {
    let bytes = fs::read(guest_artifacts::PLUGIN_TEXT).unwrap();
    let bytes = replaced(&bytes, b"plugin-text0.1.0", format!("plugin-text{version}").as_bytes());
    let bytes = replaced(&bytes, b"Count the words, lines", format!("{word} the words, lines").as_bytes());
    let file = parties.author.path(&format!("text-{}-{word}.wasm", version.replace('.', "-")));
    fs::write(&file, bytes).unwrap();
    file.to_str().unwrap().to_owned()
}

/// The bytes with the only occurrence of a text replaced by one of the same length.
fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let places: Vec<usize> =
        bytes.windows(old.len()).enumerate().filter(|(_, part)| *part == old).map(|(at, _)| at).collect();
    assert_eq!((places.len(), old.len()), (1, new.len()));
    let at = places[0];
    [&bytes[..at], new, &bytes[at + old.len()..]].concat()
}

/// An operator with version 1.0.0 of the text plugin, signed by `acme`.
pub(crate) fn installed() -> Parties {
    let parties = Parties::new();
    parties.trust(&signed_by(&["acme", "other"]));
    let one = text_plugin(&parties, "1.0.0", "Count");
    parties.publish("1.0.0", &one, &["acme"]);
    parties.add("1.0.0", &[]).says(0, &[]);
    parties
}
