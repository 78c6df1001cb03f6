//! The table of address blocks.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an address leads, the least harmful first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The public internet.
    Public,
    /// A block that is set aside for other uses: documentation, benchmarks, translation, experiments.
    Reserved,
    /// A private network: that of the cluster, of a company, of a carrier.
    Private,
    /// This machine or, in a pod, this pod.
    Loopback,
    /// A group of machines.
    Multicast,
    /// The machines on the same wire.
    LinkLocal,
    /// No address: the kernel takes it for this machine.
    Unspecified,
    /// The service of a cloud that hands out the credentials of the machine.
    Metadata,
}

/// IPv4 blocks: the first address, the length of the prefix, and where it leads.
const V4: &[(Ipv4Addr, u32, Scope)] = &[
    (Ipv4Addr::UNSPECIFIED, 8, Scope::Unspecified),           // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8, Scope::Private),          // RFC 1918
    (Ipv4Addr::new(100, 64, 0, 0), 10, Scope::Private), // carrier-grade NAT, overlay networks, pods of some clouds
    (Ipv4Addr::new(100, 100, 100, 200), 32, Scope::Metadata), // Alibaba
    (Ipv4Addr::new(127, 0, 0, 0), 8, Scope::Loopback),  // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32, Scope::Metadata), // host services of Azure, which look public
    (Ipv4Addr::new(169, 254, 0, 0), 16, Scope::LinkLocal), // link-local
    (Ipv4Addr::new(169, 254, 169, 254), 32, Scope::Metadata), // most clouds
    (Ipv4Addr::new(169, 254, 170, 2), 32, Scope::Metadata), // tasks of Amazon ECS
    (Ipv4Addr::new(169, 254, 170, 23), 32, Scope::Metadata), // pod identities of Amazon EKS
    (Ipv4Addr::new(172, 16, 0, 0), 12, Scope::Private), // RFC 1918
    (Ipv4Addr::new(192, 0, 0, 0), 24, Scope::Reserved), // protocol assignments
    (Ipv4Addr::new(192, 0, 0, 192), 32, Scope::Metadata), // Oracle
    (Ipv4Addr::new(192, 0, 2, 0), 24, Scope::Reserved), // documentation
    (Ipv4Addr::new(192, 168, 0, 0), 16, Scope::Private), // RFC 1918
    (Ipv4Addr::new(198, 18, 0, 0), 15, Scope::Reserved), // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24, Scope::Reserved), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24, Scope::Reserved), // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4, Scope::Multicast), // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4, Scope::Reserved),  // class E; pods of some clusters have such addresses
    (Ipv4Addr::BROADCAST, 32, Scope::Multicast),        // broadcast
];

/// IPv6 blocks, in the same way.
const V6: &[(Ipv6Addr, u32, Scope)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, Scope::Unspecified),
    (Ipv6Addr::LOCALHOST, 128, Scope::Loopback),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Scope::Private), // NAT64 inside one network
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, Scope::Reserved),    // discard
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, Scope::Reserved),   // Teredo
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Scope::Reserved), // documentation
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Scope::Reserved),   // documentation
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, Scope::Reserved),   // segment routing
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Scope::Private),     // unique local
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32, Scope::Metadata), // Amazon: ::254, ::23 and the like
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, Scope::Metadata), // Google
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Scope::LinkLocal),  // link-local
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Scope::Private),    // site-local, deprecated
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Scope::Multicast),   // multicast
];

/// IPv6 blocks that carry an IPv4 address: how many bits stand behind it, and what its bits are combined with.
const CARRIERS: &[(Ipv6Addr, u32, u32, u32)] = &[
    (Ipv6Addr::UNSPECIFIED, 96, 0, 0),                      // IPv4-compatible, deprecated
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, 0, 0), // IPv4-mapped
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, 0, 0), // IPv4-translated
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, 0, 0), // NAT64
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, 0, 0), // NAT64 inside one network, as it is mostly set up
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, 0, u32::MAX), // Teredo: the client, inverted
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 80, 0), // 6to4
];

/// Where an address leads. One that is in several blocks, or carries another one, is what the most harmful of them is.
pub fn scope_of(address: IpAddr) -> Scope {
    match address {
        IpAddr::V4(address) => scope_of_v4(address),
        IpAddr::V6(address) => scope_of_v6(address),
    }
}

fn scope_of_v4(address: Ipv4Addr) -> Scope {
    let inside =
        |(block, bits, _): &&(Ipv4Addr, u32, Scope)| (address.to_bits() ^ block.to_bits()).leading_zeros() >= *bits;
    V4.iter().filter(inside).map(|(_, _, scope)| *scope).max().unwrap_or(Scope::Public)
}

fn scope_of_v6(address: Ipv6Addr) -> Scope {
    let is_inside = |block: Ipv6Addr, bits: u32| (address.to_bits() ^ block.to_bits()).leading_zeros() >= bits;
    let own = V6.iter().filter(|(block, bits, _)| is_inside(*block, *bits)).map(|(_, _, scope)| *scope).max();
    if let Some(own @ (Scope::Unspecified | Scope::Loopback)) = own {
        // These two stand in the block of IPv4-compatible addresses, and carry none.
        return own;
    }
    let carriers = CARRIERS.iter().filter(|(block, bits, _, _)| is_inside(*block, *bits));
    let carried = carriers.map(|(_, _, behind, inverted)| {
        #[expect(clippy::cast_possible_truncation, reason = "the lower 32 bits are the IPv4 address")]
        let inner = (address.to_bits() >> behind) as u32;
        scope_of_v4(Ipv4Addr::from_bits(inner ^ inverted))
    });
    own.into_iter().chain(carried).max().unwrap_or(Scope::Public)
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Public => "public",
            Self::Reserved => "reserved",
            Self::Private => "private",
            Self::Loopback => "loopback",
            Self::Multicast => "multicast",
            Self::LinkLocal => "link-local",
            Self::Unspecified => "unspecified",
            Self::Metadata => "metadata service",
        })
    }
}
