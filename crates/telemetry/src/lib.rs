//! What a proxy records about requests: the audit log, traces, and metrics for a collector.
//!
//! ```text
//!   facts of a request ─▶ audit::Event ─▶ one JSON line ─▶ bounded queue ─▶ writer thread ─▶ stdout, stderr or a file
//!                      └▶ trace::SpanFacts ─▶ span ─▶ otlp::Traces, a bounded queue ─┬▶ otlp::Collector, over HTTP
//!                         numbers ─▶ otlp::ExportedMetrics, aggregated ─────────────┘
//!   bytes of a response ─▶ audit::ReplyScan ─▶ the JSON-RPC error in it, if there is one
//! ```
//!
//! Events and attributes are built from facts by pure code; only [`audit::AuditLog`] and [`otlp`] touch the clock, files and the network.
//! This crate knows nothing of the middleware chain or of policies, and it never decides about a request nor lets one wait.

pub mod audit;
pub mod otlp;
pub mod trace;

pub use opentelemetry::KeyValue;
