//! A name that means something else each time it is asked for: whoever answers for it decides, and may be the attacker.

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

use super::super::connect::User;
use super::super::resolve::Resolver;
use super::*;

/// Where a request may go, standing for a public address; and where it may not.
const ALLOWED: [u8; 4] = [127, 0, 0, 1];
const INSIDE: [u8; 4] = [127, 0, 0, 2];

static ASKED: AtomicUsize = AtomicUsize::new(0);

/// Each name answers in its own bad way.
fn look_up(name: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let turn = if name == "turns.example" { ASKED.fetch_add(1, Ordering::SeqCst) } else { 0 };
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

/// Answers two requests of each connection, and closes it with the second.
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

async fn fetch(client: &Client, name: &str, port: u16) -> std::result::Result<Bytes, NetError> {
    let url = Url::parse(&format!("http://{name}:{port}/")).unwrap();
    let target = Target::request("GET", &url).unwrap();
    let private: Vec<IpNet> = vec![std::net::IpAddr::from(ALLOWED).into()];
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let request = request(&target, &url, HeaderMap::new(), body).unwrap();
    let plugin = PluginId::new("p").unwrap();
    let key = Key {
        user: User::Plugin(plugin.clone()),
        scheme: target.scheme(),
        host: target.host().to_owned(),
        port,
        private: private.clone(),
    };
    let check = |addresses: &[SocketAddr]| {
        let judged = |one: &SocketAddr| address::judge(name, one.ip(), &private);
        addresses.iter().try_for_each(judged).map_err(|problem| NetError::Address(problem.to_string()))
    };
    let lease = (Lease::of_the_host(), Duration::from_secs(20));
    match client.dispatch(request, key, &plugin, lease, check).await {
        Ok(response) => Ok(response.into_body().collect().await.unwrap().to_bytes()),
        Err(Unsent::Net(error)) => Err(error),
        Err(Unsent::Broken(error)) => Err(NetError::Transport(error.to_string())),
    }
}

#[tokio::test]
async fn a_name_is_judged_each_time_it_is_looked_up_and_connected_to_as_it_was_judged() {
    let allowed = TcpListener::bind((std::net::Ipv4Addr::from(ALLOWED), 0)).unwrap();
    let port = allowed.local_addr().unwrap().port();
    let inside = TcpListener::bind((std::net::Ipv4Addr::from(INSIDE), port)).unwrap();
    inside.set_nonblocking(true).unwrap();
    let server = tokio::spawn(serve(allowed));
    let policy = Policy::parse("version = 1", Path::new("/"), None).unwrap();
    let client = Client { resolver: Resolver::with(look_up), ..Client::new(&policy) };

    // One look-up for one connection, however many requests it carries.
    for _ in 0..2 {
        assert_eq!(fetch(&client, "turns.example", port).await.unwrap(), "good");
        assert_eq!(ASKED.load(Ordering::SeqCst), 1);
    }
    // The next connection is another look-up, and the name means something else by now.
    for name in ["turns.example", "inside.example", "both.example", "mapped.example", "any.example"] {
        let refused = fetch(&client, name, port).await;
        assert!(matches!(refused, Err(NetError::Address(_))), "{name}: {refused:?}");
    }
    assert_eq!(ASKED.load(Ordering::SeqCst), 2);
    for name in ["nothing.example", "none.example"] {
        let refused = fetch(&client, name, port).await;
        assert!(matches!(refused, Err(NetError::Transport(_))), "{name}: {refused:?}");
    }
    assert_eq!(inside.accept().map(drop).map_err(|e| e.kind()), Err(ErrorKind::WouldBlock), "nobody came");
    server.abort();
}
