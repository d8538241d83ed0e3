//! Requests to URLs that the operator wrote: of an MCP server, or of an authorization server's keys. An IP address in
//! such a URL, and `localhost`, are granted. A host *name* must resolve to public addresses, or into a list of
//! private networks next to the URL: the operator does not control the name's DNS. The same list alone grants the
//! addresses of URLs that a peer named in an OAuth flow.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue, USER_AGENT};
use ipnet::IpNet;
use toolbay_core::call::server_connector::ConnectorError;
use toolbay_policy::capability::net::NetTarget;
use toolbay_policy::capability::net::address::{self, AddressError};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::hint::{Hint, LineValue, PolicyLine, Remedy};
use toolbay_policy::name::PluginId;
use toolbay_policy::refusal::PolicyRefusal;
use toolbay_policy::route::OutboundRoute;
use url::Url;

use super::HttpClient;
use super::body::ResponseBody;
use super::call_network::{NetError, OpenConnectionGuard};
use super::connect::{ConnectionKey, ConnectionUser, Route, full_body};
use super::dispatch::{DispatchError, USER_AGENT_VALUE, build_request, root_cause};
use super::resolve::{is_localhost, parse_ip_literal};

/// Maximum length of a peer's text in an error, in characters.
pub(super) const MAX_SHOWN: usize = 300;

/// A target that the operator wrote, or that a server of the operator named.
pub(super) struct OperatorTarget<'a> {
    pub(super) target: &'a NetTarget,
    /// Private networks that its host may resolve to.
    pub(super) private: &'a [IpNet],
    /// Whether the operator wrote the URL, which grants an address in it.
    pub(super) grants_written: bool,
    /// The table and the list of the policy that would allow another network.
    pub(super) network_list: (&'a str, &'static str),
    /// How it is reached.
    pub(super) route: &'a OutboundRoute,
    /// Whether the table has the key `ca`.
    pub(super) has_ca: bool,
}

impl OperatorTarget<'_> {
    /// Checks the host name before the lookup. The metadata services of clouds are granted only by their IP address.
    fn check_name(&self) -> Result<(), NetError> {
        let host = self.target.host();
        if address::is_metadata_name(host) && self.private.is_empty() {
            let text = format!(
                "`{host}` is a cloud metadata service, which holds the credentials of the machine; \
                 only its IP address in the URL allows it"
            );
            return Err(NetError::Address(text.into()));
        }
        Ok(())
    }

    /// Checks every address of the host. One refused address refuses the connection.
    fn check(&self, addresses: &[SocketAddr]) -> Result<(), NetError> {
        let host = self.target.host();
        for ip in addresses.iter().map(SocketAddr::ip) {
            let problem = match address::check_address(host, ip, self.private) {
                Ok(()) => continue,
                Err(AddressError::Special(..)) if self.grants_written && is_written_address(host, ip) => {
                    continue;
                }
                Err(problem) => problem,
            };
            // The hint names the key, which is not `net_private` for every target.
            let problem = match problem {
                AddressError::Special(ip, what) => format!("{ip} is not a public address ({what})"),
                AddressError::Metadata(ip) => {
                    format!("{ip} is a cloud metadata service, which hands out credentials")
                }
            };
            let net = IpNet::from(address::unmap_ipv4(ip)).to_string();
            let (table, key) = self.network_list;
            let line = PolicyLine::new(table, key, LineValue::List(vec![net]));
            let hint = Remedy::Set { purpose: "to allow it".to_owned(), line };
            return Err(NetError::Address(PolicyRefusal::new(format!("`{host}`: {problem}"), hint)));
        }
        Ok(())
    }
}

impl HttpClient {
    /// Sends a request of the host itself, which accepts no content coding, and returns with the head of the response. The
    /// lookup counts for the plugin `looks_up`. The caller bounds the time.
    pub(super) async fn send_to_operator_target(
        &self,
        user: ConnectionUser,
        looks_up: &PluginId,
        named: OperatorTarget<'_>,
        url: &Url,
        (mut headers, body): (HeaderMap, Bytes),
    ) -> Result<Response<ResponseBody>, ConnectorError> {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(USER_AGENT, USER_AGENT_VALUE);
        let request = build_request(named.target, url, headers, full_body(body))?;
        named.check_name()?;
        let route = Route::Operator(named.route.clone());
        let key = ConnectionKey::new(user, named.target, named.private, route);
        let check = |addresses: &[SocketAddr]| named.check(addresses);
        let sent = self
            .dispatch(request, key, looks_up, (OpenConnectionGuard::uncounted(), Duration::MAX), check)
            .await;
        sent.map_err(|unsent| match unsent {
            DispatchError::Net(error) => error.into(),
            DispatchError::NoCertificates(why) => ConnectorError::Failed(why.into()),
            DispatchError::UnknownAuthority(why) => {
                let hint = authority_hint(named.has_ca.then_some(named.network_list.0));
                ConnectorError::Failed(PolicyRefusal::new(why, hint))
            }
            DispatchError::ConnectionLost(error) => {
                let why = one_line(&root_cause(&error), MAX_SHOWN);
                let host = named.target.host();
                ConnectorError::Failed(format!("`{host}` gave no response: {why}").into())
            }
        })
    }
}

