//! The port of a proxy: the one in its manifest, or else any free one.
//!
//! Clients are configured with the port of a manifest. If another process has it, no client would find a proxy on
//! another port, and clients would take the other process for the server: that is an error which names the process.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::net::SocketAddr;

use skep_proxy::run::{Error, Place, Ports, Running, start};

use super::local_proxy::LocalProxy;
use super::{GRACE, demo, holder};

/// Which proxy has a port by its manifest: the first that sets it.
pub(super) type ClaimedPorts = BTreeMap<u16, Claim>;

/// A proxy and where its manifest is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claim {
    label: String,
    place: String,
}

/// The ports that manifests set.
pub(super) fn given(proxies: &[LocalProxy]) -> ClaimedPorts {
    let mut given = ClaimedPorts::new();
    for proxy in proxies {
        if let Some(claim) = Claim::of(proxy) {
            given.entry(proxy.settings.listen.port()).or_insert(claim);
        }
    }
    given
}

/// Binds the port of a proxy and starts it.
pub(super) async fn open(proxy: &LocalProxy, ports: &Ports, given: &ClaimedPorts) -> Result<Running, String> {
    let mut settings = proxy.settings.clone();
    let first = given.get(&settings.listen.port());
    match (Claim::of(proxy), first) {
        (Some(own), Some(first)) if own != *first => return Err(own.conflict(first, settings.listen)),
        // A port in another manifest belongs to that proxy, whichever is started first.
        (None, Some(_)) => settings.listen.set_port(0),
        _ => {}
    }
    let place = || Place::Machine(ports.clone());
    let opened = match start(&settings, &proxy.environment, place(), GRACE).await {
        Err(error) if is_in_use(&error) && proxy.port_given_at.is_some() => {
            return Err(match holder::of(settings.listen) {
                Some(holder) => taken(proxy, &holder.to_string()),
                None => error.to_string(),
            });
        }
        Err(error) if is_in_use(&error) => {
            settings.listen.set_port(0);
            start(&settings, &proxy.environment, place(), GRACE).await
        }
        other => other,
    };
    opened.map_err(|error| error.to_string())
}

/// Whether a port cannot be bound because another process has it. A lack of permission, or an address that this machine
/// does not have, is another error.
fn is_in_use(error: &Error) -> bool {
    let Error::Bind { error } = error else { return false };
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::AddrInUse)
}

fn taken(proxy: &LocalProxy, by: &str) -> String {
    let is_demo = proxy.port_given_at.as_ref().is_some_and(|place| place.file() == demo::ORIGIN);
    let field = if is_demo { "with --port" } else { "in spec.proxyPort" };
    format!("port {} is in use by {by}; stop it, or choose another port {field}", proxy.settings.listen.port())
}

// === impl Claim ===

impl Claim {
    fn of(proxy: &LocalProxy) -> Option<Self> {
        let place = proxy.port_given_at.as_ref()?;
        Some(Self { label: format!("{} `{}`", proxy.entry.kind, proxy.entry.label()), place: place.to_string() })
    }

    /// Why a proxy cannot have the port of the first.
    fn conflict(&self, first: &Self, address: SocketAddr) -> String {
        let Self { label, place } = first;
        let port = address.port();
        format!(
            "port {port} is given twice: here ({}) and to {label} ({place}); give each its own spec.proxyPort",
            self.place
        )
    }
}

#[cfg(test)]
mod tests {
    use skep_net::serve::Listener;

    use super::*;

    #[tokio::test]
    async fn only_a_port_that_another_process_has_is_in_use() {
        let first = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let taken = Listener::bind(first.address()).await.unwrap_err();
        assert!(is_in_use(&Error::Bind { error: taken }));
        // An address for documentation, which no machine has.
        let foreign = Listener::bind("192.0.2.1:0".parse().unwrap()).await.unwrap_err();
        assert!(!is_in_use(&Error::Bind { error: foreign }));
        assert!(!is_in_use(&Error::Sessions("none".to_owned())));
    }
}
