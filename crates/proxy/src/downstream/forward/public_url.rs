//! The URL by which clients reach this proxy, for the URLs that a server sends them.

use http::HeaderMap;

use super::ForwardOptions;
use crate::exchange::Exchange;

/// How clients reach this proxy, for the URLs that a server sends them.
#[derive(Clone, Debug, Default)]
pub(super) struct PublicUrl {
    prefix: String,
    host: Option<String>,
    scheme: Option<String>,
}

// === impl PublicUrl ===

impl PublicUrl {
    pub(super) fn of(options: &ForwardOptions, exchange: &Exchange) -> Self {
        let said = |name: &str| -> Option<String> {
            let value = header(&exchange.head.headers, name).filter(|_| options.trust_proxy_headers)?;
            Some(value.split(',').next().unwrap_or_default().trim().to_owned())
        };
        let prefix = match options.endpoint_prefix.as_str() {
            "" => said("x-forwarded-prefix").unwrap_or_default(),
            own => own.to_owned(),
        };
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        let host = said("x-forwarded-host").filter(|host| !host.is_empty());
        let scheme = host.as_ref().and_then(|_| said("x-forwarded-proto"));
        Self { prefix, host, scheme }
    }

    /// Whether clients get a prefix before every path.
    pub(super) fn is_prefixed(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// The URL as the client must use it.
    pub(super) fn rewrite(&self, url: &str) -> String {
        let (origin, path) = match url.split_once("://") {
            Some((scheme, rest)) => {
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (Some((scheme, host)), path)
            }
            None => (None, url),
        };
        // What stands behind a host or a prefix begins with a slash.
        let is_relative = origin.is_none() && self.host.is_none() && self.prefix.is_empty();
        let slash = if is_relative || path.starts_with('/') { "" } else { "/" };
        let path = format!("{}{slash}{path}", self.prefix);
        let said = self.scheme.as_deref().filter(|scheme| !scheme.is_empty());
        match (origin, &self.host) {
            (None, None) => path,
            (Some((scheme, host)), None) => format!("{scheme}://{host}{path}"),
            (Some((scheme, _)), Some(host)) => format!("{}://{host}{path}", said.unwrap_or(scheme)),
            (None, Some(host)) => match said {
                Some(scheme) => format!("{scheme}://{host}{path}"),
                // The one by which the client came, which is not known.
                None => format!("//{host}{path}"),
            },
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_urls_that_they_can_use() {
        let plain = PublicUrl::default();
        assert_eq!(plain.rewrite("/messages?sessionId=s"), "/messages?sessionId=s");
        let prefixed = PublicUrl { prefix: "/tools".to_owned(), ..PublicUrl::default() };
        assert_eq!(prefixed.rewrite("/messages?sessionId=s"), "/tools/messages?sessionId=s");
        assert_eq!(prefixed.rewrite("http://mcp-s:1/messages"), "http://mcp-s:1/tools/messages");
        let outside = PublicUrl { host: Some("h.example".into()), scheme: Some("https".into()), prefix: "/p".into() };
        assert_eq!(outside.rewrite("/messages"), "https://h.example/p/messages");
        assert_eq!(outside.rewrite("http://mcp-s:1/messages"), "https://h.example/p/messages");
        let bare = PublicUrl { prefix: String::new(), ..outside };
        assert_eq!(bare.rewrite("messages?sessionId=s"), "https://h.example/messages?sessionId=s");
        // The scheme by which clients come is not known: they keep theirs.
        let unsaid = PublicUrl { scheme: None, ..bare };
        assert_eq!(unsaid.rewrite("/messages"), "//h.example/messages");
        assert_eq!(unsaid.rewrite("https://mcp-s:1/messages"), "https://h.example/messages");
    }
}
