//! What the machine must be and have.

use std::path::Path;

use anyhow::{Result, bail};

use crate::host;
use crate::program::is_installed;

/// Where distributions put the network plugins.
const PLUGIN_PLACES: &[&str] = &["/usr/lib/cni", "/opt/cni/bin"];

/// A program, and Debian's package for it.
const PROGRAMS: &[(&str, &str)] = &[
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("iptables", "iptables"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("setsid", "util-linux"),
];

/// Refuses machines that cannot hold a cluster.
pub(super) fn check_host() -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!("a cluster needs Linux: set KUBECONFIG to a cluster elsewhere and run `cargo xtask e2e`");
    }
    if !host::is_root() {
        bail!(
            "a cluster needs root, for network namespaces and containers: run this as root, or set KUBECONFIG to \
               another cluster and run `cargo xtask e2e`"
        );
    }
    Ok(())
}

/// Installs what is missing.
pub(super) fn install() -> Result<()> {
    let mut missing: Vec<&str> =
        PROGRAMS.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect();
    if plugins().is_none() {
        missing.push("containernetworking-plugins");
    }
    missing.dedup();
    if missing.is_empty() { Ok(()) } else { host::install(&missing) }
}

/// The directory of the network plugins.
pub(super) fn plugins() -> Option<&'static str> {
    PLUGIN_PLACES.iter().copied().find(|place| Path::new(place).join("bridge").is_file())
}
