//! The documents that the planes exchange: what the operator writes into a ConfigMap, and the data plane reads from it.
//!
//! This crate owns their form: keys, order, what is left out when empty, and every byte of their text. It never decides
//! what goes into them (the plan does) and never acts on them (the proxy does); it reads no file and knows no Kubernetes.
//!
//! ```text
//!   plan ──▶ RunConfig ───────────────▶ runconfig.json          ──▶ proxy
//!        ──▶ VirtualDocument ─────────▶ config.yaml             ──▶ virtual server
//!        ──▶ EmbeddedAuthServerConfig ▶ authserver-config.yaml  ──▶ authorization server
//! ```
//!
//! The documents are those of another system, whose operator and proxies can stand on either side of them, so their
//! text is exactly what that system writes. [`json`] is the ordered JSON under all of them, [`document`] how one is
//! declared.

pub mod auth_server;
pub mod document;
pub mod duration;
pub mod feature;
pub mod json;
pub mod middleware;
pub mod parameters;
pub mod run_config;
pub mod virtual_document;
mod yaml;

pub use auth_server::EmbeddedAuthServerConfig;
pub use document::{DocumentError, Field};
pub use duration::{DurationError, GoDuration};
pub use json::{Json, JsonError, Members};
pub use run_config::RunConfig;
pub use virtual_document::VirtualDocument;
