//! Which names a listener answers to.
//!
//! A page of any site can make its own name resolve to 127.0.0.1, and then reads what a proxy on this machine answers: to the
//! browser both are one origin. Only the name in the request tells. A listener on loopback therefore answers to names of
//! loopback, and to those that it is configured with; one that others reach has a name that only its users know.

use std::net::{IpAddr, SocketAddr};

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;
use http::{Response, StatusCode, Version};
use skep_mcp::answer;
use skep_net::Body;

use crate::http::{json, text};

/// The names that a listener answers to.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Whether names are checked.
    is_guarded: bool,
    allowed: Vec<AllowedHost>,
}

/// A name beside those of loopback: at any port, unless it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AllowedHost {
    host: String,
    port: Option<u16>,
}

/// A name that cannot be allowed.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a host to allow; write a name such as tools.example.test or tools.example.test:8080")]
pub struct AllowedHostError(String);

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostError {
    Missing,
    Duplicate,
    Malformed,
    NotAllowed,
}

// === impl Hosts ===

impl Hosts {
    /// Those of a listener. One that only this machine reaches answers to names of loopback and to these.
    pub fn of(listen: SocketAddr, allowed: &[String]) -> Result<Self, AllowedHostError> {
        let allowed = allowed.iter().map(|text| AllowedHost::parse(text)).collect::<Result<_, _>>()?;
        Ok(Self { is_guarded: listen.ip().to_canonical().is_loopback(), allowed })
    }

    /// Checks the name that a request was sent to. HTTP/1.1 wants exactly one, wherever it listens.
    pub(crate) fn check(&self, parts: &Parts) -> Result<(), HostError> {
        let mut lines = parts.headers.get_all(HOST).iter();
        let (line, authority) = (lines.next(), parts.uri.authority());
        if lines.next().is_some() {
            return Err(HostError::Duplicate);
        }
        if line.is_none() && authority.is_none() {
            return if parts.version < Version::HTTP_11 { Ok(()) } else { Err(HostError::Missing) };
        }
        if line.is_none() && parts.version == Version::HTTP_11 {
            return Err(HostError::Missing);
        }
        if let (Some(line), Some(authority), Version::HTTP_2) = (line, authority, parts.version)
            && !line.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
        {
            return Err(HostError::Malformed);
        }
        if !self.is_guarded {
            return Ok(());
        }
        // Whichever of them a server would go by.
        if let Some(line) = line {
            let named = Authority::try_from(line.as_bytes()).map_err(|_invalid| HostError::Malformed)?;
            self.check_authority(&named)?;
        }
        authority.map_or(Ok(()), |authority| self.check_authority(authority))
    }

    fn check_authority(&self, authority: &Authority) -> Result<(), HostError> {
        let named = AllowedHost::of(authority).ok_or(HostError::Malformed)?;
        let is_allowed = |one: &AllowedHost| one.host == named.host && (one.port.is_none() || one.port == named.port);
        if named.is_loopback() || self.allowed.iter().any(is_allowed) { Ok(()) } else { Err(HostError::NotAllowed) }
    }
}

// === impl AllowedHost ===

impl AllowedHost {
    fn parse(text: &str) -> Result<Self, AllowedHostError> {
        let authority = text.trim().parse::<Authority>().ok();
        authority.as_ref().and_then(Self::of).ok_or_else(|| AllowedHostError(text.to_owned()))
    }

    fn of(authority: &Authority) -> Option<Self> {
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return None;
        }
        // What follows the host must be a port that can be one.
        let rest = authority.as_str().strip_prefix(authority.host())?;
        let port = match rest.strip_prefix(':') {
            Some("") | None => None,
            Some(port) => Some(port.parse().ok()?),
        };
        Some(Self { host: authority.host().to_ascii_lowercase(), port })
    }

    fn is_loopback(&self) -> bool {
        let address = self.host.trim_matches(['[', ']']).parse::<IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
    }
}

// === impl HostError ===

