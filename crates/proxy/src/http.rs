//! Answers, as short as they come.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use skep_mcp::{Id, answer};
use skep_net::Body;
use skep_net::budget::OverBudgetError;

pub(crate) use skep_mcp::headers::{PROTOCOL_VERSION as VERSION, SESSION_ID as SESSION};

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(crate) fn text(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::copy_from_slice(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}

pub(crate) fn json(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// When a client should retry a request for which the budget had no memory, in seconds.
const LATER: HeaderValue = HeaderValue::from_static("2");

/// The response to a request that a limit refuses for now, with a message that says so.
pub(crate) fn busy(message: Bytes) -> Response<Body> {
    let mut response = json(StatusCode::SERVICE_UNAVAILABLE, message);
    response.headers_mut().insert(RETRY_AFTER, LATER);
    response
}

/// The response to a request that the memory budget cannot hold. One whose response can never fit is not asked to retry: the server
/// would run it again for nothing.
pub(crate) fn over_budget(error: &OverBudgetError, id: Option<&Id>) -> Response<Body> {
    let message = over_budget_message(error, id);
    match error {
        OverBudgetError::NoRoom { .. } => {
            tracing::debug!(%error, "request refused");
            busy(message)
        }
        OverBudgetError::TooLong { .. } => json(StatusCode::BAD_GATEWAY, message),
    }
}

/// The same as a message.
pub(crate) fn over_budget_message(error: &OverBudgetError, id: Option<&Id>) -> Bytes {
    let text = match error {
        OverBudgetError::NoRoom { .. } => {
            "the proxy holds as many bytes for its clients as it may; try again in a moment".to_owned()
        }
        OverBudgetError::TooLong { most, .. } => {
            tracing::warn!(%error, "dropping a response that never fits into the memory budget");
            format!(
                "the response is longer than {most} bytes, the most that this proxy buffers for one client; raise \
                 SKEP_MEMORY_BUDGET or the memory limit"
            )
        }
    };
    answer::error(id, answer::INTERNAL_ERROR, &text, None)
}

/// A stream of events, or as much of one as there is.
pub(crate) fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Some reverse proxies would hold a stream back until it is long enough.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

pub(crate) fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Whether a header is of a media type, whatever parameters follow it.
pub(crate) fn is_of_type(value: Option<&HeaderValue>, wanted: &str) -> bool {
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case(wanted))
}

/// Whether a client takes a media type, by its `Accept` headers.
pub(crate) fn accepts(headers: &http::HeaderMap, wanted: &str) -> bool {
    let lines = headers.get_all(http::header::ACCEPT).into_iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .any(|one| one.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case(wanted)))
}
