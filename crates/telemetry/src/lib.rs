//! What a proxy records about requests: the audit log.
//!
//! ```text
//!   facts of a request ─▶ audit::Event ─▶ one JSON line ─▶ bounded queue ─▶ writer thread ─▶ stdout, stderr or a file
//!   bytes of a response ─▶ audit::ReplyScan ─▶ the JSON-RPC error in it, if there is one
//! ```
//!
//! Events are built from facts by pure code; only [`audit::AuditLog`] touches the clock and files. This crate knows nothing of HTTP, of
//! the middleware chain, or of policies, and it never decides about a request.

pub mod audit;
