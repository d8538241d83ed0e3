//! Public addresses: addresses outside the IANA special-purpose registries that do not embed a special-purpose
//! address.
//!
//! The registries (RFC 6890 and its updates) are applied strictly: a listed block is not public, even if the registry
//! calls parts of it globally reachable. Of IPv6, only the allocated `2000::/3` is public. IPv4 addresses in IPv6
//! addresses are checked as IPv4 for the translators in use today (mapped, NAT64 of RFC 6052). Obsolete forms
//! (compatible, 6to4, Teredo, ISATAP) are always refused.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Special IPv4 blocks: address, prefix length, purpose.
const SPECIAL_V4: &[(Ipv4Addr, u32, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "shared address space"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocol assignments"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "AS112"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "AMT"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(192, 175, 48, 0), 24, "AS112"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// Special IPv6 blocks in `2000::/3`. All addresses outside it are refused earlier.
const SPECIAL_V6: &[(Ipv6Addr, u32, &str)] = &[
    // Contains Teredo, benchmarking, AMT, AS112, ORCHID and drone remote ID.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "protocol assignments"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "6to4"),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, "AS112"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
];

/// Metadata services, which hand out the machine's credentials. `168.63.129.16` is in no special block.
const METADATA_V4: [Ipv4Addr; 9] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 169, 253),
    Ipv4Addr::new(169, 254, 169, 123),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(169, 254, 0, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];
const METADATA_NAMES: [&str; 10] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.com",
    "metadata.azure.internal",
    "metadata.aws.amazon.com",
    "metadata.tencentyun.com",
    "metadata.packet.net",
    "instance-data",
    "instance-data.ec2.internal",
];

/// Why a connection to an address is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The address is in a special block.
    #[error("{0} is not a public address ({1}); `net_private` can allow it")]
    Special(IpAddr, &'static str),
    /// The address is a metadata service.
    #[error(
        "{0} is a cloud metadata service, which hands out credentials; only this exact address in `net_private` allows it"
    )]
    Metadata(IpAddr),
}

/// Checks whether `host` may resolve to an address. `private` has the allowed networks that are not public. A
/// metadata service is only allowed by its exact address.
///
/// # Errors
/// The address is not allowed.
pub fn check_address(host: &str, address: IpAddr, private: &[IpNet]) -> Result<(), AddressError> {
    let unmapped = unmap_ipv4(address);
    let exact = IpNet::from(unmapped);
    if is_metadata(host, unmapped) {
        return if private.contains(&exact) { Ok(()) } else { Err(AddressError::Metadata(address)) };
    }
    match special_purpose(address) {
        Some(what) if !private.iter().any(|net| net.contains(&unmapped)) => {
            Err(AddressError::Special(address, what))
        }
        _ => Ok(()),
    }
}

/// Returns the purpose of a special address. `None` if it is public.
#[must_use]
pub fn special_purpose(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

/// Returns the IPv4 address of an IPv4-mapped IPv6 address. The system connects to it.
#[must_use]
pub fn unmap_ipv4(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Whether an address is another one, or an IPv6 address that contains it.
pub(super) fn is_or_embeds(address: IpAddr, other: IpAddr) -> bool {
    let (address, other) = (unmap_ipv4(address), unmap_ipv4(other));
    match (address, other) {
        (IpAddr::V6(v6), IpAddr::V4(v4)) => embedded_ipv4(v6).contains(&Some(v4)),
        _ => address == other,
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    let block = |(net, length, _): &&(Ipv4Addr, u32, &str)| (bits ^ net.to_bits()) >> (32 - length) == 0;
    SPECIAL_V4.iter().find(block).map(|(_, _, what)| *what)
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(v4) = address.to_ipv4_mapped().or_else(|| nat64(address)) {
        return special_v4(v4);
    }
    let bits = address.to_bits();
    if bits >> 125 != 1 {
        return Some(non_global_block(address));
    }
    if isatap(address).is_some() {
        return Some("ISATAP");
    }
    let block = |(net, length, _): &&(Ipv6Addr, u32, &str)| (bits ^ net.to_bits()) >> (128 - length) == 0;
    SPECIAL_V6.iter().find(block).map(|(_, _, what)| *what)
}

/// Names a block outside `2000::/3`, for messages.
fn non_global_block(address: Ipv6Addr) -> &'static str {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => "unspecified",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        [0, 0, 0, 0, 0, 0, _, _] => "IPv4-compatible",
        [0x64, 0xff9b, 1, ..] => "local NAT64",
        [0x100, ..] => "discard-only",
        [0x5f00, ..] => "segment routing",
        [first, ..] if first & 0xfe00 == 0xfc00 => "unique local",
        [first, ..] if first & 0xffc0 == 0xfe80 => "link-local",
        [first, ..] if first & 0xffc0 == 0xfec0 => "site-local",
        [first, ..] if first & 0xff00 == 0xff00 => "multicast",
        _ => "not allocated",
    }
}

/// Whether a host name belongs to a cloud's metadata service, whatever it resolves to.
#[must_use]
pub fn is_metadata_name(host: &str) -> bool {
    METADATA_NAMES.contains(&host)
}

/// Whether a host is a metadata service, by name or by address, embedded addresses included.
fn is_metadata(host: &str, address: IpAddr) -> bool {
    is_metadata_name(host) || is_metadata_address(address)
}

/// Whether a network is the single address of a metadata service.
pub(super) fn is_metadata_network(net: IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len() && is_metadata_address(net.addr())
}

fn is_metadata_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => METADATA_V4.contains(&v4),
        IpAddr::V6(v6) => {
            METADATA_V6.contains(&v6) || embedded_ipv4(v6).iter().flatten().any(|v4| METADATA_V4.contains(v4))
        }
    }
}

