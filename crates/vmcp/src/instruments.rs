//! What a virtual server counts and records itself: its requests to backends, and the runs of composite tools.

use std::sync::{Arc, OnceLock, Weak};

use prometheus_client::registry::Registry;
use skep_proxy::instruments::{Instruments, Recorders};
use skep_telemetry::audit::AuditSink;
use skep_telemetry::otlp::Traces;

use crate::backends::Backends;
use crate::metrics::VirtualMetrics;

/// The instruments of a virtual server.
#[derive(Debug, Default)]
pub struct VirtualInstruments {
    /// What it counts.
    pub metrics: VirtualMetrics,
    has_optimizer: bool,
    /// What the proxy records requests with, once it is known.
    recorders: OnceLock<Recorders>,
}

// === impl VirtualInstruments ===

impl VirtualInstruments {
    /// Those of a virtual server with an optimizer, or without one.
    pub fn new(metrics: VirtualMetrics, has_optimizer: bool) -> Arc<Self> {
        Arc::new(Self { metrics, has_optimizer, recorders: OnceLock::new() })
    }

    /// The audit log, if requests are recorded.
    pub(crate) fn audit(&self) -> Option<&AuditSink> {
        self.recorders.get()?.audit.as_ref()
    }

    /// The traces, if requests are traced.
    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.recorders.get()?.traces.as_ref()
    }
}

impl Instruments for VirtualInstruments {
    fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry, self.has_optimizer);
    }

    fn connect(&self, recorders: Recorders) {
        // A virtual server has one proxy.
        let _connected_before = self.recorders.set(recorders);
    }
}

/// Counts backends, for as long as there are any to count.
pub(crate) async fn count_backends(backends: Weak<Backends>, metrics: VirtualMetrics) {
    let Some(mut changes) = backends.upgrade().map(|backends| backends.changes()) else { return };
    loop {
        let Some(count) = backends.upgrade().map(|backends| backends.all().len()) else { return };
        metrics.backends(count);
        if changes.changed().await.is_err() {
            return;
        }
    }
}
