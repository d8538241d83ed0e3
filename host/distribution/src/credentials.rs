//! Credentials for registries, from a secret, from the files that `docker login` and `podman login` write, and from the
//! helpers that these files name.
//!
//! | order | source |
//! |---|---|
//! | 1 | a secret of the policy, if it names one |
//! | 2 | the file of `TOOLBAY_REGISTRY_AUTH_FILE`, in the format of the next one |
//! | 3 | Docker's `config.json`: the helper of the host (`credHelpers`), `auths`, the helper of all hosts (`credsStore`) |
//! | 4 | the `auth.json` of container tools, with the same keys |
//!
//! A helper is a program `docker-credential-NAME`. It is started without a shell, gets the host on stdin and answers with
//! JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_policy::excerpt::one_line;
use toolbay_state::regular::read_regular;
use zeroize::Zeroize as _;

use crate::reference::Reference;

/// Largest file with credentials, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Largest reply of a helper, in bytes.
const MAX_REPLY: u64 = 64 << 10;
/// Timeout of a helper. It may ask the user to unlock a key ring.
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);
/// The user name with which a helper marks an identity token.
const TOKEN_USER: &str = "<token>";
/// The beginning of what a helper without credentials prints (docker/docker-credential-helpers, `credentials/error.go`),
/// in lower case.
const NOT_FOUND: &str = "credentials not found";
/// Longest text of a helper in a message, in characters.
const MAX_SHOWN: usize = 200;

/// The credentials for a repository; `None` if there are none. The error is a message without credentials.
pub type CredentialResult = Result<Option<RegistryCredentials>, String>;

/// Finds credentials.
pub trait CredentialSource: Send + Sync + fmt::Debug {
    /// The credentials for the repository of a reference.
    fn find<'a>(&'a self, reference: &'a Reference) -> BoxFuture<'a, CredentialResult>;
}

/// A secret text. Its memory is zeroed on drop, and `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// The text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Drop for SecretText {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// Credentials for a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryCredentials {
    /// A user name and a password.
    Password(UserPassword),
    /// A refresh token, which a token server exchanges.
    IdentityToken(SecretText),
}

/// A user name and a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserPassword {
    /// The user name.
    pub user: String,
    /// The password.
    pub password: SecretText,
}

impl UserPassword {
    /// The value of `authorization` (RFC 7617).
    pub(crate) fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password.0)))
    }
}

impl RegistryCredentials {
    /// The credentials in a secret: `USER:PASSWORD`, or an identity token.
    #[must_use]
    pub fn from_secret(text: &str) -> Self {
        match text.split_once(':') {
            Some((user, password)) => {
                Self::Password(UserPassword { user: user.to_owned(), password: password.to_owned().into() })
            }
            None => Self::IdentityToken(text.to_owned().into()),
        }
    }

    /// The value of `authorization`, for a password.
    pub(crate) fn basic(&self) -> Option<String> {
        match self {
            Self::Password(password) => Some(password.basic()),
            Self::IdentityToken(_) => None,
        }
    }
}

impl CredentialSource for RegistryCredentials {
    fn find<'a>(&'a self, _: &'a Reference) -> BoxFuture<'a, CredentialResult> {
        Box::pin(std::future::ready(Ok(Some(self.clone()))))
    }
}

/// The files with credentials, in the order in which they are searched. A file that does not exist is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialFiles(pub Vec<PathBuf>);

