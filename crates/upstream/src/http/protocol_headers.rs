//! The headers that the protocol wants on a request to a server.

use http::{HeaderMap, HeaderValue, header};
use skep_mcp::headers::parameters::{self, Parameter};
use skep_mcp::headers::{METHOD, NAME, PROTOCOL_VERSION, SESSION_ID, encode};
use skep_mcp::{Era, Message, era, method};

use super::client_session::Link;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// The headers of a message of an era.
pub(super) fn of_message(
    mut headers: HeaderMap,
    era: Era,
    message: &Message,
    link: Option<&Link>,
    repeated: &[Parameter],
) -> HeaderMap {
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.insert(header::ACCEPT, BOTH);
    // What must be read must not be compressed.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if era == Era::Legacy {
        return of_session(headers, link);
    }
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(era::MODERN));
    let name = method::resource(message);
    for (header, value) in [(METHOD, message.method()), (NAME, name.as_deref())] {
        let value = value.and_then(|value| HeaderValue::try_from(encode(value).into_owned()).ok());
        headers.extend(value.map(|value| (header, value)));
    }
    parameters::set(&mut headers, message, repeated);
    headers
}

/// The headers of a request for a stream of events.
pub(super) fn of_stream(mut headers: HeaderMap, link: Option<&Link>) -> HeaderMap {
    headers.insert(header::ACCEPT, EVENTS);
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    of_session(headers, link)
}

/// The headers of any request of a session.
pub(super) fn of_session(mut headers: HeaderMap, link: Option<&Link>) -> HeaderMap {
    if let Some(link) = link {
        headers.extend(link.session.clone().map(|session| (SESSION_ID, session)));
        headers.extend(link.version.clone().map(|version| (PROTOCOL_VERSION, version)));
    }
    headers
}
