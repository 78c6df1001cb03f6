//! What tests stand on: a real Kubernetes API, and nothing that imitates one.
//!
//! This crate owns
//! - [`assets`]: where etcd, kube-apiserver, kubectl, Helm and the rest come from on this machine;
//! - [`pki`]: the throw-away certificates those programs want;
//! - [`ControlPlane`]: etcd and kube-apiserver on loopback, ready in about three seconds, gone when the test is;
//! - [`eventually`]: the one way to wait, on a condition and with a deadline.
//!
//! ```text
//!   test process ──pipe──▶ reaper (sh)          the pipe closes when the test process is gone, however it went
//!        │                    │ SIGKILL
//!        └──spawns──▶ [ process group: anchor, etcd, kube-apiserver ]  + one temporary directory
//! ```
//!
//! A control plane here has no controllers: nothing collects garbage, finishes the deletion of a namespace, starts a
//! pod, makes the `default` service account or fills the aggregated roles `admin`, `edit` and `view`. Tests that need
//! those are end-to-end tests.
//!
//! It never reaches beyond loopback, never touches a cluster that it did not start, and never panics: it returns errors
//! for the test to show.

pub mod assets;
mod command;
mod kubeconfig;
pub mod pki;
mod plane;
mod process;
mod wait;

pub use command::Output;
pub use kubeconfig::kubeconfig;
pub use plane::{Builder, ControlPlane};
pub use process::is_alive;
pub use wait::{Seen, eventually};

/// Makes aws-lc-rs the process's TLS backend. Every entry of this crate does it; calling it again changes nothing.
pub fn install_crypto_provider() {
    // An error means that a provider is installed already, which is all we want.
    let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
