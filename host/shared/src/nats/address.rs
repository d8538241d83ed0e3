//! Where the shared state is, and how a replica proves who it is.

use std::path::PathBuf;

use async_nats::ServerAddr;

/// Most servers of an address.
const MAX_SERVERS: usize = 16;
/// The start of all names in NATS, unless the address has another.
const DEFAULT_PREFIX: &str = "toolbay";

/// The address of shared state: `nats://host:4222,host:4222/prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAddress {
    servers: Vec<String>,
    prefix: String,
    tls: bool,
}

/// What a replica shows to NATS. The files are read at each connection, so they can be replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// A `.creds` file.
    pub credentials: Option<PathBuf>,
    /// A file with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// The certificates of the authorities that sign those of the servers, in PEM. Default: those of the system.
    pub authorities: Option<PathBuf>,
    /// The certificate and the key of this replica, in PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// The reason why a text is no address. It never has the text itself, which may contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not `nats://` or `tls://`.
    #[error("write `nats://HOST:PORT` or `tls://HOST:PORT`, with commas between several servers")]
    NoUrl,
    /// A user or a password in the address.
    #[error(
        "the address has a user or a password, which others could read in the list of processes: use --shared-credentials FILE"
    )]
    Password,
    /// A prefix that no bucket may have.
    #[error("the part behind the `/` names the buckets: 1 to 32 letters, digits, `-` and `_`")]
    Prefix,
    /// Too many servers.
    #[error("the address has more than {MAX_SERVERS} servers")]
    TooMany,
}

impl SharedAddress {
    /// Parses an address.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::NoUrl)?;
        let tls = match scheme {
            "nats" => false,
            "tls" => true,
            _ => return Err(AddressError::NoUrl),
        };
        let (hosts, prefix) = match rest.split_once('/') {
            Some((hosts, "")) => (hosts, DEFAULT_PREFIX),
            Some((hosts, prefix)) => (hosts, prefix),
            None => (rest, DEFAULT_PREFIX),
        };
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if prefix.len() > 32 || !prefix.bytes().all(allowed) {
            return Err(AddressError::Prefix);
        }
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.len() > MAX_SERVERS {
            return Err(AddressError::TooMany);
        }
        let mut servers = Vec::with_capacity(hosts.len());
        for host in hosts {
            if host.contains('@') {
                return Err(AddressError::Password);
            }
            let server = format!("{scheme}://{host}");
            let parsed: Result<ServerAddr, _> = server.parse();
            match parsed {
                Ok(_) if !host.is_empty() => servers.push(server),
                _ => return Err(AddressError::NoUrl),
            }
        }
        Ok(Self { servers, prefix: prefix.to_owned(), tls })
    }

    /// The servers, each as a URL.
    #[must_use]
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The start of all names in NATS.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether connections must be encrypted.
    #[must_use]
    pub fn requires_tls(&self) -> bool {
        self.tls
    }
}

impl std::fmt::Display for SharedAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.servers.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_servers_and_buckets() {
        let one = SharedAddress::parse("nats://127.0.0.1:4222").unwrap();
        assert_eq!((one.servers(), one.prefix()), (&["nats://127.0.0.1:4222".to_owned()][..], "toolbay"));
        assert!(!one.requires_tls());
        let three = SharedAddress::parse("tls://a:1,b:2,[::1]:3/team-1").unwrap();
        assert_eq!((three.servers().len(), three.prefix(), three.requires_tls()), (3, "team-1", true));
        for (bad, told) in [
            ("", AddressError::NoUrl),
            ("127.0.0.1:4222", AddressError::NoUrl),
            ("http://h", AddressError::NoUrl),
            ("nats://", AddressError::NoUrl),
            ("nats://a,,b", AddressError::NoUrl),
            ("nats://user:secret@h", AddressError::Password),
            ("nats://a,token@b", AddressError::Password),
            ("nats://h/a.b", AddressError::Prefix),
            ("nats://h/a/b", AddressError::Prefix),
            (&format!("nats://h/{}", "p".repeat(33)), AddressError::Prefix),
            (&format!("nats://{}", ["h"; 17].join(",")), AddressError::TooMany),
        ] {
            assert_eq!(SharedAddress::parse(bad), Err(told), "{bad}");
            assert!(!told.to_string().contains("secret"));
        }
    }
}
