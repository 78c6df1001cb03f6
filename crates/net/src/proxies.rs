//! HTTP proxies for outbound traffic, from the usual environment variables.
//!
//! The variables come as a map: this crate does not read the environment. The rules are those of Go's standard library,
//! which users of the original know.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use url::{Host, Url};

/// Which proxy, if any, is used for a target.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<HttpProxy>,
    https: Option<HttpProxy>,
    except: Vec<Exception>,
}

/// A proxy: its address and credentials.
#[derive(Clone)]
pub(crate) struct HttpProxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The value of `Proxy-Authorization`.
    pub(crate) authorization: Option<HeaderValue>,
}

/// A proxy variable is invalid. Its value is not shown: it may hold a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{variable}` is not the address of an HTTP proxy; write it like `http://proxy.example.com:3128`")]
pub struct ProxyError {
    variable: &'static str,
}

/// A `NO_PROXY` entry: a target that is reached directly.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Exception {
    what: Target,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Everything,
    Address(IpAddr),
    /// An address block: its first address and prefix length.
    Block(IpAddr, u32),
    /// A domain, and whether it includes the domain itself and not only its subdomains.
    Domain {
        name: String,
        itself: bool,
    },
}

impl Proxies {
    /// Parses `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, in upper or lower case, from these variables.
    pub fn from_variables(variables: &BTreeMap<String, String>) -> Result<Self, ProxyError> {
        let find = |upper: &str| {
            let value = variables.get(upper).or_else(|| variables.get(&upper.to_ascii_lowercase()));
            value.map(|value| value.trim()).filter(|value| !value.is_empty())
        };
        let proxy = |variable: &'static str| {
            find(variable).map(|value| HttpProxy::parse(value).ok_or(ProxyError { variable })).transpose()
        };
        let except = find("NO_PROXY").unwrap_or_default().split(',').filter_map(Exception::parse).collect();
        Ok(Self { http: proxy("HTTP_PROXY")?, https: proxy("HTTPS_PROXY")?, except })
    }

    /// Whether there is any proxy at all.
    pub fn is_empty(&self) -> bool {
        self.http.is_none() && self.https.is_none()
    }

    /// The proxy for a target. Loopback targets are always reached directly.
    pub(crate) fn find(&self, https: bool, host: &str, port: u16) -> Option<&HttpProxy> {
        let proxy = if https { self.https.as_ref() } else { self.http.as_ref() }?;
        let host = host.trim_start_matches('[').trim_end_matches([']', '.']).to_ascii_lowercase();
        let address: Option<IpAddr> = host.parse().ok().map(|address: IpAddr| address.to_canonical());
        let is_here = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        let excepted = self.except.iter().any(|exception| exception.covers(&host, address, port));
        (!is_here && !excepted).then_some(proxy)
    }
}

impl HttpProxy {
    fn parse(text: &str) -> Option<Self> {
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&with_scheme).ok().filter(|url| url.scheme() == "http")?;
        let host = match url.host()? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        let authorization = if url.username().is_empty() { None } else { Some(credentials(&url)?) };
        Some(Self { host, port: url.port_or_known_default()?, authorization })
    }
}

/// User and password as HTTP basic authentication.
fn credentials(url: &Url) -> Option<HeaderValue> {
    let plain = format!("{}:{}", decoded(url.username()), decoded(url.password().unwrap_or_default()));
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(plain))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Decodes percent-encoding; invalid UTF-8 is replaced.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut ahead = rest.clone();
        let mut digit = || ahead.next().and_then(|digit| char::from(digit).to_digit(16));
        match (byte, digit(), digit()) {
            (b'%', Some(high), Some(low)) => {
                bytes.extend(u8::try_from(high * 16 + low).ok());
                rest = ahead;
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Exception {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let whole = |what| Some(Self { what, port: None });
        if text == "*" {
            return whole(Target::Everything);
        }
        if let Some((address, bits)) = text.split_once('/')
            && let (Ok(address), Ok(bits)) = (address.parse(), bits.parse())
        {
            return whole(Target::Block(address, bits));
        }
        if let Ok(address) = text.trim_start_matches('[').trim_end_matches(']').parse() {
            return whole(Target::Address(address));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (text.as_str(), None),
        };
        let what = if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
            Target::Address(address)
        } else {
            let name = host.trim_start_matches("*.").trim_start_matches('.').trim_end_matches('.');
            Target::Domain { name: name.to_owned(), itself: !host.starts_with(['.', '*']) }
        };
        let is_empty = matches!(&what, Target::Domain { name, .. } if name.is_empty());
        (!is_empty).then_some(Self { what, port })
    }

    fn covers(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        if self.port.is_some_and(|only| only != port) {
            return false;
        }
        match &self.what {
            Target::Everything => true,
            Target::Address(this) => address == Some(*this),
            Target::Block(first, bits) => address.is_some_and(|address| is_inside(address, *first, *bits)),
            Target::Domain { name, itself } => match host.strip_suffix(name.as_str()) {
                Some("") => *itself,
                Some(above) => above.ends_with('.'),
                None => false,
            },
        }
    }
}

