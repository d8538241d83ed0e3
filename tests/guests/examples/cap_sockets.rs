//! Raw connections through `std::net`, and operations that a guest may not do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};

use guest::wasip2::sockets::instance_network::instance_network;
use guest::wasip2::sockets::ip_name_lookup::resolve_addresses;
use guest::{Answer, Args, json, structured, tool};

const ALL: &[(&str, &str, bool)] = &[("net", "tcp://*:*", true), ("net", "udp://*:*", true)];

guest::tools!(
    // Sends `text` to `host`:`port` and returns the response.
    tool("tcp", tcp).needs(ALL),
    tool("udp", udp).needs(ALL),
    tool("look_up", look_up).needs(ALL),
    tool("listen", |args| {
        said(TcpListener::bind(("127.0.0.1", args.number("port", 0) as u16)).map(|l| format!("{l:?}")))
    })
    .needs(ALL),
    tool("bind_udp", |args| {
        said(
            UdpSocket::bind((args.text("host", "0.0.0.0"), args.number("port", 0) as u16))
                .map(|s| format!("{s:?}")),
        )
    })
    .needs(ALL),
    // Opens `n` connections and keeps them open.
    tool("many", many).needs(ALL),
    tool("undeclared", tcp),
);

fn peer(args: &Args) -> (String, u16) {
    (args.text("host", "127.0.0.1").to_owned(), args.number("port", 0) as u16)
}

fn said(result: std::io::Result<String>) -> Answer {
    structured(&match result {
        Ok(text) => json!({ "text": text }),
        Err(error) => json!({ "error": error.to_string() }),
    })
}

fn tcp(args: &Args) -> Answer {
    said(TcpStream::connect(peer(args)).and_then(|mut stream| {
        stream.write_all(args.text("text", "hello").as_bytes())?;
        let mut back = [0; 100];
        let n = stream.read(&mut back)?;
        Ok(String::from_utf8_lossy(&back[..n]).into_owned())
    }))
}

fn udp(args: &Args) -> Answer {
    said(UdpSocket::bind(("0.0.0.0", 0)).and_then(|socket| {
        let mut back = [0; 100];
        let mut text = String::new();
        for _ in 0..args.number("n", 1) {
            socket.send_to(args.text("text", "hello").as_bytes(), peer(args))?;
            let (n, _) = socket.recv_from(&mut back)?;
            text += &String::from_utf8_lossy(&back[..n]);
        }
        Ok(text)
    }))
}

/// Through `std`, and through the interface itself.
fn look_up(args: &Args) -> Answer {
    let name = args.text("host", "");
    let std = (name, 1).to_socket_addrs().map(|all| all.map(|a| a.ip().to_string()).collect::<Vec<_>>());
    let network = instance_network();
    let mut raw = Vec::new();
    match resolve_addresses(&network, name) {
        Err(code) => raw.push(format!("{code:?}")),
        Ok(stream) => {
            stream.subscribe().block();
            while let Ok(Some(address)) = stream.resolve_next_address() {
                raw.push(format!("{address:?}"));
            }
        }
    }
    structured(&json!({ "std": std.map_err(|e| e.to_string()).unwrap_or_else(|e| vec![e]), "raw": raw }))
}

fn many(args: &Args) -> Answer {
    let mut open = Vec::new();
    let mut error = None;
    for _ in 0..args.number("n", 1) {
        match TcpStream::connect(peer(args)) {
            Ok(stream) => open.push(stream),
            Err(e) => error = Some(e.to_string()),
        }
    }
    structured(&json!({ "open": open.len(), "error": error }))
}
