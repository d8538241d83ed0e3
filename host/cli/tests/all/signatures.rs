//! Signed plugins: `key`, `push --sign`, the `[[trust]]` rules of `add`, and `verify`. The registry is a small server on
//! this machine.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::fixture::HostFolder;
use crate::parties::{Parties, REPOSITORY, file, signed_by};
use crate::test_registry;

/// The path of the blob with a digest of the lock.
fn blob(folder: &HostFolder, key: &str) -> PathBuf {
    let lock = folder.read("toolbay.lock");
    let (_, rest) = lock.split_once(&format!("{key} = \"sha256:")).unwrap();
    folder.path(".local/share/toolbay/store/blobs/sha256").join(&rest[..64])
}

#[test]
fn a_signature_without_a_type_counts_and_what_is_skipped_is_named() {
    let parties = Parties::new();
    let digest = parties.publish("1.0", guest_artifacts::PLUGIN_TEXT, &["acme"]);
    parties.trust(&signed_by(&["acme"]));
    // The list of a registry that lists no referrers itself, as another tool wrote it.
    let list = format!("/v2/{REPOSITORY}/manifests/{}", digest.replace(':', "-"));
    let rewrite = |entries: &dyn Fn(&mut Vec<Value>)| {
        let mut content = parties.registry.content.lock().unwrap();
        let (_, bytes) = content.get_mut(&list).unwrap();
        let mut index: Value = serde_json::from_slice(bytes).unwrap();
        entries(index["manifests"].as_array_mut().unwrap());
        *bytes = index.to_string().into_bytes();
    };
    rewrite(&|entries| {
        entries[0].as_object_mut().unwrap().remove("artifactType");
        entries.push(json!({"digest": 1, "mediaType": "application/vnd.oci.image.manifest.v1+json"}));
    });
    parties.add("1.0", &[]).says(0, &["key:", "is skipped: its entry is malformed"]);
    // Without a signature, what could not be read never counts as none.
    fs::remove_file(parties.operator.path("toolbay.lock")).unwrap();
    rewrite(&|entries| drop(entries.remove(0)));
    parties.add("1.0", &[]).says(1, &["is skipped: its entry is malformed"]);
}

#[test]
fn a_signed_plugin_is_added_by_its_key_and_verified_without_a_network() {
    let parties = Parties::new();
    let Parties { author, operator, .. } = &parties;
    let digest = parties.publish("1.0", guest_artifacts::PLUGIN_TEXT, &["acme"]);
    let stored = parties.registry.content.lock().unwrap().len();
    assert_eq!(parties.publish("1.0", guest_artifacts::PLUGIN_TEXT, &["acme"]), digest);
    assert_eq!(parties.registry.content.lock().unwrap().len(), stored, "a signature is uploaded once");
    let id = author.run(&["key", "show", &file(author, "acme.pub"), "--json"]).json();
    let signer = format!("key:{}", id["id"].as_str().unwrap());

    parties.trust(&signed_by(&["other", "acme"]));
    parties.add("1.0", &[]).says(0, &[&digest, &signer]);
    assert!(operator.read("toolbay.lock").contains(&format!("signer = \"{signer}\"")));
    operator.run(&["inspect", "text"]).says(0, &[&signer]);
    let before = parties.requests();
    operator.run(&["verify", "--offline"]).says(0, &["verified", &signer]);
    let report = operator.run(&["verify", "--offline", "--json"]).says(0, &[]).json();
    assert_eq!((&report[0]["status"], &report[0]["locked"]["signer"]), (&json!("verified"), &json!(signer)));
    assert_eq!(parties.requests(), before, "nothing was sent");
    operator.run(&["verify"]).says(0, &["verified"]);
    assert!(parties.requests() > before);

    // The tag moves: the lock stays, and only the registry knows.
    parties.registry.push(REPOSITORY, "1.0", guest_artifacts::PLUGIN_HASH);
    operator.run(&["verify"]).says(1, &["moved", &digest]);
    operator.run(&["verify", "--offline"]).says(0, &["verified"]);

    // Each blob may be missing or damaged; `fetch` repairs it by its digest.
    for key in ["layer", "manifest", "bundle"] {
        let path = blob(operator, key);
        let good = fs::read(&path).unwrap();
        fs::write(&path, [&good[..good.len() - 1], b"x"].concat()).unwrap();
        operator.run(&["verify", "--offline"]).says(1, &["damaged", "toolbay fetch"]);
        fs::remove_file(&path).unwrap();
        operator.run(&["verify", "--offline"]).says(1, &["missing", "toolbay fetch"]);
        operator.run(&["fetch", "--dry-run"]).says(1, &["missing"]);
        operator.run(&["fetch"]).says(0, &["fetched"]);
        assert_eq!(fs::read(&path).unwrap(), good, "{key}");
        operator.run(&["verify", "--offline"]).says(0, &["verified"]);
    }
}