fn is_inside(address: IpAddr, first: IpAddr, bits: u32) -> bool {
    match (address, first) {
        (IpAddr::V4(address), IpAddr::V4(first)) => (address.to_bits() ^ first.to_bits()).leading_zeros() >= bits,
        (IpAddr::V6(address), IpAddr::V6(first)) => (address.to_bits() ^ first.to_bits()).leading_zeros() >= bits,
        _ => false,
    }
}

impl fmt::Debug for HttpProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpProxy").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Proxies::from_variables(&variables)
    }

    #[test]
    fn each_scheme_has_its_proxy() {
        let proxies = proxies(&[("HTTP_PROXY", "http://one:3128"), ("https_proxy", "two.test:8080")]).unwrap();
        let found = |https| proxies.find(https, "mcp.test", 80).map(|proxy| (proxy.host.as_str(), proxy.port));
        assert_eq!(found(false), Some(("one", 3128)));
        assert_eq!(found(true), Some(("two.test", 8080)));
        assert!(proxies.find(true, "localhost", 80).is_none());
        assert!(proxies.find(true, "127.0.0.9", 80).is_none());
        assert!(proxies.find(true, "[::1]", 80).is_none());
    }

    #[test]
    fn exceptions_are_reached_directly() {
        let except = "one.test, .two.test,three.test:8080,10.0.0.0/8,192.168.1.1,[fd00::1]:443,fd01::/16, ,*.four.test";
        let proxies = proxies(&[("HTTP_PROXY", "p:1"), ("NO_PROXY", except)]).unwrap();
        let direct = [
            ("one.test", 80),
            ("sub.ONE.test", 80),
            ("sub.two.test", 80),
            ("three.test", 8080),
            ("10.9.8.7", 1),
            ("192.168.1.1", 80),
            ("[fd00::1]", 443),
            ("[fd01:2::3]", 80),
            ("a.four.test", 80),
            ("one.test.", 80),
        ];
        for (host, port) in direct {
            assert!(proxies.find(false, host, port).is_none(), "{host}:{port}");
        }
        let through = [
            ("two.test", 80),
            ("xone.test", 80),
            ("three.test", 80),
            ("11.0.0.1", 80),
            ("[fd00::1]", 80),
            ("four.test", 80),
            ("192.168.1.2", 80),
        ];
        for (host, port) in through {
            assert!(proxies.find(false, host, port).is_some(), "{host}:{port}");
        }
        let none = super::tests::proxies(&[("HTTP_PROXY", "p:1"), ("NO_PROXY", "*")]).unwrap();
        assert!(none.find(false, "mcp.test", 80).is_none());
    }

    #[test]
    fn credentials_are_sent_and_never_shown() {
        let proxies = proxies(&[("HTTP_PROXY", "http://user:pa%40ss@proxy.test")]).unwrap();
        let proxy = proxies.find(false, "mcp.test", 80).unwrap();
        assert_eq!(proxy.authorization.as_ref().unwrap(), "Basic dXNlcjpwYUBzcw==");
        assert_eq!(proxy.port, 80);
        let shown = format!("{proxies:?}");
        assert!(!shown.contains("dXNl") && !shown.contains("pa"), "{shown}");
    }

    #[test]
    fn an_invalid_proxy_is_an_error_without_its_value() {
        for wrong in ["socks5://proxy.test", "https://proxy.test", "http://", "user:secret@"] {
            let error = proxies(&[("HTTPS_PROXY", wrong)]).unwrap_err();
            assert_eq!(error, ProxyError { variable: "HTTPS_PROXY" });
            assert!(!error.to_string().contains("secret"));
        }
        assert!(proxies(&[("HTTP_PROXY", " ")]).unwrap().is_empty());
    }
}
