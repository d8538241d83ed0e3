//! Signatures by a certificate that an authority issued to an identity for a few minutes, and that a public log recorded
//! ("keyless", Sigstore client specification). They are verified without a network, against the authorities and logs of a
//! trust root that the operator holds.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::{Bundle, Sha256Hash};
use sigstore_verify::{
    CertificateError, Error, TimestampError, TransparencyLogError, VerificationPolicy, Verifier,
};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::quantity::show_duration;
use toolbay_policy::trust::IdentityPattern;
use toolbay_state::regular::read_regular_text;

use super::{SignatureError, VerifiedSigner, provider};
use crate::digest::BlobDigest;
use crate::lock::{MAX_IDENTITY, Signer};

/// Largest trust root in bytes. That of the public instance has 7 KB.
const MAX_ROOT: u64 = 1 << 20;
/// Longest text of the library in a message, in characters.
const MAX_SHOWN: usize = 300;

/// The authorities and logs that an operator trusts (`trusted_root.json`).
pub struct TrustRoot {
    file: PathBuf,
    text: String,
    verifier: Box<Verifier>,
}

impl fmt::Debug for TrustRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustRoot").field("file", &self.file).finish_non_exhaustive()
    }
}

impl TrustRoot {
    /// Reads a trust root. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or is not a trust root.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = read_regular_text(file, MAX_ROOT).map_err(|error| error.to_string())?;
        Self::parse(file, text)
    }

    /// Parses a trust root. Messages name the file.
    ///
    /// # Errors
    /// The text is not a trust root.
    pub fn parse(file: &Path, text: String) -> Result<Self, String> {
        provider::install();
        let shown = |error: &dyn fmt::Display| one_line(&error.to_string(), MAX_SHOWN);
        let bad = |why: String| format!("it is not a trust root (`trusted_root.json`): {why}");
        let root = TrustedRoot::from_json(&text).map_err(|error| bad(shown(&error)))?;
        let verifier = Verifier::new(&root).map_err(|error| bad(shown(&error)))?;
        Ok(Self { file: file.to_path_buf(), text, verifier: Box::new(verifier) })
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Whose certificates are accepted.
#[derive(Debug)]
pub struct KeylessRule {
    /// The identities.
    pub identity: IdentityPattern,
    /// Who vouched for the identity: the issuer of its token.
    pub issuer: String,
    /// The authorities and logs.
    pub root: TrustRoot,
    /// The age that a signature must have.
    pub min_age: Option<Duration>,
}

impl KeylessRule {
    /// Verifies a bundle whose subject is a manifest.
    pub(super) fn verify(
        &self,
        bundle: &[u8],
        manifest: &BlobDigest,
        now: SystemTime,
    ) -> Result<VerifiedSigner, SignatureError> {
        let invalid = |error: &dyn fmt::Display| {
            SignatureError::Invalid(format!("it is refused: {}", one_line(&error.to_string(), MAX_SHOWN)))
        };
        let text = std::str::from_utf8(bundle).map_err(|error| invalid(&error))?;
        let bundle = Bundle::from_json(text).map_err(|error| invalid(&error))?;
        let digest = Sha256Hash::from_hex(&manifest.hex()).map_err(|error| invalid(&error))?;
        // The identity is compared below, with a pattern that the library does not know.
        let policy = VerificationPolicy::any_identity().require_issuer(self.issuer.as_str());
        let verified =
            self.root.verifier.verify(digest, &bundle, &policy).map_err(|error| self.refuse(&error))?;
        let identity = verified.identity().map(|identity| identity.as_str().to_owned()).unwrap_or_default();
        if !self.identity.matches(&identity) || identity.chars().count() > MAX_IDENTITY {
            let found = one_line(&identity, MAX_SHOWN);
            return Err(SignatureError::Untrusted(format!(
                "it is signed by `{found}`, and the rule's `identity` is `{}`",
                self.identity
            )));
        }
        let newest = verified.verified_timestamps().iter().max();
        let Some(signed_at) = newest else {
            return Err(SignatureError::Invalid(
                "it has no time that a log or an authority confirms".to_owned(),
            ));
        };
        self.check_age(SystemTime::from(*signed_at), now)?;
        let signer = Signer::Keyless { issuer: self.issuer.clone(), identity };
        Ok(VerifiedSigner { signer, signed_at: Some(signed_at.to_string()) })
    }

    /// Refuses a signature that is too young. One from the future has no age.
    fn check_age(&self, signed_at: SystemTime, now: SystemTime) -> Result<(), SignatureError> {
        let Some(min_age) = self.min_age else { return Ok(()) };
        let age = now.duration_since(signed_at).unwrap_or_default();
        if age >= min_age {
            return Ok(());
        }
        let unit = if age.as_secs() < 3600 { 1 } else { 3600 };
        let (age, min_age) =
            (show_duration(Duration::from_secs(age.as_secs() / unit * unit)), show_duration(min_age));
        Err(SignatureError::Untrusted(format!("it is {age} old, and the rule's `min_age` is {min_age}")))
    }

    /// Says what is wrong, and whether the trust root is too small for it.
    fn refuse(&self, error: &Error) -> SignatureError {
        let shown = one_line(&error.to_string(), MAX_SHOWN);
        match error {
            Error::IssuerMismatch { actual, .. } => {
                let found = one_line(actual.as_deref().unwrap_or("nobody"), MAX_SHOWN);
                SignatureError::Untrusted(format!(
                    "`{found}` vouched for its identity, and the rule's `issuer` is `{}`",
                    self.issuer
                ))
            }
            Error::Certificate(
                CertificateError::NoValidAuthority { .. }
                | CertificateError::ChainInvalid(_)
                | CertificateError::Sct(_),
            )
            | Error::TransparencyLog(
                TransparencyLogError::UnknownLog { .. } | TransparencyLogError::InclusionPromise(_),
            )
            | Error::Timestamp(TimestampError::NoVerifiedTimestamp(_))
            | Error::InvalidTrustRoot(_)
            | Error::TrustRoot(_) => SignatureError::Untrusted(format!(
                "the rule's `root`, `{}`, does not confirm it: {shown}",
                self.root.file.display()
            )),
            _ => SignatureError::Invalid(format!("it is refused: {shown}")),
        }
    }
}

#[cfg(test)]
#[path = "keyless_tests.rs"]
mod tests;
