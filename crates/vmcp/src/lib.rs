//! The virtual server: many MCP servers behind one endpoint.
//!
//! ```text
//!   clients ─▶ skep-proxy (router, chain, endpoints) ─▶ VirtualUpstream ─┬─▶ Upstream of backend a
//!                                                        │               ├─▶ Upstream of backend b
//!                                     Views ◀────────────┘               └─▶ …
//!                                       ▲
//!                     aggregate (pure) ◀┴─ Offers: the last good catalogue of each backend
//! ```
//!
//! It is an [`Upstream`](skep_upstream::Upstream) like any other: authentication, policy, limits, webhooks, audit and traces are the proxy's,
//! and apply to the names that clients see. No backend delays another one, or the handshake of a client.

pub mod aggregate;
pub mod backend;
pub mod backends;
pub mod catalogue;
pub mod composite;
pub mod config;
pub mod credentials;
pub mod discover;
pub mod health;
pub mod instruments;
pub mod metrics;
pub mod offer;
pub mod optimizer;
pub mod pages;
pub mod report;
pub mod run;
pub mod upstream;
pub mod view;