#[test]
fn the_policy_decides_which_signatures_count() {
    let parties = Parties::new();
    parties.publish("1.0", guest_artifacts::PLUGIN_TEXT, &["acme"]);
    parties.publish("2.0", guest_artifacts::PLUGIN_HASH, &[]);
    // What is refused before any request.
    for (rules, more, code, part) in [
        ("", &[][..], 1, "no `[[trust]]` rule"),
        (&signed_by(&["acme"]), &["--unsigned"], 1, "`--unsigned` does not apply"),
        (&signed_by(&["absent"]), &[], 2, "absent.pub"),
    ] {
        parties.trust(rules);
        let before = parties.requests();
        parties.add("1.0", more).says(code, &[part]);
        assert_eq!(parties.requests(), before, "{part}");
    }
    for (rules, tag, part) in [
        (signed_by(&["other"]), "1.0", "key that is not trusted"),
        (signed_by(&["acme"]), "2.0", "is not signed"),
    ] {
        parties.trust(&rules);
        let error = parties.add(tag, &["--json"]).says(1, &[part]).json();
        assert_eq!(error["error"]["code"], "untrusted");
        assert!(!parties.operator.path("toolbay.lock").exists());
    }
    // The longest scope decides, and `digest` asks for nothing.
    parties.trust(&format!(
        "{}\n[[trust]]\nscope = \"HOST/acme/text\"\nrequire = \"digest\"",
        signed_by(&["other"])
    ));
    parties.add("2.0", &["--dry-run"]).says(0, &["no signature was checked"]);
    // Two signatures. One is trusted.
    parties.publish("1.0", guest_artifacts::PLUGIN_TEXT, &["other"]);
    parties.trust(&signed_by(&["other"]));
    parties.add("1.0", &[]).says(0, &["key:"]);
    // The operator stops trusting the key: the plugin still runs, and `verify` reports it.
    parties.trust(&signed_by(&["acme"]));
    parties.operator.run(&["verify", "--offline"]).says(1, &["untrusted", "not trusted"]);
    parties.trust("");
    parties.operator.run(&["verify", "--offline"]).says(1, &["untrusted", "no `[[trust]]` rule"]);
}

