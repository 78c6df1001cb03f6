//! URLs that people give us to call: of remote servers, and of identity providers.
//!
//! A URL is validated by its text. The outbound client checks the resolved address when it dials, by the same table.

use ::url::{Host, Url};
use skep_address::{Addresses, Scope, scope_of, scope_of_name};
use skep_bounds::REMOTE_URL_BYTES;

use crate::world::Site;

/// A URL cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is not a URL.
    #[error("`{0}` is not a URL; write one such as `https://mcp.example.com/mcp`")]
    Malformed(String),
    /// It is too long.
    #[error("it has {0} bytes, and {REMOTE_URL_BYTES} are the most; write a shorter one")]
    TooLong(usize),
    /// It is neither `http` nor `https`.
    #[error("`{0}` must begin with `https://` or `http://`")]
    Scheme(String),
    /// It is not `https`.
    #[error("`{0}` must begin with `https://`; for development, insecureAllowHTTP lets plain HTTP through")]
    Insecure(String),
    /// It leads to this pod, to the cluster's control plane or to the cloud's metadata.
    #[error(
        "host `{0}` leads to this machine, its link, a metadata service or the control plane of the cluster, which is never allowed"
    )]
    Forbidden(String),
    /// It leads into a private network.
    #[error("host `{0}` is in a private network; set allowPrivateEndpoint to true if that is meant")]
    Private(String),
}

/// Names of the control plane, which are never called, and all below them.
const CONTROL_PLANE: &[&str] =
    &["kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

/// The URL of a remote MCP server, by the same table of addresses as the proxy that dials it.
pub fn remote_url(text: &str, allow_private: bool, site: Site) -> Result<Url, UrlError> {
    if text.len() > REMOTE_URL_BYTES {
        return Err(UrlError::TooLong(text.len()));
    }
    let url = parse(text)?;
    let host = url.host().ok_or_else(|| UrlError::Malformed(text.to_owned()))?;
    let widest = match site {
        Site::Cluster => Addresses::Cluster,
        Site::Machine => Addresses::Machine,
    };
    let scope = scope(&host);
    if is_control_plane(&host) || !widest.allow(scope) {
        return Err(UrlError::Forbidden(host.to_string()));
    }
    if matches!(scope, Scope::Private | Scope::Reserved) && !allow_private {
        return Err(UrlError::Private(host.to_string()));
    }
    Ok(url)
}

/// The URL of an identity provider: its issuer, its keys, its introspection.
pub fn provider_url(text: &str, insecure_allow_http: bool) -> Result<Url, UrlError> {
    let url = parse(text)?;
    if url.scheme() != "https" && !insecure_allow_http {
        return Err(UrlError::Insecure(text.to_owned()));
    }
    // Providers may be in the cluster or, for development, on this machine.
    let host = url.host().ok_or_else(|| UrlError::Malformed(text.to_owned()))?;
    if !Addresses::Machine.allow(scope(&host)) {
        return Err(UrlError::Forbidden(host.to_string()));
    }
    Ok(url)
}

/// Where a host leads, as far as it says so itself.
pub(crate) fn scope(host: &Host<&str>) -> Scope {
    match host {
        Host::Domain(name) => scope_of_name(name).unwrap_or(Scope::Public),
        Host::Ipv4(address) => scope_of((*address).into()),
        Host::Ipv6(address) => scope_of((*address).into()),
    }
}

fn is_control_plane(host: &Host<&str>) -> bool {
    let Host::Domain(name) = host else { return false };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_below =
        |parent: &&str| name.strip_suffix(*parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    CONTROL_PLANE.iter().any(is_below)
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

#[cfg(test)]
mod tests;
