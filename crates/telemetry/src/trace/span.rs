//! The span of one request.

use std::time::SystemTime;

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, Tracer as _};
use opentelemetry_sdk::trace::Span;

use super::attributes::{ResponseFacts, SpanFacts};
use super::propagation::{Carrier, extract, inject};
use crate::otlp::Traces;

/// A span that has started. It is sent when it is finished or dropped, if it is sampled.
#[derive(Debug)]
pub struct RequestSpan {
    span: Span,
    parent: Context,
    with_legacy: bool,
}

// === impl RequestSpan ===

impl RequestSpan {
    /// Starts a span. Whether it is recorded is decided by the client's trace, or else by chance; its facts are asked for only then.
    pub fn start(
        traces: &Traces,
        started: SystemTime,
        carrier: &Carrier,
        with_legacy: bool,
        facts: impl FnOnce() -> SpanFacts,
    ) -> Self {
        let parent = extract(carrier);
        let builder = SpanBuilder::from_name("request").with_kind(SpanKind::Server).with_start_time(started);
        let mut span = traces.tracer().build_with_context(builder, &parent);
        if span.is_recording() {
            let facts = facts();
            span.update_name(facts.name());
            span.set_attributes(facts.attributes(with_legacy));
        }
        Self { span, parent, with_legacy }
    }

    /// Whether it is sent.
    pub fn is_recorded(&self) -> bool {
        self.span.is_recording()
    }

    /// Tells the server of it.
    pub fn inject(&self, headers: &mut HeaderMap) {
        inject(&self.parent, self.span.span_context(), headers);
    }

    /// Ends it with a response.
    pub fn finish(mut self, response: &ResponseFacts) {
        if self.span.is_recording() {
            self.span.set_attributes(response.attributes(self.with_legacy));
            if let Some(failure) = response.failure() {
                self.span.set_status(Status::error(failure));
            }
        }
        self.span.end();
    }

    /// Ends it without a response.
    pub fn abandon(mut self) {
        self.span.set_status(Status::error("the client disconnected before there was a response"));
        self.span.end();
    }
}
