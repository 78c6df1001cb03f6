//! URLs that people give us to call: of remote servers, and of identity providers.
//!
//! A URL is judged by what it says. That a harmless name leads to a forbidden address is for the connector to find, which
//! knows the address at the moment of the connection.

use core::net::{Ipv4Addr, Ipv6Addr};

use ::url::{Host, Url};

/// A URL cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is not a URL.
    #[error("`{0}` is not a URL; write one such as `https://mcp.example.com/mcp`")]
    Malformed(String),
    /// It is neither `http` nor `https`.
    #[error("`{0}` must begin with `https://` or `http://`")]
    Scheme(String),
    /// It is not `https`.
    #[error("`{0}` must begin with `https://`; for development, insecureAllowHTTP lets plain HTTP through")]
    Insecure(String),
    /// It leads to this pod, to the cluster's control plane or to the cloud's metadata.
    #[error("host `{0}` leads to this machine or to the control plane of the cluster, which is never allowed")]
    Forbidden(String),
    /// It leads into a private network.
    #[error("host `{0}` is in a private network; set allowPrivateEndpoint to true if that is meant")]
    Private(String),
}

/// How near a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Public,
    Private,
    Forbidden,
}

/// Names that are never called, and all below them.
const FORBIDDEN: &[&str] = &[
    "localhost",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "metadata.google.internal",
];

/// The cluster's own names.
const PRIVATE: &[&str] = &["cluster.local"];

/// The URL of a remote MCP server.
pub fn remote_url(text: &str, allow_private: bool) -> Result<Url, UrlError> {
    let url = parse(text)?;
    let host = url.host().ok_or_else(|| UrlError::Malformed(text.to_owned()))?;
    match reach(&host) {
        Reach::Forbidden => Err(UrlError::Forbidden(host.to_string())),
        Reach::Private if !allow_private => Err(UrlError::Private(host.to_string())),
        Reach::Private | Reach::Public => Ok(url),
    }
}

/// The URL of an identity provider: its issuer, its keys, its introspection.
pub fn provider_url(text: &str, insecure_allow_http: bool) -> Result<Url, UrlError> {
    let url = parse(text)?;
    if url.scheme() != "https" && !insecure_allow_http {
        return Err(UrlError::Insecure(text.to_owned()));
    }
    Ok(url)
}

/// A URL over HTTP with a host. Browsers forgive spaces, backslashes and missing slashes; we do not.
fn parse(text: &str) -> Result<Url, UrlError> {
    let malformed = || UrlError::Malformed(text.to_owned());
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '\\';
    let (scheme, rest) = text.split_once("://").ok_or_else(malformed)?;
    if !["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
        return Err(UrlError::Scheme(text.to_owned()));
    }
    if rest.is_empty() || rest.starts_with(['/', '?', '#', ':']) || text.contains(is_odd) {
        return Err(malformed());
    }
    Url::parse(text).map_err(|_| malformed())
}

fn reach(host: &Host<&str>) -> Reach {
    match host {
        Host::Domain(name) => reach_of_name(name),
        Host::Ipv4(address) => reach_of_ipv4(*address),
        Host::Ipv6(address) => reach_of_ipv6(*address),
    }
}

fn reach_of_name(name: &str) -> Reach {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_below =
        |parent: &&str| name.strip_suffix(*parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if FORBIDDEN.iter().any(&is_below) {
        Reach::Forbidden
    } else if PRIVATE.iter().any(&is_below) {
        Reach::Private
    } else {
        Reach::Public
    }
}

fn reach_of_ipv4(address: Ipv4Addr) -> Reach {
    if address.octets().starts_with(&[0]) || address.is_loopback() || address.is_link_local() {
        Reach::Forbidden
    } else if address.is_private() {
        Reach::Private
    } else {
        Reach::Public
    }
}

/// An address that stands for one of IPv4 reaches as far as that one.
fn reach_of_ipv6(address: Ipv6Addr) -> Reach {
    if let Some(embedded) = address.to_ipv4_mapped().or_else(|| translated(address)) {
        return reach_of_ipv4(embedded);
    }
    if address.is_unspecified() || address.is_loopback() || address.is_unicast_link_local() {
        Reach::Forbidden
    } else if address.is_unique_local() {
        Reach::Private
    } else {
        Reach::Public
    }
}

/// The address behind `64:ff9b::/96`, the prefix of translators.
fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
