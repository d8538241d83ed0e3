//! `wasi:sockets`: raw connections to what was granted as `tcp://` or `udp://`, by host and port. Nothing listens.
//!
//! The look-up of names is ours in place of wasmtime's, which can only be on or off: a name is looked up if a grant
//! names it, and what it led to is remembered, because a connection is made to an address. Without a `tcp://` or
//! `udp://` grant no socket is made at all.

use std::net::{IpAddr, SocketAddr};

use toolbay_policy::capability::net::Scheme;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddress, Network};
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};
use wasmtime_wasi::sockets::SocketAddrUse;
use wasmtime_wasi::{WasiCtxBuilder, WasiView};

use super::Capabilities;
use super::http::session::{NetError, Session};

/// Switches on what a call was granted.
pub(crate) fn allow(wasi: &mut WasiCtxBuilder, capabilities: &Capabilities) {
    let Some(session) = capabilities.session() else { return };
    let (tcp, udp) = (session.has_raw(Scheme::Tcp), session.has_raw(Scheme::Udp));
    if !tcp && !udp {
        return;
    }
    wasi.allow_tcp(tcp).allow_udp(udp).socket_addr_check(move |address, purpose| {
        let allowed = check(&session, address, purpose);
        Box::pin(std::future::ready(allowed))
    });
}

fn check(session: &Session, address: SocketAddr, purpose: SocketAddrUse) -> bool {
    match purpose {
        // What the system does by itself before it connects; a port of the guest's choice could be one of ours.
        SocketAddrUse::TcpBind | SocketAddrUse::UdpBind => {
            address.ip().is_unspecified() && address.port() == 0
        }
        SocketAddrUse::TcpListen | SocketAddrUse::TcpAccept => false,
        SocketAddrUse::TcpConnect => session.may_connect(Scheme::Tcp, address),
        SocketAddrUse::UdpSend => session.may_connect(Scheme::Udp, address),
        SocketAddrUse::UdpReceive => session.is_peer(address),
    }
}

/// The addresses of a name, found before the guest gets the handle.
struct Answers(std::vec::IntoIter<IpAddr>);

#[wasmtime_wasi::async_trait]
impl Pollable for Answers {
    async fn ready(&mut self) {}
}

/// Links the look-up over wasmtime's.
pub(crate) fn link<T: WasiView + 'static>(
    linker: &mut Linker<T>,
    project: fn(&mut T) -> &mut Capabilities,
) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut interface = linker.instance("wasi:sockets/ip-name-lookup@0.2.12")?;
    interface.resource("resolve-address-stream", ResourceType::host::<Answers>(), |mut store, answers| {
        store.data_mut().ctx().table.delete(Resource::<Answers>::new_own(answers))?;
        Ok(())
    })?;
    interface.func_wrap_async(
        "resolve-addresses",
        move |mut store: StoreContextMut<'_, T>, (_, name): (Resource<Network>, String)| {
            let session = project(store.data_mut()).session();
            Box::new(async move {
                let found = match session {
                    Some(session) => session.look_up(&name).await.map_err(|e| code(&e)),
                    None => Err(ErrorCode::AccessDenied),
                };
                let answers = match found {
                    Ok(addresses) => Ok(store.data_mut().ctx().table.push(Answers(addresses.into_iter()))?),
                    Err(code) => Err(code),
                };
                Ok((answers,))
            })
        },
    )?;
    interface.func_wrap(
        "[method]resolve-address-stream.resolve-next-address",
        |mut store: StoreContextMut<'_, T>, (answers,): (Resource<Answers>,)| {
            let answers = store.data_mut().ctx().table.get_mut(&answers)?;
            Ok((Ok::<_, ErrorCode>(answers.0.next().map(IpAddress::from)),))
        },
    )?;
    interface.func_wrap(
        "[method]resolve-address-stream.subscribe",
        |mut store: StoreContextMut<'_, T>,
         (answers,): (Resource<Answers>,)|
         -> wasmtime::Result<(Resource<DynPollable>,)> {
            Ok((subscribe(store.data_mut().ctx().table, answers)?,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

fn code(error: &NetError) -> ErrorCode {
    match error {
        NetError::Denied(_) | NetError::Address(_) => ErrorCode::AccessDenied,
        NetError::Invalid(_) => ErrorCode::InvalidArgument,
        NetError::Timeout => ErrorCode::TemporaryResolverFailure,
        NetError::Transport(_) => ErrorCode::NameUnresolvable,
    }
}
