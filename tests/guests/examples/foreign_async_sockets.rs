//! A component of WASI 0.3 that opens raw connections and resolves names.

wit_bindgen::generate!({
    inline: r#"
        package stranger:dialer;

        world dialer {
            import wasi:sockets/types@0.3.0;
            import wasi:sockets/ip-name-lookup@0.3.0;

            type address = tuple<u8, u8, u8, u8>;

            export tcp: async func(address: address, port: u16, text: string) -> result<string, string>;
            export udp: async func(address: address, port: u16, text: string) -> result<string, string>;
            /// Opens connections until one is refused; the result is their number.
            export many: async func(address: address, port: u16, count: u32) -> u32;
            export listen-at: func(port: u16) -> result<_, string>;
            export bind-udp: func(address: address, port: u16) -> result<_, string>;
            export look-up: async func(name: string) -> result<list<string>, string>;
        }

        package wasi:sockets@0.3.0 {
            interface types {
                variant error-code {
                    access-denied, not-supported, invalid-argument, out-of-memory, timeout, invalid-state,
                    address-not-bindable, address-in-use, remote-unreachable, connection-refused,
                    connection-broken, connection-reset, connection-aborted, datagram-too-large,
                    other(option<string>),
                }
                enum ip-address-family { ipv4, ipv6 }
                type ipv4-address = tuple<u8, u8, u8, u8>;
                type ipv6-address = tuple<u16, u16, u16, u16, u16, u16, u16, u16>;
                variant ip-address { ipv4(ipv4-address), ipv6(ipv6-address) }
                record ipv4-socket-address { port: u16, address: ipv4-address }
                record ipv6-socket-address { port: u16, flow-info: u32, address: ipv6-address, scope-id: u32 }
                variant ip-socket-address { ipv4(ipv4-socket-address), ipv6(ipv6-socket-address) }
                resource tcp-socket {
                    create: static func(address-family: ip-address-family) -> result<tcp-socket, error-code>;
                    bind: func(local-address: ip-socket-address) -> result<_, error-code>;
                    connect: async func(remote-address: ip-socket-address) -> result<_, error-code>;
                    listen: func() -> result<stream<tcp-socket>, error-code>;
                    send: func(data: stream<u8>) -> future<result<_, error-code>>;
                    receive: func() -> tuple<stream<u8>, future<result<_, error-code>>>;
                }
                resource udp-socket {
                    create: static func(address-family: ip-address-family) -> result<udp-socket, error-code>;
                    bind: func(local-address: ip-socket-address) -> result<_, error-code>;
                    send: async func(data: list<u8>, remote-address: option<ip-socket-address>) -> result<_, error-code>;
                    receive: async func() -> result<tuple<list<u8>, ip-socket-address>, error-code>;
                }
            }
            interface ip-name-lookup {
                use types.{ip-address};
                variant error-code {
                    access-denied, invalid-argument, name-unresolvable, temporary-resolver-failure,
                    permanent-resolver-failure, other(option<string>),
                }
                resolve-addresses: async func(name: string) -> result<list<ip-address>, error-code>;
            }
        }
    "#,
    generate_all,
});

use std::fmt::Debug;

use wasi::sockets::ip_name_lookup::resolve_addresses;
use wasi::sockets::types::{IpAddressFamily, IpSocketAddress, Ipv4SocketAddress, TcpSocket, UdpSocket};

struct Dialer;

fn said(error: impl Debug) -> String {
    format!("{error:?}")
}

fn at(address: Address, port: u16) -> IpSocketAddress {
    IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address })
}

async fn connect(address: Address, port: u16) -> Result<TcpSocket, String> {
    let socket = TcpSocket::create(IpAddressFamily::Ipv4).map_err(said)?;
    socket.connect(at(address, port)).await.map_err(said)?;
    Ok(socket)
}

impl Guest for Dialer {
    async fn tcp(address: Address, port: u16, text: String) -> Result<String, String> {
        let socket = connect(address, port).await?;
        let (mut writer, reader) = wit_stream::new();
        let sent = socket.send(reader);
        let (back, _) = socket.receive();
        writer.write_all(text.into_bytes()).await;
        drop(writer);
        sent.await.map_err(said)?;
        Ok(String::from_utf8_lossy(&back.collect().await).into_owned())
    }

    async fn udp(address: Address, port: u16, text: String) -> Result<String, String> {
        let socket = UdpSocket::create(IpAddressFamily::Ipv4).map_err(said)?;
        socket.send(text.into_bytes(), Some(at(address, port))).await.map_err(said)?;
        let (back, _) = socket.receive().await.map_err(said)?;
        Ok(String::from_utf8_lossy(&back).into_owned())
    }

    async fn many(address: Address, port: u16, count: u32) -> u32 {
        let mut open = Vec::new();
        for _ in 0..count {
            open.extend(connect(address, port).await);
        }
        open.len() as u32
    }

    fn listen_at(port: u16) -> Result<(), String> {
        let socket = TcpSocket::create(IpAddressFamily::Ipv4).map_err(said)?;
        socket.bind(at((127, 0, 0, 1), port)).map_err(said)?;
        socket.listen().map(drop).map_err(said)
    }

    fn bind_udp(address: Address, port: u16) -> Result<(), String> {
        let socket = UdpSocket::create(IpAddressFamily::Ipv4).map_err(said)?;
        socket.bind(at(address, port)).map_err(said)
    }

    async fn look_up(name: String) -> Result<Vec<String>, String> {
        let addresses = resolve_addresses(name).await.map_err(said)?;
        Ok(addresses.iter().map(said).collect())
    }
}

export!(Dialer);
