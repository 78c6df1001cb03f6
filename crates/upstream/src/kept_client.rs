//! What a session keeps of its client between requests: for what the proxy sends in its name without a request of it, such as a
//! handshake or a listening stream.
//!
//! A client chooses its headers, so their size is bounded here and counted by the keeper of the session: see [`KeptClient::room`].

use std::ops::Deref;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::upstream::ClientContext;

/// The most that is kept of the headers of one client, in bytes. Of longer ones, credentials come first.
const LONGEST: usize = 8 * 1024;
/// By how much the headers of a later request may exceed those that were counted: a token that is renewed may be longer.
const SLACK: usize = 1024;
/// What the claims of a token take beside it, in memory: as many times its own length.
const CLAIMS: usize = 3;

/// Headers that say nothing of who a client is, and may be another for every request.
const VOLATILE: [&str; 12] = [
    "baggage",
    "forwarded",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-envoy-external-address",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
];

/// A client, as its last request had it.
#[derive(Debug, Default)]
pub struct KeptClient {
    context: ClientContext,
    /// How many bytes its headers may have.
    longest: usize,
}

// === impl KeptClient ===

impl KeptClient {
    /// The client of a request.
    pub fn new(client: &ClientContext) -> Self {
        let headers = short_enough(&client.headers, LONGEST);
        let longest = if headers.is_empty() { 0 } else { size(&headers) + SLACK };
        let (caller, peer) = (client.caller.clone(), client.peer);
        // The trace is that of one request.
        Self { context: ClientContext { caller, headers, peer, ..ClientContext::default() }, longest }
    }

    /// How many bytes are kept of the client of a request, now and later.
    pub fn room(client: &ClientContext) -> usize {
        let token = client.caller.as_ref().and_then(|caller| caller.token.as_ref());
        Self::new(client).longest + token.map_or(0, |token| token.expose().len() * (CLAIMS + 1))
    }

    /// The client of a later request. A request without headers says nothing of them.
    pub fn update(&mut self, client: &ClientContext) {
        if self.longest == 0 {
            let caller = self.context.caller.take();
            *self = Self::new(client);
            self.context.caller = self.context.caller.take().or(caller);
            return;
        }
        if !client.headers.is_empty() {
            self.context.headers = short_enough(&client.headers, self.longest);
        }
        self.context.peer = client.peer.or(self.context.peer);
        if client.caller.is_some() {
            self.context.caller.clone_from(&client.caller);
        }
    }
}

impl Deref for KeptClient {
    type Target = ClientContext;

    fn deref(&self) -> &ClientContext {
        &self.context
    }
}

/// Whether a header says something of who a client is.
pub(crate) fn is_telling(name: &HeaderName) -> bool {
    !VOLATILE.contains(&name.as_str())
}

/// Copies of as many headers as fit: credentials first, and last what changes with each request. Copies, because a value is a slice of what
/// the connection read, which it would keep in memory.
fn short_enough(headers: &HeaderMap, longest: usize) -> HeaderMap {
    let rank = |name: &HeaderName| match name {
        name if *name == AUTHORIZATION || *name == COOKIE => 0,
        name if is_telling(name) => 1,
        _ => 2,
    };
    let mut ranked: Vec<_> = headers.iter().collect();
    ranked.sort_by_key(|(name, _)| rank(name));
    let mut left = longest;
    let mut kept = HeaderMap::new();
    for (name, value) in ranked {
        let (Some(rest), Ok(mut copy)) =
            (left.checked_sub(length(name, value)), HeaderValue::from_bytes(value.as_bytes()))
        else {
            continue;
        };
        left = rest;
        copy.set_sensitive(value.is_sensitive());
        kept.append(name.clone(), copy);
    }
    kept
}

fn size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| length(name, value)).sum()
}

/// The bytes of a header, with those of its place.
fn length(name: &HeaderName, value: &HeaderValue) -> usize {
    name.as_str().len() + value.len() + size_of::<(HeaderName, HeaderValue)>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(headers: &[(&'static str, &str)]) -> ClientContext {
        let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        ClientContext::with_headers(headers.collect())
    }

    fn names(kept: &KeptClient) -> Vec<&str> {
        kept.headers.keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn of_headers_that_are_too_long_credentials_are_kept() {
        let long = "x".repeat(5000);
        let (padding, agent) = ("y".repeat(4000), "z".repeat(1000));
        let sent = client(&[("user-agent", &agent), ("x-padding", &padding), ("authorization", &long), ("x-key", "k")]);
        let kept = KeptClient::new(&sent);
        assert_eq!(names(&kept), ["authorization", "x-key", "user-agent"]);
        assert!(size(&kept.headers) <= LONGEST && KeptClient::room(&sent) <= LONGEST + SLACK);
        let usual = client(&[("user-agent", "curl"), ("authorization", "Bearer a"), ("x-key", "k")]);
        assert_eq!(KeptClient::new(&usual).headers.len(), 3);
    }

    #[test]
    fn a_later_request_takes_no_more_room_than_was_counted() {
        let first = client(&[("authorization", "Bearer a")]);
        let mut kept = KeptClient::new(&first);
        let padding = "y".repeat(7000);
        kept.update(&client(&[("x-padding", &padding), ("authorization", "Bearer renewed")]));
        assert_eq!(names(&kept), ["authorization"]);
        assert_eq!(kept.headers["authorization"], "Bearer renewed");
        assert!(size(&kept.headers) <= KeptClient::room(&first));
        kept.update(&ClientContext::default());
        assert_eq!(names(&kept), ["authorization"], "a request without headers says nothing of them");
    }

    #[test]
    fn a_session_that_was_restored_learns_its_client_from_the_first_request() {
        let mut kept = KeptClient::default();
        kept.update(&client(&[("authorization", "Bearer a"), ("x-key", "k")]));
        assert_eq!(names(&kept), ["authorization", "x-key"]);
    }
}
