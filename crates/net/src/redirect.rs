//! The target of a redirect, if it may be followed at all. The client never follows one by itself: the caller asks here,
//! keeps method and body, and counts to [`MOST`].

use http::header::HeaderValue;
use http::uri::Authority;
use http::{StatusCode, Uri};
use url::Url;

/// How many redirects may be followed for one request.
pub const MOST: usize = 10;

/// Why a redirect is not followed. Its response is returned unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// It is not a redirect that keeps method and body.
    #[error("not a redirect that can be followed")]
    Status,
    /// It has no valid `Location`.
    #[error("the redirect has no usable location")]
    Location,
    /// It leads to another host or port, which must not get our headers and body.
    #[error("the redirect leads to another host or port")]
    Elsewhere,
    /// It leads from https to http.
    #[error("the redirect leads from https to http")]
    Downgrade,
}

/// The next URL to request, given the one that was requested, the status of the response, and its `Location`.
pub fn next(current: &Uri, status: StatusCode, location: Option<&HeaderValue>) -> Result<Uri, RedirectError> {
    if !matches!(status.as_u16(), 301 | 302 | 307 | 308) {
        return Err(RedirectError::Status);
    }
    let location = location.and_then(|location| location.to_str().ok()).ok_or(RedirectError::Location)?;
    let current = Url::parse(&current.to_string()).map_err(|_| RedirectError::Location)?;
    let mut next = current.join(location).map_err(|_| RedirectError::Location)?;
    match (current.scheme(), next.scheme()) {
        ("https", "http") => return Err(RedirectError::Downgrade),
        (_, "http" | "https") => {}
        _ => return Err(RedirectError::Location),
    }
    let place = |url: &Url| (url.host_str().map(str::to_ascii_lowercase), url.port_or_known_default());
    // Credentials in a location could only be an attempt to make us send them.
    if place(&current) != place(&next) || !next.username().is_empty() || next.password().is_some() {
        return Err(RedirectError::Elsewhere);
    }
    next.set_fragment(None);
    next.as_str().parse().map_err(|_| RedirectError::Location)
}

/// The same for a server that was addressed by another name than the URL's, in the `Host` header. A location that it
/// builds from that name leads to the same address.
pub fn next_named(
    current: &Uri,
    host: Option<&HeaderValue>,
    status: StatusCode,
    location: Option<&HeaderValue>,
) -> Result<Uri, RedirectError> {
    let by_address = next(current, status, location);
    let name = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let (Err(RedirectError::Elsewhere), Some(name)) = (&by_address, name) else { return by_address };
    let named = at(current.clone(), Some(name)).ok_or(RedirectError::Location)?;
    at(next(&named, status, location)?, current.authority().cloned()).ok_or(RedirectError::Location)
}

fn at(uri: Uri, authority: Option<Authority>) -> Option<Uri> {
    let mut parts = uri.into_parts();
    parts.authority = authority;
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(current: &str, status: u16, location: &str) -> Result<String, RedirectError> {
        let location = HeaderValue::from_str(location).unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        next(&current.parse().unwrap(), status, Some(&location)).map(|uri| uri.to_string())
    }

    #[test]
    fn redirects_stay_on_the_host_and_never_lose_tls() {
        let here = "http://mcp.test:8080/mcp?a=1";
        let followed = [
            (here, 307, "/mcp/", "http://mcp.test:8080/mcp/"),
            (here, 308, "other?b=2", "http://mcp.test:8080/other?b=2"),
            (here, 301, "http://MCP.test:8080/x#part", "http://mcp.test:8080/x"),
            (here, 302, "//mcp.test:8080/y", "http://mcp.test:8080/y"),
            ("https://mcp.test/mcp", 308, "https://mcp.test:443/mcp/", "https://mcp.test/mcp/"),
            ("http://mcp.test:443/mcp", 308, "https://mcp.test/mcp", "https://mcp.test/mcp"),
        ];
        for (current, status, location, expected) in followed {
            assert_eq!(follow(current, status, location).as_deref(), Ok(expected), "{location}");
        }
        let refused = [
            (here, 200, "/mcp/", RedirectError::Status),
            (here, 300, "/mcp/", RedirectError::Status),
            (here, 303, "/mcp/", RedirectError::Status),
            (here, 304, "/mcp/", RedirectError::Status),
            (here, 307, "http://other.test:8080/mcp", RedirectError::Elsewhere),
            (here, 307, "http://mcp.test/mcp", RedirectError::Elsewhere),
            (here, 307, "https://mcp.test/mcp", RedirectError::Elsewhere),
            (here, 307, "//evil.test/mcp", RedirectError::Elsewhere),
            (here, 307, "http://user:word@mcp.test:8080/mcp", RedirectError::Elsewhere),
            (here, 307, "file:///etc/passwd", RedirectError::Location),
            (here, 307, "http://", RedirectError::Location),
            ("https://mcp.test:8443/mcp", 307, "http://mcp.test:8443/mcp", RedirectError::Downgrade),
            ("https://mcp.test/mcp", 307, "http://mcp.test/mcp", RedirectError::Downgrade),
        ];
        for (current, status, location, expected) in refused {
            assert_eq!(follow(current, status, location), Err(expected), "{location}");
        }
        assert_eq!(next(&here.parse().unwrap(), StatusCode::FOUND, None), Err(RedirectError::Location));
    }

    #[test]
    fn the_name_that_a_server_was_called_by_leads_back_to_its_address() {
        let follow = |host: Option<&str>, location: &str| {
            let (here, status) = ("http://10.0.0.7:8080/mcp?a=1".parse().unwrap(), StatusCode::TEMPORARY_REDIRECT);
            let host = host.map(|host| HeaderValue::from_str(host).unwrap());
            let location = HeaderValue::from_str(location).unwrap();
            next_named(&here, host.as_ref(), status, Some(&location)).map(|uri| uri.to_string())
        };
        for location in ["/mcp/", "http://mcp-s:8080/mcp/", "//MCP-s:8080/mcp/#x", "http://10.0.0.7:8080/mcp/"] {
            let followed = follow(Some("mcp-s:8080"), location);
            assert_eq!(followed.as_deref(), Ok("http://10.0.0.7:8080/mcp/"), "{location}");
        }
        for (host, location) in [
            (Some("mcp-s:8080"), "http://mcp-t:8080/mcp/"),
            (Some("mcp-s:8080"), "http://mcp-s:9090/mcp/"),
            (Some("mcp-s:8080"), "http://u:p@mcp-s:8080/mcp/"),
            (None, "http://mcp-s:8080/mcp/"),
        ] {
            assert_eq!(follow(host, location), Err(RedirectError::Elsewhere), "{location}");
        }
    }
}
