//! `wasi:sockets`: raw connections to hosts and ports that were granted as `tcp://` or `udp://`. Listening is not
//! supported.
//!
//! The name lookup replaces wasmtime's, which can only be on or off. A name is resolved if a grant has it, and the
//! result is remembered, because a guest connects to an address. Without a `tcp://` or `udp://` grant no socket can
//! be created.

use std::net::{IpAddr, SocketAddr};

use toolbay_policy::capability::net::Scheme;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddress, Network};
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};
use wasmtime_wasi::p3::bindings::sockets::{ip_name_lookup, types};
use wasmtime_wasi::sockets::SocketAddrUse;
use wasmtime_wasi::{WasiCtxBuilder, WasiView};

use super::call_network::{CallNetwork, NetError};
use crate::Capabilities;
use crate::state::GuestState;

/// Enables the sockets that a call was granted.
pub(super) fn allow_sockets(wasi: &mut WasiCtxBuilder, capabilities: &Capabilities) {
    let Some(network) = capabilities.network() else { return };
    let (tcp, udp) = (network.has_raw_grant(Scheme::Tcp), network.has_raw_grant(Scheme::Udp));
    if !tcp && !udp {
        return;
    }
    wasi.allow_tcp(tcp).allow_udp(udp).socket_addr_check(move |address, purpose| {
        let allowed = check(&network, address, purpose);
        Box::pin(std::future::ready(allowed))
    });
}

fn check(network: &CallNetwork, address: SocketAddr, purpose: SocketAddrUse) -> bool {
    match purpose {
        // The system binds implicitly before it connects. A port of the guest's choice could belong to the host.
        SocketAddrUse::TcpBind | SocketAddrUse::UdpBind => {
            address.ip().is_unspecified() && address.port() == 0
        }
        SocketAddrUse::TcpListen | SocketAddrUse::TcpAccept => false,
        SocketAddrUse::TcpConnect => network.admit_raw(Scheme::Tcp, address),
        SocketAddrUse::UdpSend => network.admit_raw(Scheme::Udp, address),
        SocketAddrUse::UdpReceive => network.is_datagram_peer(address),
    }
}

/// The addresses of a name, resolved before the guest gets the stream.
struct ResolveAddressStream(std::vec::IntoIter<IpAddr>);

#[wasmtime_wasi::async_trait]
impl Pollable for ResolveAddressStream {
    async fn ready(&mut self) {}
}

/// Links the name lookup in place of wasmtime's.
pub(super) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut interface = linker.instance("wasi:sockets/ip-name-lookup@0.2.12")?;
    interface.resource(
        "resolve-address-stream",
        ResourceType::host::<ResolveAddressStream>(),
        |mut store, answers| {
            store.data_mut().ctx().table.delete(Resource::<ResolveAddressStream>::new_own(answers))?;
            Ok(())
        },
    )?;
    interface.func_wrap_async(
        "resolve-addresses",
        |mut store: StoreContextMut<'_, GuestState>, (_, name): (Resource<Network>, String)| {
            let network = store.data_mut().capabilities.network();
            Box::new(async move {
                let found = match network {
                    Some(network) => network.look_up(&name).await.map_err(|e| error_code(&e)),
                    None => Err(ErrorCode::AccessDenied),
                };
                let answers = match found {
                    Ok(addresses) => {
                        Ok(store.data_mut().ctx().table.push(ResolveAddressStream(addresses.into_iter()))?)
                    }
                    Err(code) => Err(code),
                };
                Ok((answers,))
            })
        },
    )?;
    interface.func_wrap(
        "[method]resolve-address-stream.resolve-next-address",
        |mut store: StoreContextMut<'_, GuestState>, (answers,): (Resource<ResolveAddressStream>,)| {
            let answers = store.data_mut().ctx().table.get_mut(&answers)?;
            Ok((Ok::<_, ErrorCode>(answers.0.next().map(IpAddress::from)),))
        },
    )?;
    interface.func_wrap(
        "[method]resolve-address-stream.subscribe",
        |mut store: StoreContextMut<'_, GuestState>,
         (answers,): (Resource<ResolveAddressStream>,)|
         -> wasmtime::Result<(Resource<DynPollable>,)> {
            Ok((subscribe(store.data_mut().ctx().table, answers)?,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Links the name lookup of WASI 0.3 in place of wasmtime's.
pub(super) fn link_async(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut interface = linker.instance("wasi:sockets/ip-name-lookup@0.3.0")?;
    interface.func_wrap_concurrent("resolve-addresses", |accessor, (name,): (String,)| {
        Box::pin(async move {
            let network = accessor.with(|mut store| store.data_mut().capabilities.network());
            let found = match network {
                Some(network) => network.look_up(&name).await.map_err(|e| error_code_0_3(&e)),
                None => Err(ip_name_lookup::ErrorCode::AccessDenied),
            };
            let into_guest =
                |all: Vec<IpAddr>| all.into_iter().map(Into::into).collect::<Vec<types::IpAddress>>();
            Ok((found.map(into_guest),))
        })
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

fn error_code_0_3(error: &NetError) -> ip_name_lookup::ErrorCode {
    use ip_name_lookup::ErrorCode as Code;
    match error {
        NetError::Denied(_) | NetError::Address(_) => Code::AccessDenied,
        NetError::Invalid(_) => Code::InvalidArgument,
        NetError::Timeout => Code::TemporaryResolverFailure,
        NetError::Transport(_) => Code::NameUnresolvable,
    }
}

fn error_code(error: &NetError) -> ErrorCode {
    match error {
        NetError::Denied(_) | NetError::Address(_) => ErrorCode::AccessDenied,
        NetError::Invalid(_) => ErrorCode::InvalidArgument,
        NetError::Timeout => ErrorCode::TemporaryResolverFailure,
        NetError::Transport(_) => ErrorCode::NameUnresolvable,
    }
}
