//! The configuration files of the node's programs, as text.

use anyhow::{Context as _, Result};
use serde_json::json;

use super::layout::{BRIDGE, FIRST_POD, Layout, NODE_ADDRESS, PAUSE_IMAGE, PODS};
use super::requirements;

/// Every configuration file: where it goes and what is in it.
pub(super) fn all(layout: &Layout) -> Result<[(&'static str, String); 5]> {
    let plugins = requirements::plugins().context("the network plugins are not installed")?;
    Ok([
        ("cni/10-skep.conflist", network(layout)),
        ("containerd.toml", containerd(layout, plugins)),
        ("kubelet.json", kubelet(layout)),
        ("resolv.conf", format!("nameserver {NODE_ADDRESS}\n")),
        ("Corefile", dns(layout)),
    ])
}

/// How a pod gets its address.
fn network(layout: &Layout) -> String {
    json!({
        "cniVersion": "1.0.0",
        "name": "skep",
        "plugins": [{
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": PODS, "rangeStart": FIRST_POD }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
                "dataDir": layout.text("cni/addresses"),
            },
        }],
    })
    .to_string()
}

fn containerd(layout: &Layout, plugins: &str) -> String {
    let (root, state) = (layout.text("containerd/root"), layout.text("containerd/state"));
    let (socket, networks) = (layout.text("containerd.sock"), layout.text("cni"));
    // Pods' network namespaces are mounted below the state directory, so that they go with it. The scores of the
    // out-of-memory killer cannot be lowered without a capability that containers lack.
    format!(
        r#"version = 2
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{networks}"
"#
    )
}

fn kubelet(layout: &Layout) -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": layout.pki("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDomain": "cluster.local",
        "clusterDNS": [NODE_ADDRESS],
        // Pods that ask for the node's own resolver get ours, not one that they cannot reach.
        "resolvConf": layout.text("resolv.conf"),
        "containerRuntimeEndpoint": format!("unix://{}", layout.text("containerd.sock")),
        "tlsCertFile": layout.pki("kubelet.crt"),
        "tlsPrivateKeyFile": layout.pki("kubelet.key"),
        "enforceNodeAllocatable": [],
        // The disk of a developer's machine is allowed to be nearly full.
        // Images are not fetched again: none may be thrown away to make room.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": { "memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
        "podLogsDir": layout.text("pod-logs"),
        "oomScoreAdj": 0,
    })
    .to_string()
}

fn dns(layout: &Layout) -> String {
    let kubeconfig = layout.kubeconfig().display().to_string();
    format!(
        ".:53 {{\n  bind {NODE_ADDRESS}\n  kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {kubeconfig}\n  }}\n  \
         cache 5\n  errors\n}}\n"
    )
}
