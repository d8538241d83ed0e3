//! What the `[[trust]]` rules of the policy require of a plugin, and whether its signature meets it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use toolbay_distribution::digest::BlobDigest;
use toolbay_distribution::lock::Signer;
use toolbay_distribution::reference::Reference;
use toolbay_distribution::registry::{FoundSignature, ManifestSignatures, RegistryClient, SkippedReferrer};
use toolbay_distribution::signature::key::PublicKey;
use toolbay_distribution::signature::keyless::{KeylessRule, TrustRoot};
use toolbay_distribution::signature::{self, AcceptedSigners, VerifiedSigner};
use toolbay_policy::Policy;
use toolbay_policy::trust::{KeylessSigner, TrustRequirement, TrustRule, TrustedSigners};

use crate::output::{CommandError, Printer};
use crate::setup::locked;

/// Most referrers that are named one by one.
const MAX_NAMED: usize = 8;

/// What a plugin needs.
pub(crate) enum TrustDecision {
    /// A signature by one of these signers.
    Signed { scope: String, signers: AcceptedSigners },
    /// A rule says that the digest suffices.
    Digest,
    /// No rule covers the plugin.
    NoRule,
}

impl TrustDecision {
    /// Finds the rule for a reference, and reads its keys.
    pub(crate) fn find(policy: &Policy, reference: &Reference) -> Result<Self> {
        match policy.trust_for(&reference.host, &reference.repository) {
            None => Ok(Self::NoRule),
            Some(TrustRule { requirement: TrustRequirement::Digest, .. }) => Ok(Self::Digest),
            Some(TrustRule { requirement: TrustRequirement::Signed(trusted), scope }) => {
                let scope = scope.to_string();
                let signers = accepted(trusted).with_context(|| format!("the [[trust]] for `{scope}`"))?;
                Ok(Self::Signed { scope, signers })
            }
        }
    }

    /// Refuses, before any request, what `--unsigned` contradicts or lacks.
    pub(crate) fn check_flag(&self, reference: &Reference, unsigned: bool) -> Result<()> {
        match (self, unsigned) {
            (Self::NoRule, false) => {
                let why = format!("no `[[trust]]` rule of the policy covers `{reference}`");
                let error = CommandError::new("unsigned", why)
                    .with_help("name the author's public key in a `[[trust]]` table of the policy")
                    .with_help("or add it without a signature, pinned by its digest, with `--unsigned`");
                Err(error.into())
            }
            (Self::Signed { scope, .. }, true) => {
                let why = format!("`--unsigned` does not apply to `{reference}`");
                let help = format!("the policy's [[trust]] for `{scope}` requires a signature");
                Err(CommandError::new("signature_required", why).with_help(help).into())
            }
            (Self::NoRule | Self::Digest, _) | (Self::Signed { .. }, false) => Ok(()),
        }
    }

    /// Finds a signature of a manifest that meets the requirement; `None` if none is required.
    pub(crate) async fn verify(
        &self,
        printer: Printer,
        client: &RegistryClient,
        reference: &Reference,
        manifest: &BlobDigest,
    ) -> Result<Option<(VerifiedSigner, FoundSignature)>> {
        let Self::Signed { scope, signers } = self else { return Ok(None) };
        let found = client.signatures(manifest).await.and_then(ManifestSignatures::require_readable);
        let ManifestSignatures { found, skipped } = found.map_err(locked::registry_error)?;
        let mut refused = Vec::new();
        for one in found {
            match signature::verify(&one.bytes, manifest, signers) {
                Ok(signer) => {
                    // Among the others, only those that could not be read may be signatures.
                    warn_skipped(printer, skipped.iter().filter(|one| one.is_failure));
                    return Ok(Some((signer, one)));
                }
                Err(error) => refused.push(error.to_string()),
            }
        }
        warn_skipped(printer, skipped.iter());
        let why = match refused.as_slice() {
            [] => format!("`{reference}` is not signed"),
            reasons => {
                let reasons: Vec<String> =
                    reasons.iter().enumerate().map(|(at, reason)| format!("{}: {reason}", at + 1)).collect();
                format!("no signature of `{reference}` is accepted ({})", reasons.join("; "))
            }
        };
        let help = format!("the policy's [[trust]] for `{scope}` requires a signature by one of its signers");
        Err(CommandError::new("untrusted", why).with_help(help).into())
    }
}

