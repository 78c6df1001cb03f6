//! Where an address or a host name leads, and which of them may be dialled. Pure: nothing is resolved here.
//!
//! There is one table of address blocks ([`scope`]) and one of names ([`name`]), and one policy over both ([`Addresses`]). The
//! planner checks manifests with them, and the outbound client checks what a name resolved to when it connects, so the two
//! cannot disagree.
//!
//! | scope | on one machine | in a pod | public only |
//! | --- | --- | --- | --- |
//! | public | yes | yes | yes |
//! | private, and reserved for other uses | yes | yes | no |
//! | loopback | yes | no | no |
//! | link-local, metadata service, unspecified, multicast | no | no | no |

pub mod name;
pub mod scope;

use core::net::IpAddr;

pub use self::name::scope_of_name;
pub use self::scope::{Scope, scope_of};

/// What may be dialled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    /// Everything but link-local, metadata, unspecified and multicast addresses: for a program on the user's machine, whose loopback
    /// addresses are the user's servers.
    #[default]
    Machine,
    /// The same without loopback: for a pod, whose loopback addresses are what else runs in it. Services and pods are private addresses.
    Cluster,
    /// Addresses of the public internet only: for targets that should not lead into the network that the program is in.
    PublicOnly,
}

// === impl Addresses ===

impl Addresses {
    /// Whether addresses of this scope may be dialled.
    pub const fn allow(self, scope: Scope) -> bool {
        match scope {
            Scope::Public => true,
            Scope::Reserved | Scope::Private => matches!(self, Self::Machine | Self::Cluster),
            Scope::Loopback => matches!(self, Self::Machine),
            Scope::Multicast | Scope::LinkLocal | Scope::Unspecified | Scope::Metadata => false,
        }
    }

    /// Checks an address; an error is the scope that may not be dialled.
    pub fn check(self, address: IpAddr) -> Result<(), Scope> {
        self.check_scope(scope_of(address))
    }

    /// Checks what is known of a host without resolving it: an address, with or without brackets, or a well-known name. What is not
    /// known passes: its addresses are checked when it is resolved.
    pub fn check_host(self, host: &str) -> Result<(), Scope> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(address) => self.check(address),
            Err(_name) => scope_of_name(host).map_or(Ok(()), |scope| self.check_scope(scope)),
        }
    }

    const fn check_scope(self, scope: Scope) -> Result<(), Scope> {
        if self.allow(scope) { Ok(()) } else { Err(scope) }
    }
}

#[cfg(test)]
mod tests;
