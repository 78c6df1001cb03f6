//! Headers that every request to the server gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use skep_runconfig::parameters;
use skep_runconfig::run_config::MiddlewareConfig;

use crate::chain::{ChainError, Context, Middleware, Pass, Step};
use crate::exchange::Exchange;

/// Headers that are about the connection, or about where a request came from: a RunConfig may not set these.
const REFUSED: [&str; 17] = [
    "host",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "http2-settings",
    "proxy-authorization",
    "proxy-authenticate",
    "proxy-connection",
    "transfer-encoding",
    "content-length",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

/// The headers.
#[derive(Clone)]
pub(crate) struct HeaderForward(HeaderMap);

impl HeaderForward {
    pub(crate) fn new(headers: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let read = settable_header(name)?;
            // The value may be a secret: it is not repeated.
            let mut value =
                HeaderValue::from_str(value).map_err(|_| format!("the value of `{name}` cannot be sent"))?;
            value.set_sensitive(true);
            map.insert(read, value);
        }
        Ok(Self(map))
    }

    /// Whether all clients are the same one to the server.
    fn replaces_authorization(&self) -> bool {
        self.0.contains_key(http::header::AUTHORIZATION)
    }
}

/// Whether a header is about the connection, or about where a request came from: no configuration sets it or passes it through.
pub fn is_restricted(name: &HeaderName) -> bool {
    REFUSED.contains(&name.as_str())
}

/// The header of that name, if a RunConfig may set it.
pub(super) fn settable_header(name: &str) -> Result<HeaderName, String> {
    let read: HeaderName = name.parse().map_err(|_| format!("`{name}` is not the name of a header"))?;
    if is_restricted(&read) {
        return Err(format!("the header `{name}` cannot be set for others; remove it"));
    }
    Ok(read)
}

pub(super) fn build(config: &MiddlewareConfig, _: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    let headers = super::parameters::<parameters::HeaderForward>(config)?.add_headers;
    let headers = HeaderForward::new(&headers).map_err(|problem| super::invalid(&config.kind, problem))?;
    if headers.replaces_authorization() {
        tracing::warn!("header-forward replaces the `Authorization` of every client with a configured one");
    }
    super::some(headers)
}

impl Middleware for HeaderForward {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        for (name, value) in &self.0 {
            exchange.head.headers.insert(name, value.clone());
        }
        Step::NEXT
    }
}

/// Without the values, which may be secrets.
impl std::fmt::Debug for HeaderForward {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("HeaderForward")?;
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, value: &str) -> Result<HeaderForward, String> {
        HeaderForward::new(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn a_configured_authorization_is_noticed_in_any_case() {
        for (name, is_replaced) in [("authorization", true), ("AUTHORIZATION", true), ("X-Api-Key", false)] {
            assert_eq!(given(name, "x").unwrap().replaces_authorization(), is_replaced, "{name}");
        }
    }

    #[test]
    fn headers_of_the_connection_are_refused_in_any_case() {
        let refused = "Host Connection Keep-Alive Te Trailer Upgrade Http2-Settings Proxy-Authorization Proxy-Authenticate \
                       Proxy-Connection Transfer-Encoding Content-Length Forwarded X-Forwarded-For X-Forwarded-Host \
                       X-Forwarded-Proto X-Real-Ip";
        for name in refused.split(' ') {
            for name in [name.to_owned(), name.to_lowercase(), name.to_uppercase()] {
                assert!(given(&name, "x").unwrap_err().contains(&format!("`{name}` cannot be set")), "{name}");
            }
        }
        assert!(given("not a name", "x").is_err());
        for name in ["Authorization", "X-Api-Key", "X-Forwarded-Prefix", "Cookie"] {
            assert!(given(name, "x").is_ok(), "{name}");
        }
    }

    #[test]
    fn values_are_secrets() {
        let wrong = given("x-key", "secret\n").unwrap_err();
        assert!(wrong.contains("x-key") && !wrong.contains("secret"), "{wrong}");
        assert!(!format!("{:?}", given("x-key", "secret").unwrap()).contains("secret"));
    }
}