/// Names the referrers of a manifest in which no signature was looked for.
fn warn_skipped<'a>(printer: Printer, skipped: impl Iterator<Item = &'a SkippedReferrer>) {
    let texts: Vec<&str> = skipped.map(|one| one.text.as_str()).collect();
    printer.warnings(&texts, MAX_NAMED, |more| format!("{more} more referrers are skipped"));
}

/// Whether both signed as the same: the same key, or identities that one rule covers. The identity of a forge names the tag,
/// so it changes with each version.
pub(crate) fn is_same_signer(policy: &Policy, reference: &Reference, old: &Signer, new: &Signer) -> bool {
    let covers = |signer: &Signer, rule: &KeylessSigner| match signer {
        Signer::Keyless { issuer, identity } => rule.issuer == *issuer && rule.identity.matches(identity),
        Signer::None | Signer::Key(_) => false,
    };
    let rule = policy.trust_for(&reference.host, &reference.repository).map(|rule| &rule.requirement);
    let Some(TrustRequirement::Signed(TrustedSigners { keyless: Some(rule), .. })) = rule else {
        return old == new;
    };
    old == new || (covers(old, rule) && covers(new, rule))
}

/// Reads the keys and the trust root of a rule.
pub(crate) fn accepted(trusted: &TrustedSigners) -> Result<AcceptedSigners> {
    let read =
        |file: &PathBuf| PublicKey::read(file).map_err(|why| anyhow!("`keys`: `{}`: {why}", file.display()));
    let keys = trusted.keys.iter().map(read).collect::<Result<_>>()?;
    let keyless = trusted.keyless.as_ref().map(|keyless| {
        let KeylessSigner { identity, issuer, root: file, min_age } = keyless;
        let root = TrustRoot::read(file).map_err(|why| anyhow!("`root`: `{}`: {why}", file.display()))?;
        Ok::<_, anyhow::Error>(KeylessRule {
            identity: identity.clone(),
            issuer: issuer.clone(),
            root,
            min_age: *min_age,
        })
    });
    Ok(AcceptedSigners { keys, keyless: keyless.transpose()? })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn identities_that_one_rule_covers_are_the_same_signer() {
        let policy = "version = 1\n[[trust]]\nscope = \"registry.example/acme/\"\nroot = \"r.json\"\n\
            identity = \"https://forge.example/acme/*/release.yml@refs/tags/*\"\nissuer = \"https://token.example\"\n";
        let policy = Policy::parse(policy, Path::new("/srv"), None).unwrap();
        let keyless = |issuer: &str, identity: &str| Signer::Keyless {
            issuer: issuer.to_owned(),
            identity: format!("https://forge.example/{identity}"),
        };
        let release =
            |tag: &str| keyless("https://token.example", &format!("acme/hash/release.yml@refs/tags/{tag}"));
        let key = |name: &[u8]| Signer::Key(BlobDigest::of(name));
        let same = |reference: &str, old: &Signer, new: &Signer| {
            is_same_signer(&policy, &reference.parse().unwrap(), old, new)
        };
        let covered = "registry.example/acme/hash:1";
        assert!(same(covered, &release("v1"), &release("v2")));
        for (old, new) in [
            (release("v1"), keyless("https://other.example", "acme/hash/release.yml@refs/tags/v1")),
            (release("v1"), keyless("https://token.example", "acme/hash/release.yml@refs/heads/v1")),
            (release("v1"), key(b"a")),
            (key(b"a"), key(b"b")),
            (key(b"a"), release("v1")),
        ] {
            assert!(!same(covered, &old, &new) && same(covered, &old, &old), "{old} {new}");
        }
        assert!(!same("registry.example/other/hash:1", &release("v1"), &release("v2")), "no rule covers it");
    }
}
