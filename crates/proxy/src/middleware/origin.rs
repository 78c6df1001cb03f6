//! Which pages browsers may call from. Requests without an origin are none of a browser's.

use std::sync::Arc;

use http::header::ORIGIN;
use http::{HeaderValue, StatusCode, Uri};
use skep_runconfig::run_config::MiddlewareConfig;
use skep_runconfig::{RunConfig, parameters};

use crate::chain::{ChainError, Context, Middleware, Step};
use crate::exchange::Head;
use crate::http::json;

/// A scheme, a host in lower case, and the port as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    scheme: String,
    host: String,
    port: Option<String>,
}

/// The origins that may send requests.
#[derive(Clone, Debug)]
pub(crate) struct Origins(Vec<Origin>);

pub(super) fn build(config: &MiddlewareConfig, _: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    super::some(Origins::new(&super::parameters::<parameters::Origin>(config)?.allowed_origins))
}

// === impl Origins ===

impl Origins {
    pub(crate) fn new(origins: &[String]) -> Self {
        Self(origins.iter().filter_map(|text| Origin::parse(text)).collect())
    }

    /// Those of a RunConfig. A proxy that only this machine can reach is guarded by default; for others there is
    /// nothing to go by.
    pub(crate) fn of(config: &RunConfig, port: u16) -> Option<Self> {
        if !config.allowed_origins.is_empty() {
            return Some(Self::new(&config.allowed_origins));
        }
        let host = config.host.trim_matches(['[', ']']);
        let is_loopback = host.is_empty()
            || host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if !is_loopback || port == 0 {
            tracing::warn!(
                "origins not checked: none are listed, so pages of any origin may call from a browser that reaches this address"
            );
            return None;
        }
        Some(Self::new(&["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:{port}"))))
    }

    /// Whether pages of an origin may call.
    fn allows(&self, origin: &HeaderValue) -> bool {
        origin.to_str().ok().and_then(Origin::parse).is_some_and(|origin| self.0.contains(&origin))
    }
}

impl Middleware for Origins {
    fn head<'a>(&'a self, head: &'a mut Head) -> Step<'a> {
        let mut given = head.headers.get_all(ORIGIN).into_iter();
        let Some(first) = given.next() else { return Step::NEXT };
        if self.allows(first) && given.next().is_none() {
            head.origin_allowed = true;
            return Step::NEXT;
        }
        json(StatusCode::FORBIDDEN, skep_mcp::answer::origin_not_allowed()).into()
    }

    fn is_head_only(&self) -> bool {
        true
    }

    fn allows_origin(&self, origin: &HeaderValue) -> Option<bool> {
        Some(self.allows(origin))
    }
}

/// Whether a text names an origin that pages can come from.
pub(crate) fn is_origin(text: &str) -> bool {
    let has_path = |uri: Uri| uri.path_and_query().is_some_and(|path| path.as_str() != "/");
    Origin::parse(text).is_some() && !text.trim_end_matches('/').parse().is_ok_and(has_path)
}

// === impl Origin ===

impl Origin {
    fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.trim_end_matches('/').parse().ok()?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        Some(Self {
            scheme: uri.scheme_str()?.to_ascii_lowercase(),
            host: authority.host().to_ascii_lowercase(),
            port: authority.port().map(|port| port.as_str().to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_and_host_are_compared_without_case_and_ports_as_they_are() {
        let origins = Origins::new(&["http://Localhost:8080".to_owned(), "https://a.example".to_owned()]);
        let allowed = |text: &str| Origin::parse(text).is_some_and(|origin| origins.0.contains(&origin));
        for text in ["http://localhost:8080", "HTTP://LOCALHOST:8080", "https://A.example"] {
            assert!(allowed(text), "{text}");
        }
        for text in [
            "http://localhost:8081",
            "https://localhost:8080",
            "https://a.example:443",
            "https://u@a.example",
            "null",
            "",
        ] {
            assert!(!allowed(text), "{text}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        for text in ["http://localhost:6274", "https://a.example", "https://a.example/", "app://b"] {
            assert!(is_origin(text), "{text}");
        }
        for text in ["", "a.example", "*", "null", "https://", "https://a.example/page", "https://u@a.example"] {
            assert!(!is_origin(text), "{text}");
        }
    }

    #[test]
    fn a_loopback_address_is_guarded_by_default() {
        let config = |host: &str| RunConfig { host: host.to_owned(), ..RunConfig::default() };
        assert_eq!(Origins::of(&config("127.0.0.1"), 80).unwrap().0.len(), 3);
        assert_eq!(Origins::of(&config("::1"), 80).unwrap().0.len(), 3);
        assert!(Origins::of(&config("0.0.0.0"), 80).is_none());
    }
}
