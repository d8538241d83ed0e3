//! Addresses of what the operator named himself: the URL of an MCP server, of an authorization server's keys. An address
//! that stands in it, and `localhost`, are thereby granted. What a *name* leads to must be public, or in a list of private
//! networks beside it: whoever answers for the name is not the operator.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hyper::{Request, Response};
use ipnet::IpNet;
use toolbay_policy::capability::net::Target;
use toolbay_policy::capability::net::address::{self, NotPublic};
use toolbay_policy::name::PluginId;
use toolbay_policy::text::one_line;

use super::Client;
use super::body::Inbound;
use super::connect::{Key, Outgoing, User};
use super::dispatch::{Unsent, cause};
use super::resolve::literal;
use super::session::{Lease, NetError};

/// Longest text of a peer that an error repeats, in characters.
pub(super) const MAX_SHOWN: usize = 300;

/// A place that the operator named, and what is asked of it.
pub(super) struct Named<'a> {
    pub(super) target: &'a Target,
    /// Private networks that its host may lead to.
    pub(super) private: &'a [IpNet],
    /// What would allow another.
    pub(super) hint: &'a (dyn Fn(IpNet) -> String + Send + Sync),
}

impl Named<'_> {
    /// Checks the name, before it is looked up: of what clouds keep for a machine, only a very address is ever granted.
    fn check_name(&self) -> Result<(), NetError> {
        let host = self.target.host();
        if address::names_metadata(host) && self.private.is_empty() {
            return Err(NetError::Address(format!(
                "`{host}` is where clouds keep a machine's credentials; only the very address allows it"
            )));
        }
        Ok(())
    }

    /// Checks every address that the host stands for; one that may not be connected to refuses them all.
    fn check(&self, addresses: &[SocketAddr]) -> Result<(), NetError> {
        let host = self.target.host();
        for ip in addresses.iter().map(SocketAddr::ip) {
            let problem = match address::judge(host, ip, self.private) {
                Ok(()) => continue,
                Err(NotPublic::Special(..)) if names_itself(host, ip) => continue,
                Err(problem) => problem,
            };
            let net = IpNet::from(address::unmapped(ip));
            let hint = (self.hint)(net);
            return Err(NetError::Address(format!("`{host}`: {problem}; to allow it, {hint}")));
        }
        Ok(())
    }
}

impl Client {
    /// Sends a request of the host itself and returns when the head of its response is there. `looks_up` is whose
    /// look-ups are counted. The caller bounds the time.
    pub(super) async fn send_named(
        &self,
        user: User,
        looks_up: &PluginId,
        named: Named<'_>,
        request: Box<Request<Outgoing>>,
    ) -> Result<Response<Inbound>, NetError> {
        named.check_name()?;
        let key = Key::new(user, named.target, named.private);
        let check = |addresses: &[SocketAddr]| named.check(addresses);
        let sent = self.dispatch(request, key, looks_up, (Lease::of_the_host(), Duration::MAX), check).await;
        sent.map_err(|unsent| match unsent {
            Unsent::Net(error) => error,
            Unsent::Broken(error) => {
                let why = one_line(&cause(&error), MAX_SHOWN);
                NetError::Transport(format!("`{}` gave no response: {why}", named.target.host()))
            }
        })
    }
}

/// Whether the URL says itself that it leads to this address.
fn names_itself(host: &str, ip: IpAddr) -> bool {
    let local = host == "localhost" || host.ends_with(".localhost");
    literal(host) == Some(ip) || (local && address::unmapped(ip).is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    #[test]
    fn an_address_that_is_named_is_granted_and_one_behind_a_name_is_not() {
        let check = |url: &str, ip: &str, private: &[&str]| {
            let target = Target::request("GET", &Url::parse(url).unwrap()).unwrap();
            let private: Vec<IpNet> = private.iter().map(|net| net.parse().unwrap()).collect();
            let hint = |net: IpNet| format!("write {net}");
            let named = Named { target: &target, private: &private, hint: &hint };
            named.check_name()?;
            // A public one beside it helps nobody.
            named.check(&[ip.parse::<IpAddr>().unwrap(), "1.1.1.1".parse().unwrap()].map(|ip| (ip, 1).into()))
        };
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
            ("https://keys.example/", "10.1.2.3", vec![], "write 10.1.2.3/32"),
            ("https://keys.example/", "127.0.0.1", vec![], "write 127.0.0.1/32"),
            ("https://keys.example/", "::ffff:10.1.2.3", vec!["192.168.0.0/16"], "write 10.1.2.3/32"),
            ("http://localhost/", "10.1.2.3", vec![], "write 10.1.2.3/32"),
            ("http://169.254.169.254/", "169.254.169.254", vec![], "credentials"),
            ("http://metadata.google.internal/", "8.8.8.8", vec![], "credentials"),
        ] {
            let why = check(url, ip, &private).unwrap_err().to_string();
            assert!(why.contains(part), "{url} {ip}: {why}");
        }
    }
}
