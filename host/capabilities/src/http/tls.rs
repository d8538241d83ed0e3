//! The certificates that the host trusts, and the reasons for failed handshakes.
//!
//! | connection | trusted |
//! |---|---|
//! | each | the system's roots (Mozilla's if the system has none), and those of the embedder |
//! | of a section with `ca` | these, and the certificates of that file |

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore};
use toolbay_policy::excerpt::one_line;

use toolbay_state::digest::Digest;
use toolbay_state::regular::read_regular;

/// Maximum size of a file with certificates, in bytes. System bundles have less than 300 KiB.
const MAX_CA: u64 = 1 << 20;
/// Maximum length of a peer's text in an error, in characters.
const MAX_SHOWN: usize = 200;

/// The trusted roots, as configurations of connections.
#[derive(Debug, Default)]
pub(super) struct TlsRoots {
    extra: OnceLock<Vec<CertificateDer<'static>>>,
    config: tokio::sync::OnceCell<Arc<ClientConfig>>,
    /// The configuration for each file that a section of the policy names, for its present content.
    with_file: Mutex<BTreeMap<PathBuf, (Digest, Arc<ClientConfig>)>>,
}

impl TlsRoots {
    /// Adds roots for all connections. Must be called before the first one.
    pub(super) fn add(&self, pem: &[u8]) -> Result<(), String> {
        let roots = parse_certificates(pem).map_err(|why| format!("the TLS roots {why}"))?;
        self.extra.set(roots).map_err(|_| "the TLS roots are already set".to_owned())
    }

    /// The configuration of connections that also trust the certificates of a file. The first call reads the system's
    /// roots, and each call reads the file, which may be replaced while the host runs.
    pub(super) async fn client_config(
        self: &Arc<Self>,
        ca: Option<&Path>,
    ) -> Result<Arc<ClientConfig>, String> {
        let Some(file) = ca.map(Path::to_path_buf) else {
            let extra = self.extra.get().cloned().unwrap_or_default();
            let made = self.config.get_or_try_init(|| blocking(move || build_client_config(extra)));
            return made.await.cloned().map_err(|why| format!("TLS cannot be used: {why}"));
        };
        let roots = Arc::clone(self);
        blocking(move || roots.read_file_config(&file)).await
    }

    fn read_file_config(&self, file: &Path) -> Result<Arc<ClientConfig>, String> {
        let failed = |why: String| format!("`ca`: `{}` {why}", file.display());
        let pem = read_regular(file, MAX_CA).map_err(|error| failed(format!("cannot be read: {error}")))?;
        let digest = Digest::of(&pem);
        if let Some((known, config)) = self.with_file.lock().get(file)
            && *known == digest
        {
            return Ok(Arc::clone(config));
        }
        let mut roots = parse_certificates(&pem).map_err(failed)?;
        roots.extend(self.extra.get().cloned().unwrap_or_default());
        let config = build_client_config(roots).map_err(failed)?;
        self.with_file.lock().insert(file.to_path_buf(), (digest, Arc::clone(&config)));
        Ok(config)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|e| e.to_string())?
}

/// Checks that the host can use the certificates of a file. Blocks.
///
/// # Errors
/// The file cannot be read, or has no certificate of an authority.
pub fn check_certificates(file: &Path) -> Result<(), String> {
    let pem = read_regular(file, MAX_CA).map_err(|error| format!("it cannot be read: {error}"))?;
    parse_certificates(&pem).and_then(build_client_config).map(drop).map_err(|why| format!("it {why}"))
}

/// The certificates of a PEM file. The error continues a sentence about the file.
fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let roots = roots.map_err(|error| format!("cannot be read as PEM: {error}"))?;
    if roots.is_empty() {
        return Err("contains no certificate (PEM)".to_owned());
    }
    Ok(roots)
}

fn build_client_config(extra: Vec<CertificateDer<'static>>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!("cannot read a root certificate of the system: {error}");
    }
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let has_extra = !extra.is_empty();
    if has_extra && roots.add_parsable_certificates(extra).0 == 0 {
        return Err("contains no certificate of an authority".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Why a handshake failed, for people.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HandshakeFailure {
    /// No trusted authority vouches for the certificate. The operator can trust another one.
    UnknownAuthority(String),
    Other(String),
}

/// Explains the error of a handshake by its type.
pub(super) fn explain(error: &io::Error) -> HandshakeFailure {
    let other = |text: String| HandshakeFailure::Other(text);
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(problem)) = cause else { return other(error.to_string()) };
    match problem {
        CertificateError::UnknownIssuer => HandshakeFailure::UnknownAuthority(
            "no authority that is trusted here has signed its certificate: it may be the authority of a company, or of a \
             proxy that opens TLS connections"
                .to_owned(),
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            other("its certificate has expired, or the clock of this machine is wrong".to_owned())
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            other("its certificate is not valid yet, or the clock of this machine is wrong".to_owned())
        }
        CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
            let names = one_line(&presented.join(", "), MAX_SHOWN);
            other(format!("its certificate is for other names: {names}"))
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            other("its certificate is not for this name".to_owned())
        }
        problem => other(format!("its certificate is not accepted: {}", one_line(&problem.to_string(), MAX_SHOWN))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(problem: CertificateError) -> HandshakeFailure {
        explain(&io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(problem)))
    }

    #[test]
    fn a_certificate_that_is_not_accepted_is_explained() {
        let unknown = explained(CertificateError::UnknownIssuer);
        assert!(
            matches!(&unknown, HandshakeFailure::UnknownAuthority(why) if why.contains("company")),
            "{unknown:?}"
        );
        for (problem, part) in [
            (CertificateError::Expired, "has expired"),
            (CertificateError::NotValidYet, "not valid yet"),
            (CertificateError::NotValidForName, "not for this name"),
            (CertificateError::BadEncoding, "not accepted"),
        ] {
            let failure = explained(problem);
            assert!(matches!(&failure, HandshakeFailure::Other(why) if why.contains(part)), "{failure:?}");
        }
        let plain = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(explain(&plain), HandshakeFailure::Other(plain.to_string()));
    }

    #[tokio::test]
    async fn a_file_with_certificates_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (file, roots) = (folder.path().join("ca.pem"), Arc::new(TlsRoots::default()));
        let failed = async |part: &str| {
            let why = roots.client_config(Some(&file)).await.unwrap_err();
            assert!(why.contains(part), "{why}");
        };
        failed("cannot be read").await;
        std::fs::write(&file, "nonsense").unwrap();
        failed("contains no certificate").await;
        std::fs::write(&file, vec![b' '; MAX_CA as usize + 1]).unwrap();
        failed("more than 1048576 bytes").await;
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        failed("no certificate of an authority").await;
        let certificate =
            rcgen::generate_simple_self_signed(vec!["ca.example".to_owned()]).unwrap().cert.pem();
        std::fs::write(&file, &certificate).unwrap();
        let first = roots.client_config(Some(&file)).await.unwrap();
        assert!(Arc::ptr_eq(&first, &roots.client_config(Some(&file)).await.unwrap()), "the same content");
        std::fs::write(&file, certificate.repeat(2)).unwrap();
        assert!(!Arc::ptr_eq(&first, &roots.client_config(Some(&file)).await.unwrap()), "another content");
    }
}
