use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::name::{in_namespace, is_of_cluster};
use super::*;

fn scope(address: &str) -> Scope {
    scope_of(address.parse().unwrap())
}

#[test]
fn addresses_lead_where_the_table_says() {
    for (expected, addresses) in [
        (
            Scope::Metadata,
            &[
                "169.254.169.254",
                "169.254.170.2",
                "100.100.100.200",
                "168.63.129.16",
                "192.0.0.192",
                "fd00:ec2::254",
                "fd20:ce::254",
                "::ffff:169.254.169.254",
                "::169.254.169.254",
                "::ffff:0:169.254.169.254",
                "64:ff9b::169.254.169.254",
                "64:ff9b:1::169.254.169.254",
                "2002:a9fe:a9fe::1",
                "::ffff:100.100.100.200",
            ][..],
        ),
        (Scope::Unspecified, &["0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0", "64:ff9b::"]),
        (Scope::LinkLocal, &["169.254.0.1", "169.254.255.255", "fe80::1", "febf::1", "::ffff:169.254.1.1"]),
        (Scope::Multicast, &["224.0.0.1", "239.255.255.255", "255.255.255.255", "ff02::1"]),
        (Scope::Loopback, &["127.0.0.1", "127.255.255.254", "::1", "::7f00:1", "::ffff:127.0.0.1", "2002:7f00:1::"]),
        (
            Scope::Private,
            &[
                "10.0.0.1",
                "100.64.0.1",
                "100.127.255.255",
                "172.16.0.1",
                "172.31.255.255",
                "192.168.1.1",
                "fc00::1",
                "fd12::1",
                "fec0::1",
                "::ffff:10.1.2.3",
                "::ffff:0:10.0.0.1",
                "64:ff9b:1::8.8.8.8",
            ],
        ),
        (
            Scope::Reserved,
            &[
                "192.0.2.1",
                "192.0.0.1",
                "198.18.0.1",
                "198.19.255.255",
                "198.51.100.7",
                "203.0.113.9",
                "240.0.0.1",
                "100::1",
                "2001:0:1::f7f7:f7f7",
                "2001:db8::1",
                "3fff::1",
                "5f00::1",
            ],
        ),
        (
            Scope::Public,
            &[
                "1.1.1.1",
                "8.8.8.8",
                "11.0.0.1",
                "100.63.255.255",
                "100.128.0.1",
                "126.255.255.255",
                "128.0.0.1",
                "168.63.129.15",
                "169.253.255.255",
                "169.255.0.1",
                "172.15.255.255",
                "172.32.0.1",
                "192.0.1.1",
                "192.167.255.255",
                "198.17.255.255",
                "198.20.0.1",
                "223.255.255.255",
                "2606:4700::1111",
                "2001:4860:4860::8888",
                "::ffff:8.8.8.8",
                "64:ff9b::8.8.8.8",
                "2002:808:808::1",
            ],
        ),
    ] {
        for address in addresses {
            assert_eq!(scope(address), expected, "{address}");
        }
    }
}

#[test]
fn well_known_names_need_no_resolving() {
    for (name, expected) in [
        ("localhost", Some(Scope::Loopback)),
        ("LOCALHOST.", Some(Scope::Loopback)),
        ("a.localhost", Some(Scope::Loopback)),
        ("metadata", Some(Scope::Metadata)),
        ("Metadata.", Some(Scope::Metadata)),
        ("metadata.google.internal", Some(Scope::Metadata)),
        ("x.metadata.google.internal.", Some(Scope::Metadata)),
        ("s.ns.svc.cluster.local", Some(Scope::Private)),
        ("a.metadata", None),
        ("metadata.ns", None),
        ("notlocalhost", None),
        ("mcp.example.com", None),
        ("my-cluster.localdomain", None),
    ] {
        assert_eq!(scope_of_name(name), expected, "{name}");
    }
}

#[test]
fn only_names_of_the_cluster_are_of_the_cluster() {
    for name in ["s.ns.svc", "S.NS.SVC.", "a.svc"] {
        assert!(is_of_cluster(name), "{name}");
    }
    // A search domain of the node may complete a single part, so it is not of the cluster by itself.
    for name in ["", "s", "a-b", "svc", ".svc", "s.ns", "evil.example", "svc.example", "10.0.0.1", "::1", "xsvc.com"] {
        assert!(!is_of_cluster(name), "{name}");
    }
}