/// Returns every IPv4 address that a translator could extract from an IPv6 address.
fn embedded_ipv4(address: Ipv6Addr) -> [Option<Ipv4Addr>; 6] {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let tail = Ipv4Addr::from_bits(u32::from(g) << 16 | u32::from(h));
    let compatible = ([a, b, c, d, e, f] == [0; 6]).then_some(tail);
    let local_nat64 = ([a, b, c] == [0x64, 0xff9b, 1]).then_some(tail);
    let six_to_four = (a == 0x2002).then_some(Ipv4Addr::from_bits(u32::from(b) << 16 | u32::from(c)));
    let teredo = ([a, b] == [0x2001, 0]).then_some(Ipv4Addr::from_bits(!tail.to_bits()));
    [nat64(address), compatible, local_nat64, six_to_four, teredo, isatap(address)]
}

/// The well-known prefix of RFC 6052, `64:ff9b::/96`.
fn nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, g, h] => Some(Ipv4Addr::from_bits(u32::from(g) << 16 | u32::from(h))),
        _ => None,
    }
}

/// RFC 5214: an interface id of `0000:5efe` or `0200:5efe`, then the IPv4 address.
fn isatap(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [_, _, _, _, 0 | 0x200, 0x5efe, g, h] => Some(Ipv4Addr::from_bits(u32::from(g) << 16 | u32::from(h))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    const PUBLIC: &str = "\
        1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.0 172.15.255.255 172.32.0.0 192.0.1.0 \
        192.167.255.255 198.17.255.255 198.20.0.0 223.255.255.255 169.253.255.255 11.0.0.0 \
        2606:4700:4700::1111 2a00:1450:4001::1 2001:200::1 2620:4f:8001::1 3ffe::1 ::ffff:8.8.8.8 \
        64:ff9b::8.8.8.8";
    const SPECIAL: &str = "\
        0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.0 100.127.255.255 127.0.0.1 \
        127.255.255.254 169.254.0.1 169.254.169.254 172.16.0.0 172.31.255.255 192.0.0.1 192.0.0.9 \
        192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1 192.168.0.1 192.175.48.1 198.18.0.1 \
        198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 \
        :: ::1 ::7f00:1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:1.2.3.4 \
        64:ff9b::a9fe:a9fe 64:ff9b::10.0.0.1 64:ff9b:1::1 64:ff9b:1::8.8.8.8 100::1 100:0:0:1::1 \
        2001::1 2001:0:808:808:: 2001:2::1 2001:3::1 2001:4:112::1 2001:10::1 2001:20::1 2001:30::1 \
        2001:1ff::1 2001:db8::1 2002:7f00:1:: 2002:808:808::1 2620:4f:8000::1 3fff::1 3fff:fff::1 \
        5f00::1 4000::1 fc00::1 fd00:ec2::254 fe80::1 fe90::1 febf::1 fec0::1 ff02::1 \
        2a00::5efe:10.0.0.1 2a00::200:5efe:8.8.8.8";

    #[test]
    fn special_purpose_addresses_are_not_public() {
        for text in PUBLIC.split_whitespace() {
            assert_eq!(special_purpose(address(text)), None, "{text}");
        }
        for text in SPECIAL.split_whitespace() {
            assert!(special_purpose(address(text)).is_some(), "{text}");
        }
    }

    #[test]
    fn net_private_allows_private_networks() {
        let private = nets(&["127.0.0.1/32", "10.1.0.0/16", "fd12::/16"]);
        for (text, allowed) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.2", false),
            ("10.1.255.1", true),
            ("10.2.0.1", false),
            ("::1", false),
            ("fd12::1", true),
            ("64:ff9b::10.1.0.1", false),
            ("8.8.8.8", true),
        ] {
            assert_eq!(check_address("x", address(text), &private).is_ok(), allowed, "{text}");
        }
    }

    #[test]
    fn a_metadata_service_needs_its_exact_address() {
        let wide = nets(&["0.0.0.0/0", "::/0"]);
        for text in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "2a00::5efe:169.254.169.254",
            "2001::5601:5601",
            "fd00:ec2::254",
            "100.100.100.200",
            "168.63.129.16",
            "169.254.170.2",
        ] {
            let found = check_address("x", address(text), &wide);
            assert!(matches!(found, Err(AddressError::Metadata(_))), "{text}: {found:?}");
        }
        assert_eq!(check_address("x", address("169.254.1.1"), &wide), Ok(()));
        assert_eq!(check_address("x", address("169.254.169.254"), &nets(&["169.254.169.254/32"])), Ok(()));
        assert_eq!(
            check_address("x", address("::ffff:169.254.169.254"), &nets(&["169.254.169.254/32"])),
            Ok(())
        );
        assert!(check_address("metadata.google.internal", address("8.8.8.8"), &wide).is_err());
        assert_eq!(
            check_address("metadata.google.internal", address("10.0.0.1"), &nets(&["10.0.0.1/32"])),
            Ok(())
        );
    }
}
