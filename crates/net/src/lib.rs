//! Inbound and outbound HTTP.
//!
//! This crate owns
//! - [`serve`]: the listener, its time limits and the accept loop; [`drain`]: graceful shutdown;
//! - [`body`]: the one body type of requests and responses, and reading a body up to a limit; [`budget`]: the limit on
//!   buffered bytes;
//! - [`client`]: the one outbound client, which checks every address that it dials ([`Addresses`]), and HTTP proxies in [`proxies`];
//! - [`headers`] and [`redirect`]: what a reverse proxy does to headers and redirects, as pure functions;
//! - [`tls`]: certificates and keys from PEM, and the settings of both sides.
//!
//! ```text
//!   client ──▶ Listener ─▶ serve ─▶ handler(Request<Incoming>, Peer) ─▶ Response<Body>
//!                │ drain ▲               │
//!                └───────┘               └─▶ Client ─▶ pool ─▶ resolve ▶ address rule ▶ connect ▶ TLS ─▶ backend
//! ```
//!
//! It knows nothing of MCP, never reads the environment or the command line, and never follows a redirect by itself.

pub mod body;
pub mod budget;
pub mod client;
pub mod drain;
pub mod headers;
mod io;
pub mod proxies;
pub mod redirect;
pub mod serve;
pub mod tls;

pub use body::{Body, BodyError, BodySender, BodyWatch};
pub use budget::Budget;
pub use client::Client;
pub use drain::Drain;
pub use serve::{Listener, Peer, serve};
pub use skep_address::{Addresses, Scope};

/// An error of any type that is `Send` and `Sync`.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