impl CredentialSource for CredentialFiles {
    fn find<'a>(&'a self, reference: &'a Reference) -> BoxFuture<'a, CredentialResult> {
        Box::pin(async move {
            for path in &self.0 {
                let file = path.clone();
                let read = tokio::task::spawn_blocking(move || read_config(&file)).await;
                let config = read.map_err(|error| error.to_string())?;
                let config = config.map_err(|problem| format!("`{}`: {problem}", path.display()))?;
                let Some(config) = config else { continue };
                if let Some(found) = config.find(reference).await? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        })
    }
}

/// The keys of `config.json` and `auth.json` that matter here.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct CredentialConfig {
    auths: BTreeMap<String, AuthEntry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AuthEntry {
    auth: Option<String>,
    identitytoken: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperReply {
    username: String,
    secret: String,
}

/// Reads a file; `None` if it does not exist. An error does not quote it.
fn read_config(path: &Path) -> Result<Option<CredentialConfig>, String> {
    let bytes = match read_regular(path, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let config = serde_json::from_slice(&bytes);
    config
        .map(Some)
        .map_err(|error| format!("it is not JSON (line {}, column {})", error.line(), error.column()))
}

impl CredentialConfig {
    async fn find(&self, reference: &Reference) -> CredentialResult {
        let host = reference.host.as_str();
        if let Some(helper) = self.cred_helpers.get(host) {
            return run_helper(helper, host).await;
        }
        if let Some(found) = self.entry(reference).map(AuthEntry::credentials).transpose()?.flatten() {
            return Ok(Some(found));
        }
        match &self.creds_store {
            Some(helper) => run_helper(helper, host).await,
            None => Ok(None),
        }
    }

    /// The entry for a repository: the longest prefix of its path, or its host, as older tools write it, too.
    fn entry(&self, reference: &Reference) -> Option<&AuthEntry> {
        let whole = format!("{}/{}", reference.host, reference.repository);
        let cuts = whole.rmatch_indices('/').map(|(at, _)| at);
        let prefixes = std::iter::once(whole.len()).chain(cuts).filter_map(|at| whole.get(..at));
        let host = reference.host.as_str();
        let old = [format!("https://{host}"), format!("https://{host}/v1/"), format!("https://{host}/v2/")];
        prefixes.chain(old.iter().map(String::as_str)).find_map(|key| self.auths.get(key))
    }
}

impl AuthEntry {
    /// `None` for the empty entry that marks a host whose credentials a helper has.
    fn credentials(&self) -> CredentialResult {
        let text = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
        if let Some(token) = text(&self.identitytoken) {
            return Ok(Some(RegistryCredentials::IdentityToken(SecretText(token))));
        }
        let Some(auth) = text(&self.auth) else { return Ok(None) };
        let decoded = STANDARD.decode(auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let pair = decoded.as_deref().and_then(|pair| pair.split_once(':'));
        let (user, password) = pair.ok_or("an `auth` is not the base64 of `USER:PASSWORD`")?;
        // Docker pads with NUL bytes.
        let password = SecretText(password.trim_end_matches('\0').to_owned());
        Ok(Some(RegistryCredentials::Password(UserPassword { user: user.to_owned(), password })))
    }
}

/// Asks a helper.
async fn run_helper(name: &str, host: &str) -> CredentialResult {
    let is_sound = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !is_sound {
        return Err("the name of a credential helper is invalid".to_owned());
    }
    let program = format!("docker-credential-{name}");
    let failed = |error: &dyn fmt::Display| format!("the credential helper `{program}`: {error}");
    let run = async {
        let mut command = Command::new(&program);
        command
            .arg("get")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        if let Some(mut stdin) = stdin {
            // A helper that does not read has answered.
            stdin.write_all(host.as_bytes()).await.ok();
        }
        let mut answer = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(MAX_REPLY).read_to_end(&mut answer).await?;
        }
        Ok::<_, std::io::Error>((child.wait().await?.success(), answer))
    };
    let run = tokio::time::timeout(HELPER_TIMEOUT, run).await;
    let (is_found, answer) =
        run.map_err(|_| failed(&"it did not answer in time"))?.map_err(|e| failed(&e))?;
    parse_reply(is_found, &answer).map_err(|problem| failed(&problem))
}

/// Reads what a helper answered. One that has no credentials fails with a fixed text on stdout; any other failure is one
/// of the helper, such as a locked key ring.
fn parse_reply(is_found: bool, answer: &[u8]) -> CredentialResult {
    if !is_found {
        let text = String::from_utf8_lossy(answer);
        return match text.trim().to_ascii_lowercase().starts_with(NOT_FOUND) {
            true => Ok(None),
            false if text.trim().is_empty() => Err("it failed without a reason".to_owned()),
            false => Err(format!("it failed: {}", one_line(&text, MAX_SHOWN))),
        };
    }
    let reply: HelperReply =
        serde_json::from_slice(answer).map_err(|_| "its reply is not JSON".to_owned())?;
    let secret = SecretText(reply.secret);
    Ok(Some(match reply.username.as_str() {
        TOKEN_USER => RegistryCredentials::IdentityToken(secret),
        _ => RegistryCredentials::Password(UserPassword { user: reply.username, password: secret }),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn find(dir: &Path, text: &str, reference: &str) -> CredentialResult {
        let file = dir.join("config.json");
        std::fs::write(&file, text).unwrap();
        let files = CredentialFiles(vec![dir.join("absent.json"), file]);
        files.find(&reference.parse().unwrap()).await
    }

    fn password(user: &str, password: &str) -> Option<RegistryCredentials> {
        let (user, password) = (user.to_owned(), SecretText(password.to_owned()));
        Some(RegistryCredentials::Password(UserPassword { user, password }))
    }

    #[tokio::test]
    async fn credentials_come_from_the_entry_that_fits_best() {
        let dir = tempfile::tempdir().unwrap();
        // a:1, b:2 and c:3
        let text = r#"{"auths": {"registry.example": {"auth": "YTox"}, "registry.example/acme": {"auth": "Yjoy"},
            "https://old.example/v1/": {"auth": "Yzoz"}, "token.example": {"identitytoken": "t"},
            "empty.example": {}, "bad.example": {"auth": "?"}}}"#;
        for (reference, expected) in [
            ("registry.example/other:1", password("a", "1")),
            ("registry.example/acme/hash:1", password("b", "2")),
            ("registry.example/acmes/hash:1", password("a", "1")),
            ("registry.example:5000/acme/hash:1", None),
            ("old.example/x:1", password("c", "3")),
            ("token.example/x:1", Some(RegistryCredentials::IdentityToken("t".to_owned().into()))),
            ("empty.example/x:1", None),
            ("none.example/x:1", None),
        ] {
            assert_eq!(find(dir.path(), text, reference).await, Ok(expected), "{reference}");
        }
        let error = find(dir.path(), text, "bad.example/x:1").await.unwrap_err();
        assert!(error.contains("base64"), "{error}");
        let error = find(dir.path(), r#"{"auths": "secret"}"#, "a.example/x:1").await.unwrap_err();
        assert!(error.contains("config.json") && !error.contains("secret"), "{error}");
        assert_eq!(format!("{:?}", SecretText("x".to_owned())), "SecretText(…)");
    }

    #[tokio::test]
    async fn a_helper_is_a_program_with_a_plain_name() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["../x", "", "a b", "x;id"] {
            let text = serde_json::json!({"credsStore": name}).to_string();
            let error = find(dir.path(), &text, "a.example/x:1").await.unwrap_err();
            assert!(error.contains("invalid"), "{name}: {error}");
        }
        let text = r#"{"credHelpers": {"a.example": "toolbay-absent"}}"#;
        let error = find(dir.path(), text, "a.example/x:1").await.unwrap_err();
        assert!(error.contains("docker-credential-toolbay-absent"), "{error}");
        assert_eq!(find(dir.path(), text, "b.example/x:1").await, Ok(None));
    }

    #[test]
    fn a_helper_that_fails_for_another_reason_is_an_error() {
        let found = br#"{"ServerURL": "a.example", "Username": "u", "Secret": "p"}"#;
        assert_eq!(parse_reply(true, found), Ok(password("u", "p")));
        let token = br#"{"Username": "<token>", "Secret": "t"}"#;
        let expected = Some(RegistryCredentials::IdentityToken("t".to_owned().into()));
        assert_eq!(parse_reply(true, token), Ok(expected));
        assert_eq!(parse_reply(false, b"credentials not found in native keychain\n"), Ok(None));
        for (success, answer, part) in [
            (false, &b"the keychain is\nlocked"[..], "it failed: the keychain is"),
            (false, b" \n", "without a reason"),
            (true, b"p", "not JSON"),
        ] {
            let error = parse_reply(success, answer).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