impl HostError {
    /// The response to the request.
    pub(crate) fn response(self) -> Response<Body> {
        match self {
            Self::Missing => text(StatusCode::BAD_REQUEST, "the request has no Host header"),
            Self::Duplicate => text(StatusCode::BAD_REQUEST, "the request has more than one Host header"),
            Self::Malformed => text(StatusCode::BAD_REQUEST, "the Host of the request is malformed"),
            Self::NotAllowed => {
                let text =
                    "Host not allowed: this listener answers to names of loopback; allow others with --allow-host";
                json(StatusCode::FORBIDDEN, answer::error(None, answer::INVALID_REQUEST, text, None))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn hosts(listen: &str, allowed: &[&str]) -> Hosts {
        let allowed: Vec<String> = allowed.iter().map(|text| (*text).to_owned()).collect();
        Hosts::of(listen.parse().unwrap(), &allowed).unwrap()
    }

    fn check(hosts: &Hosts, version: Version, uri: &str, lines: &[&str]) -> Result<(), HostError> {
        let mut request = Request::new(());
        *request.uri_mut() = uri.parse().unwrap();
        *request.version_mut() = version;
        for line in lines {
            request.headers_mut().append(HOST, line.parse().unwrap());
        }
        hosts.check(&request.into_parts().0)
    }

    #[test]
    fn loopback_answers_to_names_of_loopback_and_to_those_that_are_allowed() {
        let guarded = hosts("127.0.0.1:8080", &["Tools.Test", "one.test:8443"]);
        for host in [
            "localhost",
            "LocalHost:1",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]",
            "[::1]:8080",
            "[::ffff:127.0.0.1]:80",
            "tools.test",
            "tools.test:99",
            "one.test:8443",
        ] {
            assert_eq!(check(&guarded, Version::HTTP_11, "/mcp", &[host]), Ok(()), "{host}");
            assert_eq!(check(&guarded, Version::HTTP_2, &format!("http://{host}/mcp"), &[]), Ok(()), "{host}");
        }
        for host in [
            "evil.test",
            "localhost.evil.test",
            "evil.test:8080",
            "127.0.0.1.evil.test",
            "128.0.0.1",
            "0.0.0.0",
            "[::]",
            "one.test",
            "one.test:80",
            "localhost.",
        ] {
            assert_eq!(check(&guarded, Version::HTTP_11, "/mcp", &[host]), Err(HostError::NotAllowed), "{host}");
            let uri = format!("http://{host}/mcp");
            assert_eq!(check(&guarded, Version::HTTP_2, &uri, &[]), Err(HostError::NotAllowed), "{host}");
            // Neither of two names hides the other.
            assert!(check(&guarded, Version::HTTP_11, &uri, &["localhost"]).is_err(), "{host}");
            assert!(check(&guarded, Version::HTTP_11, "http://localhost/mcp", &[host]).is_err(), "{host}");
        }
        for host in ["", "user@localhost", "localhost:", "localhost:99999", "local host", "localhost:80:80", "[::1"] {
            let found = check(&guarded, Version::HTTP_11, "/mcp", &[host]);
            assert!(found == Err(HostError::Malformed) || host == "localhost:" && found == Ok(()), "{host} {found:?}");
        }
    }

    #[test]
    fn every_listener_wants_exactly_one_host() {
        for listen in ["127.0.0.1:1", "[::1]:1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            let hosts = hosts(listen, &[]);
            assert_eq!(check(&hosts, Version::HTTP_11, "/", &[]), Err(HostError::Missing), "{listen}");
            assert_eq!(check(&hosts, Version::HTTP_11, "http://localhost/", &[]), Err(HostError::Missing), "{listen}");
            assert_eq!(check(&hosts, Version::HTTP_10, "/", &[]), Ok(()), "{listen}");
            let twice = ["localhost", "localhost"];
            assert_eq!(check(&hosts, Version::HTTP_11, "/", &twice), Err(HostError::Duplicate), "{listen}");
            let differs = check(&hosts, Version::HTTP_2, "http://localhost/", &["127.0.0.1"]);
            assert_eq!(differs, Err(HostError::Malformed), "{listen}");
        }
        for listen in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            assert_eq!(check(&hosts(listen, &[]), Version::HTTP_11, "/", &["any.test"]), Ok(()), "{listen}");
        }
    }

    #[test]
    fn what_is_no_host_cannot_be_allowed() {
        for text in ["", "http://a.test", "a.test/path", "u@a.test", "a.test:x", "a.test:70000"] {
            assert!(Hosts::of(([127, 0, 0, 1], 1).into(), &[text.to_owned()]).is_err(), "{text}");
        }
    }
}
