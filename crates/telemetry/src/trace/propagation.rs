//! W3C trace context and baggage: from a client, and to a server.

use std::borrow::Cow;

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry_http::HeaderInjector;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};

const TRACE_PARENT: &str = "traceparent";
const TRACE_STATE: &str = "tracestate";
const BAGGAGE: &str = "baggage";

/// What a client said about the trace that its request is part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carrier {
    trace_parent: Option<String>,
    trace_state: Option<String>,
    baggage: Option<String>,
}

// === impl Carrier ===

impl Carrier {
    /// What the headers of a request say.
    pub fn of_headers(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Self { trace_parent: text(TRACE_PARENT), trace_state: text(TRACE_STATE), baggage: text(BAGGAGE) }
    }

    /// What the `_meta` of a message says, by the name of a member. It wins over the headers. A state belongs to its parent.
    pub fn override_by<'a>(&mut self, meta: impl Fn(&str) -> Option<Cow<'a, str>>) {
        if let Some(parent) = meta(TRACE_PARENT) {
            self.trace_parent = Some(parent.into_owned());
            self.trace_state = meta(TRACE_STATE).map(Cow::into_owned);
        }
        if let Some(baggage) = meta(BAGGAGE) {
            self.baggage = Some(baggage.into_owned());
        }
    }
}

impl Extractor for Carrier {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            TRACE_PARENT => self.trace_parent.as_deref(),
            TRACE_STATE => self.trace_state.as_deref(),
            BAGGAGE => self.baggage.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACE_PARENT, TRACE_STATE, BAGGAGE]
    }
}

/// The context of a client. Malformed parts are left out.
pub(super) fn extract(carrier: &Carrier) -> Context {
    let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), carrier);
    BaggagePropagator::new().extract_with_context(&parent, carrier)
}

/// Tells the server of the span that its request is part of, instead of the client's.
pub(super) fn inject(parent: &Context, span: &SpanContext, headers: &mut HeaderMap) {
    headers.remove(TRACE_STATE);
    let context = parent.with_remote_span_context(span.clone());
    let mut injector = HeaderInjector(headers);
    TraceContextPropagator::new().inject_context(&context, &mut injector);
    BaggagePropagator::new().inject_context(&context, &mut injector);
    // A state that is empty says nothing.
    if headers.get(TRACE_STATE).is_some_and(http::HeaderValue::is_empty) {
        headers.remove(TRACE_STATE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203332-00";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), (*value).parse().unwrap())).collect()
    }

    #[test]
    fn the_message_wins_over_the_headers() {
        let mut carrier =
            Carrier::of_headers(&headers(&[("traceparent", PARENT), ("tracestate", "a=1"), ("baggage", "u=1")]));
        let span = extract(&carrier).span().span_context().clone();
        assert!(span.is_remote() && span.is_sampled());
        assert_eq!(span.trace_state().header(), "a=1");
        carrier.override_by(|name| (name == "traceparent").then_some(Cow::Borrowed(OTHER)));
        let span = extract(&carrier).span().span_context().clone();
        assert_eq!(span.span_id().to_string(), "b7ad6b7169203332");
        assert_eq!(span.trace_state().header(), "", "the state of another parent is not kept");
    }

    #[test]
    fn what_goes_on_replaces_what_came_and_malformed_parents_are_none() {
        let mut sent = headers(&[("traceparent", PARENT), ("tracestate", "a=1"), ("baggage", "u=1")]);
        let context = extract(&Carrier::of_headers(&sent));
        let child = extract(&Carrier::of_headers(&headers(&[("traceparent", OTHER)])));
        inject(&context, child.span().span_context(), &mut sent);
        assert_eq!(
            (&sent["traceparent"], &sent["baggage"], sent.get("tracestate")),
            (&OTHER.parse().unwrap(), &"u=1".parse().unwrap(), None)
        );
        for malformed in ["", "00-0-0-0", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x"] {
            let carrier = Carrier { trace_parent: Some(malformed.to_owned()), ..Carrier::default() };
            assert!(!extract(&carrier).span().span_context().is_valid(), "{malformed}");
        }
    }
}
