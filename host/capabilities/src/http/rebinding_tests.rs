//! DNS rebinding: a name that resolves differently each time. Its DNS server may belong to the attacker.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{ErrorKind, Result};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::{BodyExt as _, Empty};
use ipnet::IpNet;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use toolbay_policy::Policy;
use toolbay_policy::capability::net::address;

use super::super::connect::ConnectionUser;
use super::super::resolve::Resolver;
use super::*;

/// An allowed address in place of a public one, and a forbidden one.
const ALLOWED: [u8; 4] = [127, 0, 0, 1];
const INSIDE: [u8; 4] = [127, 0, 0, 2];

static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// Each name resolves in its own malicious way.
fn look_up(name: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let turn = if name == "turns.example" { LOOKUPS.fetch_add(1, Ordering::SeqCst) } else { 0 };
    let (allowed, inside) = (SocketAddr::from((ALLOWED, port)), SocketAddr::from((INSIDE, port)));
    Ok(match (name, turn) {
        ("turns.example", 0) => vec![allowed],
        ("turns.example", _) | ("inside.example", _) => vec![inside],
        ("both.example", _) => vec![allowed, inside],
        ("mapped.example", _) => {
            vec![SocketAddr::new(std::net::Ipv4Addr::from(INSIDE).to_ipv6_mapped().into(), port)]
        }
        ("any.example", _) => vec![SocketAddr::from(([0, 0, 0, 0], port))],
        ("nothing.example", _) => vec![],
        _ => return Err(ErrorKind::NotFound.into()),
    })
}

/// Answers two requests on each connection, and closes it with the second.
async fn serve(listener: TcpListener) {
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        for end in ["", "connection: close\r\n"] {
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") {
                seen.push(stream.read_u8().await.unwrap());
            }
            let answer = format!("HTTP/1.1 200 OK\r\n{end}content-length: 4\r\n\r\ngood");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

async fn fetch(client: &HttpClient, name: &str, port: u16) -> std::result::Result<Bytes, NetError> {
    let url = Url::parse(&format!("http://{name}:{port}/")).unwrap();
    let target = NetTarget::request("GET", &url).unwrap();
    let private: Vec<IpNet> = vec![std::net::IpAddr::from(ALLOWED).into()];
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let request = build_request(&target, &url, HeaderMap::new(), body).unwrap();
    let plugin = PluginId::new("p").unwrap();
    let key = ConnectionKey {
        user: ConnectionUser::Plugin(plugin.clone()),
        scheme: target.scheme(),
        host: target.host().to_owned(),
        port,
        private: private.clone(),
        route: Route::Direct,
    };
    let check = |addresses: &[SocketAddr]| {
        let check = |one: &SocketAddr| address::check_address(name, one.ip(), &private);
        addresses.iter().try_for_each(check).map_err(|problem| NetError::Address(problem.to_string().into()))
    };
    let guard = (OpenConnectionGuard::uncounted(), Duration::from_secs(20));
    match client.dispatch(request, key, &plugin, guard, check).await {
        Ok(response) => Ok(response.into_body().collect().await.unwrap().to_bytes()),
        Err(DispatchError::Net(error)) => Err(error),
        Err(DispatchError::ConnectionLost(error)) => Err(NetError::Transport(error.to_string())),
        Err(DispatchError::UnknownAuthority(why) | DispatchError::NoCertificates(why)) => {
            Err(NetError::Transport(why))
        }
    }
}

#[tokio::test]
async fn every_lookup_is_checked_and_only_checked_addresses_are_connected_to() {
    let allowed = TcpListener::bind((std::net::Ipv4Addr::from(ALLOWED), 0)).unwrap();
    let port = allowed.local_addr().unwrap().port();
    let inside = TcpListener::bind((std::net::Ipv4Addr::from(INSIDE), port)).unwrap();
    inside.set_nonblocking(true).unwrap();
    let server = tokio::spawn(serve(allowed));
    let policy = Policy::parse("version = 1", Path::new("/"), None).unwrap();
    let client = HttpClient { resolver: Resolver::with_lookup(look_up), ..HttpClient::new(&policy) };

    // One lookup serves all requests of a connection.
    for _ in 0..2 {
        assert_eq!(fetch(&client, "turns.example", port).await.unwrap(), "good");
        assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1);
    }
    // The next connection needs another lookup, which now returns another address.
    for name in ["turns.example", "inside.example", "both.example", "mapped.example", "any.example"] {
        let refused = fetch(&client, name, port).await;
        assert!(matches!(refused, Err(NetError::Address(_))), "{name}: {refused:?}");
    }
    assert_eq!(LOOKUPS.load(Ordering::SeqCst), 2);
    for name in ["nothing.example", "none.example"] {
        let refused = fetch(&client, name, port).await;
        assert!(matches!(refused, Err(NetError::Transport(_))), "{name}: {refused:?}");
    }
    assert_eq!(
        inside.accept().map(drop).map_err(|e| e.kind()),
        Err(ErrorKind::WouldBlock),
        "no connection reached the forbidden address"
    );
    server.abort();
}
