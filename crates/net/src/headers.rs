//! Header rules of a reverse proxy, as pure functions on a header map.

use std::net::IpAddr;

use http::Uri;
use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Headers in which various proxies report the client's address. Only a trusted proxy may set them.
static CLIENT_ADDRESS: [HeaderName; 8] = [
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-client-ip"),
    HeaderName::from_static("x-cluster-client-ip"),
    HeaderName::from_static("x-original-forwarded-for"),
    HeaderName::from_static("x-envoy-external-address"),
    HeaderName::from_static("true-client-ip"),
    HeaderName::from_static("cf-connecting-ip"),
    HeaderName::from_static("fastly-client-ip"),
];

/// Hop-by-hop headers. Not a `const`, which would be built anew for each lookup.
static HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    KEEP_ALIVE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes hop-by-hop headers, including those that `Connection` names. Upgrades are not forwarded.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // One lookup for each name: most messages carry none of these, and the others one or two.
    let found: Vec<HeaderName> = headers.keys().filter(|name| HOP_BY_HOP.contains(name)).cloned().collect();
    if found.is_empty() {
        return;
    }
    let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .collect();
    for name in found.iter().chain(&named) {
        headers.remove(name);
    }
}

/// The origin and the target of a forwarded request.
#[derive(Clone, Copy, Debug)]
pub struct Forwarded<'a> {
    /// The address of the peer.
    pub peer: IpAddr,
    /// The host that the client requested, as [`inbound_host`] finds it.
    pub host: Option<&'a HeaderValue>,
    /// Whether the client's connection was TLS.
    pub tls: bool,
    /// The scheme of a target outside the cluster; `None` for one inside.
    pub remote: Option<&'a Scheme>,
    /// Whether the peer is a trusted proxy, whose headers about its client are kept.
    pub trusted: bool,
}

/// Replaces the client's claims about its origin with the observed facts. A target outside the cluster does not learn
/// the host name of this proxy and gets its own scheme. `X-Forwarded-Prefix` passes through, and `X-Real-IP` and
/// similar headers pass through from a trusted peer.
pub fn set_forwarded(headers: &mut HeaderMap, forwarded: &Forwarded<'_>) {
    headers.remove(header::FORWARDED);
    if !forwarded.trusted {
        for name in &CLIENT_ADDRESS {
            headers.remove(name);
        }
    }
    if let Ok(peer) = HeaderValue::from_str(&forwarded.peer.to_canonical().to_string()) {
        headers.insert(X_FORWARDED_FOR, peer);
    }
    let https = match forwarded.remote {
        None => forwarded.tls,
        Some(scheme) => *scheme == Scheme::HTTPS,
    };
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(if https { "https" } else { "http" }));
    match forwarded.host.filter(|_| forwarded.remote.is_none()) {
        Some(host) => headers.insert(X_FORWARDED_HOST, host.clone()),
        None => headers.remove(X_FORWARDED_HOST),
    };
}

/// The host that a client requested: the authority of an absolute or HTTP/2 request, else the `Host` header.
pub fn inbound_host(uri: &Uri, headers: &HeaderMap) -> Option<HeaderValue> {
    match uri.authority() {
        Some(authority) => host(authority),
        None => headers.get(header::HOST).cloned(),
    }
}

/// The `Host` header for a target: its host and, when given, its port. Never credentials.
pub fn host(target: &Authority) -> Option<HeaderValue> {
    let text = target.as_str();
    let text = text.rsplit_once('@').map_or(text, |(_credentials, host)| host);
    HeaderValue::from_str(text).ok()
}

/// Sets `Host` unless the request has one.
pub(crate) fn set_host_if_missing(headers: &mut HeaderMap, host: Option<&HeaderValue>) {
    if let (Entry::Vacant(entry), Some(host)) = (headers.entry(header::HOST), host) {
        entry.insert(host.clone());
    }
}

/// The comma-separated tokens of a header, over all of its lines.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        lines.iter().map(pair).collect()
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut map = headers(&[
            ("connection", "close, X-One"),
            ("connection", " x-two ,, te"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic x"),
            ("proxy-authenticate", "Basic"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("content-type", "application/json"),
        ]);
        remove_hop_by_hop(&mut map);
        assert_eq!(map, headers(&[("content-type", "application/json")]));
        let mut map = headers(&[("connection", "Upgrade"), ("upgrade", "websocket"), ("accept", "*/*")]);
        remove_hop_by_hop(&mut map);
        assert_eq!(map, headers(&[("accept", "*/*")]));
    }

    #[test]
    fn claims_of_the_client_are_replaced() {
        let claims = [
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-for", "5.6.7.8"),
            ("x-forwarded-host", "evil.test"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-prefix", "/team"),
            ("x-real-ip", "1.2.3.4"),
            ("X-Real-Ip", "5.6.7.8"),
            ("true-client-ip", "1.2.3.4"),
            ("cf-connecting-ip", "1.2.3.4"),
            ("x-original-forwarded-for", "1.2.3.4"),
        ];
        let host = HeaderValue::from_static("mcp.test");
        let peer = "::ffff:10.0.0.9".parse().unwrap();
        let mut map = headers(&claims);
        set_forwarded(&mut map, &Forwarded { peer, host: Some(&host), tls: false, remote: None, trusted: false });
        let expected = [
            ("x-forwarded-for", "10.0.0.9"),
            ("x-forwarded-host", "mcp.test"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-prefix", "/team"),
        ];
        assert_eq!(map, headers(&expected));
        let mut map = headers(&claims);
        set_forwarded(
            &mut map,
            &Forwarded { peer, host: Some(&host), tls: false, remote: Some(&Scheme::HTTPS), trusted: false },
        );
        let expected =
            [("x-forwarded-for", "10.0.0.9"), ("x-forwarded-proto", "https"), ("x-forwarded-prefix", "/team")];
        assert_eq!(map, headers(&expected));
    }

    /// Item 17-14: a client cannot claim an address, a trusted proxy can.
    #[test]
    fn x_real_ip_passes_from_a_trusted_proxy_only() {
        let peer = "10.0.0.9".parse().unwrap();
        for trusted in [false, true] {
            let mut map = headers(&[("x-real-ip", "1.2.3.4"), ("x-forwarded-for", "1.2.3.4")]);
            set_forwarded(&mut map, &Forwarded { peer, host: None, tls: false, remote: None, trusted });
            assert_eq!(map.get("x-real-ip").is_some(), trusted);
            assert_eq!(map["x-forwarded-for"], "10.0.0.9");
        }
    }

    #[test]
    fn the_host_of_a_target_has_no_credentials() {
        let host = |authority: &str| host(&authority.parse().unwrap()).unwrap();
        assert_eq!(host("user:word@mcp.test:8080"), "mcp.test:8080");
        assert_eq!(host("[::1]:80"), "[::1]:80");
    }

    #[test]
    fn the_inbound_host_is_the_authority_or_the_header() {
        let map = headers(&[("host", "two.test")]);
        for (asked, host) in
            [("http://one.test/mcp", "one.test"), ("http://user:word@one.test/mcp", "one.test"), ("/mcp", "two.test")]
        {
            assert_eq!(inbound_host(&asked.parse().unwrap(), &map).unwrap(), host);
        }
    }
}