#[test]
fn a_signature_of_another_component_is_refused() {
    let parties = Parties::new();
    let signed = parties.publish("1.0", guest_artifacts::PLUGIN_TEXT, &["acme"]);
    let unsigned = parties.publish("2.0", guest_artifacts::PLUGIN_HASH, &[]);
    let index = |digest: &str| format!("/v2/{REPOSITORY}/manifests/{}", digest.replace(':', "-"));
    {
        let mut content = parties.registry.content.lock().unwrap();
        let stolen = content[&index(&signed)].clone();
        content.insert(index(&unsigned), stolen);
    }
    parties.trust(&signed_by(&["acme"]));
    parties.add("2.0", &[]).says(1, &["about another manifest"]);
    // The manifest of the signature names the other component, and its bundle does not.
    {
        let mut content = parties.registry.content.lock().unwrap();
        let found: Value = serde_json::from_slice(&content[&index(&signed)].1).unwrap();
        let digest = found["manifests"][0]["digest"].as_str().unwrap().to_owned();
        let (kind, manifest) = content[&format!("/v2/{REPOSITORY}/manifests/{digest}")].clone();
        let forged = String::from_utf8(manifest).unwrap().replace(&signed, &unsigned);
        let forged_digest = test_registry::digest(forged.as_bytes());
        content.insert(format!("/v2/{REPOSITORY}/manifests/{forged_digest}"), (kind, forged.into_bytes()));
        let (kind, list) = content[&index(&signed)].clone();
        let list = String::from_utf8(list).unwrap().replace(&digest, &forged_digest);
        content.insert(index(&unsigned), (kind, list.into_bytes()));
    }
    parties.add("2.0", &[]).says(1, &["signature of another manifest"]);
    assert!(!parties.operator.path("toolbay.lock").exists());
}

#[test]
fn a_signature_is_not_given_up_and_a_new_signer_is_accepted_explicitly() {
    let parties = Parties::new();
    parties.publish("1.0", guest_artifacts::PLUGIN_TEXT, &["acme"]);
    parties.publish("1.1", guest_artifacts::PLUGIN_HASH, &["other"]);
    parties.publish("1.2", guest_artifacts::PLUGIN_HASH, &["acme"]);
    parties.trust(&signed_by(&["acme", "other"]));
    parties.add("1.0", &[]).says(0, &[]);
    let lock = parties.operator.read("toolbay.lock");
    let error = parties.add("1.1", &["--replace", "--json"]).says(1, &["is signed by", "toolbay grant text"]);
    assert_eq!(error.json()["error"]["code"], "held");
    parties.trust("[[trust]]\nscope = \"HOST/\"\nrequire = \"digest\"");
    let error = parties.add("1.2", &["--replace", "--json"]).says(1, &["without a signature"]).json();
    assert_eq!(error["error"]["code"], "signature_lost");
    assert_eq!(parties.operator.read("toolbay.lock"), lock);
    parties.trust(&signed_by(&["acme", "other"]));
    parties.operator.run(&["grant", "text", "--yes"]).says(0, &["is signed by", "text 0.1.0"]);
    assert_ne!(parties.operator.read("toolbay.lock"), lock);
    parties.operator.run(&["verify", "--offline"]).says(0, &["verified"]);
}

#[test]
fn keys_are_made_once_for_their_owner_only() {
    let parties = Parties::new();
    let author = &parties.author;
    let private = author.path("acme.key");
    assert_eq!(private.metadata().unwrap().mode() & 0o777, 0o600);
    let before = fs::read(&private).unwrap();
    author.run(&["key", "new", private.to_str().unwrap()]).says(1, &["already exists"]);
    author.run(&["key", "new", &file(author, "x.pub")]).says(2, &["choose another extension"]);
    assert_eq!(fs::read(&private).unwrap(), before);
    let shown = |name: &str| author.run(&["key", "show", &file(author, name)]).says(0, &[]).out();
    assert_eq!(shown("acme.key"), shown("acme.pub"));
    assert_eq!(shown("acme.pub"), author.read("acme.pub"));
    assert_ne!(shown("acme.pub"), shown("other.pub"));
    author.run(&["key", "show", &file(author, "toolbay.toml")]).says(2, &["BEGIN PUBLIC KEY"]);
    // A private key that others can read signs nothing.
    fs::set_permissions(&private, fs::Permissions::from_mode(0o644)).unwrap();
    let (reference, key) = (parties.reference("1.0"), file(author, "acme.key"));
    let push = ["push", &reference, guest_artifacts::PLUGIN_TEXT, "--sign", &key];
    author.run(&push).says(2, &["chmod 600"]);
    author.run(&["key", "show", &key]).says(2, &["chmod 600"]);
    assert_eq!(parties.requests(), 0);
}
