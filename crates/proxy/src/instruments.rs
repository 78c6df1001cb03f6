//! What an upstream that composes others records by itself: how often it called which, what its parts did.
//!
//! The proxy connects it to what it records requests with, before it takes the first one.

use std::fmt::Debug;

use prometheus_client::registry::Registry;
use skep_telemetry::audit::AuditSink;
use skep_telemetry::otlp::Traces;

/// An upstream that counts and records.
pub trait Instruments: Debug + Send + Sync {
    /// Shows what it counts on the page of the proxy.
    fn register(&self, registry: &mut Registry);

    /// Gets what the proxy records requests with. Called once, and before the first request.
    fn connect(&self, recorders: Recorders);
}

/// What a proxy records requests with.
#[derive(Clone, Debug, Default)]
pub struct Recorders {
    /// The audit log, if requests are recorded.
    pub audit: Option<AuditSink>,
    /// The traces, if requests are traced.
    pub traces: Option<Traces>,
}