#[test]
fn a_single_part_is_a_service_of_the_namespace_and_nothing_else() {
    assert_eq!(in_namespace("server", "team-a").as_deref(), Some("server.team-a.svc"));
    for host in ["", "s.ns", "server.", "localhost", "metadata", "instance-data", "2130706433", "::1", "a_b"] {
        assert_eq!(in_namespace(host, "team"), None, "{host}");
    }
    assert_eq!(in_namespace("server", ""), None);
}

/// Item 17-12: the policies, as the documentation has them.
#[test]
fn the_policies_are_those_of_the_table() {
    use Scope::{LinkLocal, Loopback, Metadata, Multicast, Private, Public, Reserved, Unspecified};
    let all = [Public, Reserved, Private, Loopback, Multicast, LinkLocal, Unspecified, Metadata];
    for (policy, allowed) in [
        (Addresses::Machine, &[Public, Reserved, Private, Loopback][..]),
        (Addresses::Cluster, &[Public, Reserved, Private]),
        (Addresses::PublicOnly, &[Public]),
    ] {
        for scope in all {
            assert_eq!(policy.allow(scope), allowed.contains(&scope), "{policy:?} {scope}");
        }
    }
    assert_eq!(Addresses::Machine.check_host("[::ffff:169.254.169.254]"), Err(Metadata));
    assert_eq!(Addresses::Machine.check_host("metadata"), Err(Metadata));
    assert_eq!(Addresses::Cluster.check_host("localhost"), Err(Loopback));
    assert_eq!(Addresses::PublicOnly.check_host("10.0.0.1"), Err(Private));
    assert_eq!(Addresses::PublicOnly.check_host("mcp.example.com"), Ok(()));
}

/// All the ways in which IPv6 can carry an IPv4 address.
fn carried(address: Ipv4Addr) -> Vec<Ipv6Addr> {
    let bits = u128::from(address.to_bits());
    let in_front = |high: u128| Ipv6Addr::from_bits(high << 32 | bits);
    vec![
        address.to_ipv6_mapped(),
        in_front(0),
        in_front(0xffff_0000),
        in_front(0x0064_ff9b << 64),
        in_front(0x0064_ff9b_0001 << 48),
        Ipv6Addr::from_bits(0x2002 << 112 | bits << 80 | 1),
        Ipv6Addr::from_bits(0x2001 << 112 | u128::from(!address.to_bits())),
    ]
}

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    let near = |block: [u8; 4], bits: u32| {
        any::<u32>().prop_map(move |noise| {
            let mask = u32::MAX.checked_shr(bits).unwrap_or_default();
            Ipv4Addr::from_bits(u32::from_be_bytes(block) | (noise & mask))
        })
    };
    prop_oneof![
        any::<u32>().prop_map(Ipv4Addr::from_bits),
        near([169, 254, 0, 0], 16),
        near([169, 254, 169, 254], 32),
        near([100, 100, 100, 200], 32),
        near([0, 0, 0, 0], 8),
        near([127, 0, 0, 0], 8),
        near([10, 0, 0, 0], 8),
        near([192, 168, 0, 0], 16),
    ]
}

proptest! {
    /// Item 17-12: no form of an address reaches what the address itself does not.
    #[test]
    fn another_form_of_an_address_is_never_more_harmless(address in v4()) {
        let plain = scope_of(IpAddr::V4(address));
        for form in carried(address) {
            let scope = scope_of(IpAddr::V6(form));
            // `::` and `::1` carry no address.
            let is_own = matches!(form, Ipv6Addr::UNSPECIFIED | Ipv6Addr::LOCALHOST);
            prop_assert!(is_own || scope >= plain, "{} is {}, and {} is {}", address, plain, form, scope);
            for policy in [Addresses::Machine, Addresses::Cluster, Addresses::PublicOnly] {
                prop_assert!(is_own || policy.allow(plain) || !policy.allow(scope), "{policy:?} {form}");
                prop_assert_eq!(policy.check_host(&form.to_string()), policy.check_host(&format!("[{form}]")));
            }
        }
    }

    #[test]
    fn link_local_and_metadata_addresses_are_refused_everywhere(low in any::<u16>(), rest in any::<u64>()) {
        let [third, fourth] = low.to_be_bytes();
        let link_local = IpAddr::V4(Ipv4Addr::new(169, 254, third, fourth));
        let link_local_v6 = IpAddr::V6(Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(rest)));
        for policy in [Addresses::Machine, Addresses::Cluster, Addresses::PublicOnly] {
            prop_assert!(policy.check(link_local).is_err() && policy.check(link_local_v6).is_err());
        }
    }
}