impl From<NetError> for ConnectorError {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Address(why) => Self::Denied(why),
            NetError::Denied(why) | NetError::Invalid(why) => Self::Denied(why.into()),
            NetError::Transport(why) => Self::Failed(why.into()),
            NetError::Timeout => Self::Failed("the request timed out".into()),
        }
    }
}

/// How to trust another authority.
pub(super) fn authority_hint(table: Option<&str>) -> Hint {
    match table {
        Some(table) => Remedy::Set {
            purpose: "to trust the authority of a file with its certificate (PEM)".to_owned(),
            line: PolicyLine::new(table, "ca", LineValue::Text("ca.pem".to_owned())),
        }
        .into(),
        None => "to trust it, add its certificate to those of this machine".into(),
    }
}

/// Whether the URL itself contains this address, or `localhost` for a loopback address.
fn is_written_address(host: &str, ip: IpAddr) -> bool {
    parse_ip_literal(host) == Some(ip) || (is_localhost(host) && address::unmap_ipv4(ip).is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_address_is_granted_and_one_behind_a_name_is_not() {
        let check_as = |grants_written: bool, url: &str, ip: &str, private: &[&str]| {
            let target = NetTarget::request("GET", &Url::parse(url).unwrap()).unwrap();
            let private: Vec<IpNet> = private.iter().map(|net| net.parse().unwrap()).collect();
            let route = OutboundRoute::default();
            let named = OperatorTarget {
                target: &target,
                private: &private,
                grants_written,
                network_list: ("[mcp.s]", "net_private"),
                route: &route,
                has_ca: false,
            };
            named.check_name()?;
            // A public address in the same answer does not help.
            named.check(&[ip.parse::<IpAddr>().unwrap(), "1.1.1.1".parse().unwrap()].map(|ip| (ip, 1).into()))
        };
        let check = |url: &str, ip: &str, private: &[&str]| check_as(true, url, ip, private);
        let whole = |refused: Result<(), NetError>| match refused {
            Err(NetError::Address(why)) => why.for_operator(),
            other => panic!("{other:?}"),
        };
        for url in ["http://127.0.0.1/", "http://localhost/"] {
            let why = whole(check_as(false, url, "127.0.0.1", &[]));
            assert!(why.contains("[\"127.0.0.1/32\"]"), "named by a peer: {url}: {why}");
            assert_eq!(check_as(false, url, "127.0.0.1", &["127.0.0.0/8"]), Ok(()), "{url}");
        }
        for (url, ip, private) in [
            ("http://127.0.0.1/", "127.0.0.1", vec![]),
            ("http://[::1]/", "::1", vec![]),
            ("http://10.1.2.3/", "10.1.2.3", vec![]),
            ("http://localhost/", "127.0.0.1", vec![]),
            ("https://keys.example/", "10.1.2.3", vec!["10.0.0.0/8"]),
            ("https://keys.example/", "8.8.8.8", vec![]),
        ] {
            assert_eq!(check(url, ip, &private), Ok(()), "{url} {ip}");
        }
        for (url, ip, private, part) in [
            ("https://keys.example/", "10.1.2.3", vec![], "[\"10.1.2.3/32\"]"),
            ("https://keys.example/", "127.0.0.1", vec![], "[\"127.0.0.1/32\"]"),
            ("https://keys.example/", "::ffff:10.1.2.3", vec!["192.168.0.0/16"], "[\"10.1.2.3/32\"]"),
            ("http://localhost/", "10.1.2.3", vec![], "[\"10.1.2.3/32\"]"),
            ("http://169.254.169.254/", "169.254.169.254", vec![], "credentials"),
            ("http://metadata.google.internal/", "8.8.8.8", vec![], "credentials"),
        ] {
            let refused = check(url, ip, &private);
            let text = refused.as_ref().unwrap_err().to_string();
            assert!(!text.contains("write"), "the hint stays apart: {text}");
            let why = whole(refused);
            assert!(why.contains(part), "{url} {ip}: {why}");
        }
    }
}
