//! The span of a request that a virtual server sends to a backend, or of a composite tool.

use http::HeaderMap;
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::Span;

use super::propagation::{Carrier, extract, inject};
use crate::otlp::Traces;

/// A span below that of a client's request. It is sent when it is dropped, if it is sampled.
#[derive(Debug)]
pub struct ChildSpan {
    span: Span,
    parent: Context,
}

// === impl ChildSpan ===

impl ChildSpan {
    /// A request to a server.
    pub fn of_request(traces: &Traces, carrier: &Carrier, name: String, attributes: Vec<KeyValue>) -> Self {
        Self::start(traces, carrier, name, attributes, SpanKind::Client)
    }

    /// Something that is done here.
    pub fn internal(traces: &Traces, carrier: &Carrier, name: &'static str, attributes: Vec<KeyValue>) -> Self {
        Self::start(traces, carrier, name.to_owned(), attributes, SpanKind::Internal)
    }

    fn start(traces: &Traces, carrier: &Carrier, name: String, attributes: Vec<KeyValue>, kind: SpanKind) -> Self {
        let parent = extract(carrier);
        let builder = SpanBuilder::from_name(name).with_kind(kind).with_attributes(attributes);
        Self { span: traces.tracer().build_with_context(builder, &parent), parent }
    }

    /// Makes it the parent of what is done with these headers.
    pub fn inject(&self, headers: &mut HeaderMap) {
        inject(&self.parent, self.span.span_context(), headers);
    }

    /// Says that what it stands for failed.
    pub fn fail(&mut self, problem: String) {
        self.span.set_status(Status::error(problem));
    }
}

impl Drop for ChildSpan {
    fn drop(&mut self) {
        self.span.end();
    }
}
