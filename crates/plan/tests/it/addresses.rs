//! However an address is written, a remote URL with it is validated the same.

use core::net::Ipv4Addr;

use proptest::prelude::*;
use skep_plan::text::{UrlError, remote_url};
use skep_plan::world::Site;

/// The ways to write an IPv4 address that URLs know.
fn written(address: Ipv4Addr) -> Vec<String> {
    let (bits, [a, b, c, d]) = (address.to_bits(), address.octets());
    vec![
        address.to_string(),
        format!("{address}."),
        bits.to_string(),
        format!("0x{bits:x}"),
        format!("0{bits:o}"),
        format!("0x{a:x}.0{b:o}.{c}.{d}"),
        format!("{a}.{b}.{}", u32::from(c) << 8 | u32::from(d)),
        format!("[{}]", address.to_ipv6_mapped()),
        format!("[64:ff9b::{address}]"),
    ]
}

fn addresses() -> impl Strategy<Value = Ipv4Addr> {
    let blocks = prop_oneof![
        Just([169, 254]),
        Just([127, 0]),
        Just([0, 0]),
        Just([10, 1]),
        Just([192, 168]),
        Just([172, 16]),
        Just([100, 100]),
        Just([8, 8]),
    ];
    prop_oneof![
        any::<u32>().prop_map(Ipv4Addr::from_bits),
        (blocks, any::<u8>(), any::<u8>()).prop_map(|([a, b], c, d)| Ipv4Addr::new(a, b, c, d)),
        Just(Ipv4Addr::new(169, 254, 169, 254)),
        Just(Ipv4Addr::new(100, 100, 100, 200)),
    ]
}

/// What is found, without the text that it was found in.
fn verdict(host: &str, allow_private: bool, site: Site) -> &'static str {
    match remote_url(&format!("http://{host}/mcp"), allow_private, site) {
        Ok(_) => "ok",
        Err(UrlError::Forbidden(_)) => "forbidden",
        Err(UrlError::Private(_)) => "private",
        Err(_) => "no URL",
    }
}

proptest! {
    /// Item 17-12.
    #[test]
    fn every_form_of_an_address_is_validated_alike(address in addresses(), allow_private in any::<bool>(), machine in any::<bool>()) {
        let site = if machine { Site::Machine } else { Site::Cluster };
        let plain = verdict(&address.to_string(), allow_private, site);
        prop_assert_ne!(plain, "no URL");
        for form in written(address) {
            prop_assert_eq!(verdict(&form, allow_private, site), plain, "{}", form);
        }
        if address.is_link_local() || address.octets()[0] == 0 || address == Ipv4Addr::new(100, 100, 100, 200) {
            prop_assert_eq!(plain, "forbidden");
        }
    }
}
