//! The network namespace: loopback, one bridge, and no way out.

use std::process::Command;

use anyhow::{Context as _, Result};

use super::layout::{BRIDGE, Layout, NAMESPACE, NODE_ADDRESS, SERVICES};
use crate::program::capture;

/// Creates the namespace unless it exists.
pub(super) fn make() -> Result<()> {
    if !exists() {
        ip(&["netns", "add", NAMESPACE])?;
    }
    let inside = |arguments: &[&str]| ip(&[&["-n", NAMESPACE], arguments].concat());
    inside(&["link", "set", "lo", "up"])?;
    if inside(&["link", "show", BRIDGE]).is_err() {
        inside(&["link", "add", BRIDGE, "type", "bridge"])?;
    }
    inside(&["addr", "replace", &format!("{NODE_ADDRESS}/16"), "dev", BRIDGE])?;
    inside(&["link", "set", BRIDGE, "up"])?;
    // Service addresses are rewritten by kube-proxy before they get anywhere, but the kernel wants a route for them.
    inside(&["route", "replace", SERVICES, "dev", BRIDGE])
}

/// Removes the namespace and with it the bridge and every rule in it.
pub(super) fn remove() -> Result<()> {
    if exists() { ip(&["netns", "delete", NAMESPACE]) } else { Ok(()) }
}

fn exists() -> bool {
    Layout::network().exists()
}

fn ip(arguments: &[&str]) -> Result<()> {
    capture(Command::new("ip").args(arguments)).context("cannot set up the cluster's network").map(drop)
}
