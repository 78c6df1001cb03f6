//! Requests to backends, as they are counted and traced.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;
use skep_mcp::{Edit, Era, Kind, Message, Raw, method, splice, value};
use skep_telemetry::KeyValue;
use skep_telemetry::trace::{Carrier, ChildSpan};
use skep_upstream::{Call, CallError};

use crate::backend::Backend;
use crate::instruments::VirtualInstruments;
use crate::metrics::BackendLabels;
use crate::pages::transport;

const TRACE_PARENT: &str = "traceparent";
const TRACE_STATE: &str = "tracestate";

/// The methods that have labels of their own: what is done, and the attributes that a span has the name of the thing by.
const ACTIONS: [(&str, &str, [&str; 2]); 4] = [
    ("tools/call", "call_tool", ["tool_name", "gen_ai.tool.name"]),
    ("resources/read", "read_resource", ["resource_uri", "mcp.resource.uri"]),
    ("prompts/get", "get_prompt", ["prompt_name", "gen_ai.prompt.name"]),
    ("completion/complete", "complete", ["ref_name", "mcp.completion.ref"]),
];
/// All other ones.
const OTHER: &str = "other";

/// A request to a backend. It is counted when it is dropped.
#[derive(Debug)]
pub(super) struct BackendRequest {
    instruments: Arc<VirtualInstruments>,
    labels: BackendLabels,
    method: &'static str,
    started: Instant,
    is_error: bool,
    span: Option<ChildSpan>,
}

// === impl BackendRequest ===

impl BackendRequest {
    /// Begins one. The backend is told of its span, or else of the client's.
    pub(super) fn begin(instruments: &Arc<VirtualInstruments>, backend: &Backend, call: &mut Call) -> Self {
        let found = call.message.method().and_then(|method| ACTIONS.iter().find(|(name, ..)| *name == method));
        let (method, action) = found.map_or((OTHER, OTHER), |(method, action, _)| (*method, *action));
        let name = backend.name().to_string();
        let labels = BackendLabels {
            target_workload_id: name.clone(),
            target_workload_name: name,
            target_transport_type: transport(backend),
            action,
        };
        let span = instruments.traces().map(|traces| {
            let target = method::resource(&call.message).unwrap_or_default();
            let target = value::clipped(&target);
            let carrier = Carrier::of_headers(&call.client.trace);
            let names = found.map(|(_, _, names)| *names).unwrap_or_default();
            let attributes = attributes(&labels, method, call, &names, &target);
            let span =
                ChildSpan::of_request(traces, &carrier, format!("{method} {target}").trim().to_owned(), attributes);
            span.inject(&mut call.client.trace);
            span
        });
        if let Some(message) = with_trace(&call.message, call.era, &call.client.trace) {
            call.message = message;
        }
        Self { instruments: instruments.clone(), labels, method, started: Instant::now(), is_error: false, span }
    }

    /// Notes how it ended.
    pub(super) fn end(&mut self, response: Result<&Message, &CallError>) {
        let problem = match response {
            Ok(message) if message.kind() != Kind::Error => return,
            Ok(message) => {
                let text = message.error().and_then(|error| value::find_text(error, &["message"])).unwrap_or_default();
                value::clipped(&text).into_owned()
            }
            Err(error) => error.to_string(),
        };
        self.is_error = true;
        if let Some(span) = &mut self.span {
            span.fail(problem);
        }
    }
}

impl Drop for BackendRequest {
    fn drop(&mut self) {
        self.instruments.metrics.called(&self.labels, self.method, self.started.elapsed(), self.is_error);
    }
}

fn attributes(
    labels: &BackendLabels,
    method: &'static str,
    call: &Call,
    names: &[&'static str],
    target: &str,
) -> Vec<KeyValue> {
    let revision = match call.era {
        Era::Modern => skep_mcp::era::MODERN,
        Era::Legacy => "2025-11-25",
    };
    let mut attributes = vec![
        KeyValue::new("target.workload_id", labels.target_workload_id.clone()),
        KeyValue::new("target.workload_name", labels.target_workload_name.clone()),
        KeyValue::new("target.transport_type", labels.target_transport_type),
        KeyValue::new("action", labels.action),
        KeyValue::new("mcp.method.name", method),
        KeyValue::new("mcp.protocol.revision", revision),
        KeyValue::new("auth.authenticated", call.client.caller.is_some()),
    ];
    let names = names.iter().filter(|name| !name.is_empty() && !target.is_empty());
    attributes.extend(names.map(|name| KeyValue::new(*name, target.to_owned())));
    attributes
}

/// The same message with the trace context of its request, where that is part of messages: in a legacy call of a tool, and where the client
/// wrote one, which would win over the headers. Nothing if it stays as it is.
fn with_trace(message: &Message, era: Era, trace: &HeaderMap) -> Option<Message> {
    const PARENT: [&str; 3] = ["params", "_meta", TRACE_PARENT];
    const STATE: [&str; 3] = ["params", "_meta", TRACE_STATE];
    let text = |name: &str| trace.get(name).and_then(|value| value.to_str().ok()).map(Raw::string);
    let parent = text(TRACE_PARENT)?;
    let has_own = message.params().is_some_and(|params| value::has(params, &["_meta", TRACE_PARENT]));
    let is_legacy_call = era == Era::Legacy && message.method() == Some("tools/call");
    if !has_own && !is_legacy_call {
        return None;
    }
    let state = text(TRACE_STATE).map_or_else(|| Edit::remove(&STATE), |state| Edit::set(&STATE, state));
    splice::apply(message, &[Edit::set(&PARENT, parent), state]).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ONE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203332-01";

    fn sent(era: Era, method: &str, meta: &Value, trace: &[(&'static str, &'static str)]) -> Option<Value> {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "name": "t", "_meta": meta } });
        let message = Message::parse(message.to_string().into()).unwrap();
        let trace = trace.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let sent = with_trace(&message, era, &trace)?;
        Some(serde_json::from_slice::<Value>(sent.body()).unwrap()["params"]["_meta"].clone())
    }

    #[test]
    fn legacy_calls_of_tools_carry_the_trace_in_their_meta() {
        let trace = [("traceparent", ONE), ("tracestate", "a=1")];
        let expected = json!({ "traceparent": ONE, "tracestate": "a=1", "x": 1 });
        assert_eq!(sent(Era::Legacy, "tools/call", &json!({ "x": 1 }), &trace), Some(expected));
        assert_eq!(sent(Era::Legacy, "prompts/get", &json!({}), &trace), None);
        assert_eq!(sent(Era::Modern, "tools/call", &json!({}), &trace), None);
        assert_eq!(sent(Era::Legacy, "tools/call", &json!({}), &[]), None);
    }

    #[test]
    fn what_the_client_wrote_does_not_win_over_the_span_of_this_server() {
        let meta = json!({ "traceparent": OTHER, "tracestate": "b=2" });
        for era in [Era::Legacy, Era::Modern] {
            let sent = sent(era, "resources/read", &meta, &[("traceparent", ONE)]);
            assert_eq!(sent, Some(json!({ "traceparent": ONE })), "a state belongs to its parent");
        }
    }
}
