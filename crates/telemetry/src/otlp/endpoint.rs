//! Where a collector is.

use http::Uri;

/// The URL of a collector, below which each signal has its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

/// The endpoint of a configuration is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "endpoint: `{0}` is not the address of a collector; write a host and a port, such as otel-collector.monitoring:4318, or a URL"
)]
pub struct EndpointError(String);

// === impl Endpoint ===

impl Endpoint {
    /// An endpoint as configurations write it: a host and a port, perhaps with a path, or a URL. Without a scheme, `insecure` says whether
    /// there is TLS; a scheme says it itself, except that `insecure` wins over `https`.
    pub fn parse(text: &str, insecure: bool) -> Result<Self, EndpointError> {
        let error = || EndpointError(text.chars().take(256).collect());
        let (scheme, rest) = match text.trim().split_once("://") {
            Some(("http", rest)) => ("http", rest),
            Some(("https", rest)) => (if insecure { "http" } else { "https" }, rest),
            Some(_) => return Err(error()),
            None => (if insecure { "http" } else { "https" }, text.trim()),
        };
        let base = format!("{scheme}://{}", rest.trim_end_matches('/'));
        let uri: Uri = base.parse().map_err(|_| error())?;
        let has_host =
            uri.authority().is_some_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'));
        if !has_host || uri.query().is_some() || base.contains('#') {
            return Err(error());
        }
        Ok(Self(base))
    }

    pub(super) fn traces(&self) -> String {
        format!("{}/v1/traces", self.0)
    }

    pub(super) fn metrics(&self) -> String {
        format!("{}/v1/metrics", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_is_kept_and_a_scheme_says_whether_there_is_tls() {
        for (text, insecure, expected) in [
            ("otel:4318", false, "https://otel:4318/v1/traces"),
            ("otel:4318", true, "http://otel:4318/v1/traces"),
            ("http://otel:4318/", false, "http://otel:4318/v1/traces"),
            ("https://otel/base/", false, "https://otel/base/v1/traces"),
            ("https://otel", true, "http://otel/v1/traces"),
            ("[::1]:4318/a", true, "http://[::1]:4318/a/v1/traces"),
        ] {
            assert_eq!(Endpoint::parse(text, insecure).unwrap().traces(), expected, "{text}");
        }
        for text in ["", "ftp://a", "http://", "https://user@a", "a b", "otel:4318?x=1", "otel:4318#x", "/v1"] {
            assert!(Endpoint::parse(text, false).is_err(), "{text}");
        }
    }
}
