//! The certificates of the cluster, made once per directory.

use std::fs;

use anyhow::{Context as _, Result};
use skep_testkit::kubeconfig;
use skep_testkit::pki::{Authority, TokenKeys};

use super::layout::{APISERVER, FIRST_SERVICE, Layout, NODE, NODE_ADDRESS};

/// Creates certificates and kubeconfigs unless they exist. The last file that is created is the one that is checked.
pub(super) fn make(layout: &Layout) -> Result<()> {
    if layout.kubeconfig().exists() {
        return Ok(());
    }
    let authority = Authority::generate()?;
    let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"];
    let addresses = ["127.0.0.1", FIRST_SERVICE, NODE_ADDRESS];
    let apiserver = authority.issue("kube-apiserver", None, &[&names[..], &addresses[..]].concat())?;
    let admin = authority.issue("admin", Some("system:masters"), &[])?;
    let kubelet = authority.issue(&format!("system:node:{NODE}"), Some("system:nodes"), &[NODE, NODE_ADDRESS])?;
    let tokens = TokenKeys::generate()?;
    for (name, text) in [
        ("ca.crt", &authority.certificate()),
        ("apiserver.crt", &apiserver.certificate),
        ("apiserver.key", &apiserver.key),
        ("admin.crt", &admin.certificate),
        ("admin.key", &admin.key),
        ("kubelet.crt", &kubelet.certificate),
        ("kubelet.key", &kubelet.key),
        ("tokens.pub", &tokens.public),
        ("tokens.key", &tokens.private),
    ] {
        fs::write(layout.pki(name), text).with_context(|| format!("cannot write the cluster's `{name}`"))?;
    }
    for (path, identity) in [(layout.file("kubelet.kubeconfig"), &kubelet), (layout.kubeconfig(), &admin)] {
        let text = kubeconfig(APISERVER, &authority.certificate(), identity).to_string();
        fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}
