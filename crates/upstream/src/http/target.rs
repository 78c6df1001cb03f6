//! The URL of a server, and the URL of each request to it.

use std::net::SocketAddr;

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Uri};

/// Where calls go.
#[derive(Clone, Debug)]
pub struct Target {
    scheme: Scheme,
    authority: http::uri::Authority,
    /// What a remote URL has behind its host.
    remote: Option<Remote>,
    /// Where requests go that no client asked a path for.
    own: Option<Uri>,
}

#[derive(Clone, Debug)]
struct Remote {
    /// Every call goes to this path, if there is one.
    path: Option<String>,
    query: Option<String>,
    /// Where calls to that path go that bring no query of their own: nearly all of them.
    plain: Option<Uri>,
}

/// What is wrong with a target.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a URL to call; write it like http://host:port")]
pub struct TargetError(String);

// === impl Target ===

impl Target {
    /// A server in the cluster or on this machine.
    pub fn local(url: &str) -> Result<Self, TargetError> {
        let uri: Uri = url.parse().map_err(|_| TargetError(url.to_owned()))?;
        let (Some(scheme), Some(authority)) = (uri.scheme().cloned(), uri.authority().cloned()) else {
            return Err(TargetError(url.to_owned()));
        };
        Ok(Self { scheme, authority, remote: None, own: None })
    }

    /// A remote server. A URL that ends with a slash means that path, and no other one.
    pub fn remote(text: &str) -> Result<Self, TargetError> {
        let url: url::Url = text.parse().map_err(|_| TargetError(text.to_owned()))?;
        let origin = url.origin().ascii_serialization();
        let mut target = Self::local(&origin)?;
        let path = Some(url.path()).filter(|path| !path.is_empty() && (*path != "/" || has_path(text)));
        target.remote = Some(Remote {
            path: path.map(str::to_owned),
            query: url.query().filter(|query| !query.is_empty()).map(str::to_owned),
            plain: None,
        });
        let plain = path.and_then(|_| target.uri(&Uri::default(), None));
        if let Some(remote) = &mut target.remote {
            remote.plain = plain;
        }
        Ok(target)
    }

    /// The same with a path for requests that no client asked one for. A remote URL has its own.
    #[must_use]
    pub fn with_path(mut self, path: &str) -> Self {
        let path = path.parse().ok().filter(|_| !self.keeps_to_a_path());
        self.own = path.and_then(|path| self.with(path));
        self
    }

    /// Where requests go that no client asked a path for.
    pub(super) fn own_uri(&self) -> Option<Uri> {
        self.own.clone().or_else(|| self.uri(&Uri::default(), None))
    }

    /// Whether the server is remote.
    pub(super) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// The scheme, if the server is remote.
    pub fn remote_scheme(&self) -> Option<&Scheme> {
        self.remote.as_ref().map(|_| &self.scheme)
    }

    /// The URL of the server without a path.
    pub fn base(&self) -> Option<Uri> {
        self.with(PathAndQuery::from_static("/"))
    }

    /// Whether calls go to one path, whatever clients ask for.
    pub fn keeps_to_a_path(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.path.is_some())
    }

    /// Where a call goes. A remote URL with a path is the path of every call but those to where the server itself sent the
    /// client, which `endpoint` says, and its query comes before the client's.
    pub fn uri(&self, asked: &Uri, endpoint: Option<&str>) -> Option<Uri> {
        let Some(remote) = &self.remote else {
            return self.with(asked.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
        };
        let asked_query = asked.query().filter(|query| !query.is_empty());
        if let Some(plain) = remote.plain.as_ref().filter(|_| asked_query.is_none() && endpoint.is_none()) {
            return Some(plain.clone());
        }
        let (path, query) = match (endpoint, &remote.path) {
            // A message for a stream goes where that stream said.
            (Some(endpoint), _) => {
                endpoint.split_once('?').map_or((endpoint, None), |(path, query)| (path, Some(query)))
            }
            (None, Some(path)) => (path.as_str(), asked_query),
            (None, None) => (asked.path(), asked_query),
        };
        let query = match (&remote.query, query) {
            (Some(theirs), Some(callers)) => format!("?{theirs}&{callers}"),
            (Some(one), None) => format!("?{one}"),
            (None, Some(one)) => format!("?{one}"),
            (None, None) => String::new(),
        };
        self.with(format!("{path}{query}").parse().ok()?)
    }

    /// The same call at one pod, or at the Service in front of all.
    pub(super) fn at(&self, uri: &Uri, pod: Option<SocketAddr>) -> Option<Uri> {
        let mut parts = uri.clone().into_parts();
        parts.authority = Some(match pod {
            Some(pod) => pod.to_string().parse().ok()?,
            None => self.authority.clone(),
        });
        Uri::from_parts(parts).ok()
    }

    /// The name that the server is called by, whichever pod answers.
    pub(super) fn name(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.authority.as_str()).ok()
    }

    fn with(&self, path: PathAndQuery) -> Option<Uri> {
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        uri.path_and_query(path).build().ok()
    }
}

/// Whether a URL is written with a path. A parsed one always has one.
fn has_path(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['?', '#']).next().is_some_and(|place| place.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(target: &Target, asked: &str) -> String {
        target.uri(&asked.parse().unwrap(), None).unwrap().to_string()
    }

    #[test]
    fn a_local_server_gets_paths_and_queries_as_they_are() {
        let target = Target::local("http://mcp-s:8080").unwrap();
        assert_eq!(uri(&target, "/mcp?a=%20b"), "http://mcp-s:8080/mcp?a=%20b");
        assert_eq!(uri(&target, "/"), "http://mcp-s:8080/");
    }

    #[test]
    fn requests_of_the_proxys_own_have_a_path() {
        let own = |target: Target| target.own_uri().unwrap().to_string();
        assert_eq!(own(Target::local("http://mcp-s:8080").unwrap()), "http://mcp-s:8080/");
        assert_eq!(own(Target::local("http://mcp-s:8080").unwrap().with_path("/mcp")), "http://mcp-s:8080/mcp");
        assert_eq!(own(Target::remote("https://a.example").unwrap().with_path("/mcp")), "https://a.example/mcp");
        assert_eq!(
            own(Target::remote("https://a.example/x?k=1").unwrap().with_path("/mcp")),
            "https://a.example/x?k=1"
        );
    }

    #[test]
    fn a_remote_path_takes_every_call_and_its_query_comes_first() {
        let target = |url: &str| Target::remote(url).unwrap();
        assert_eq!(uri(&target("https://a.example/x/mcp?k=1"), "/mcp?c=2"), "https://a.example/x/mcp?k=1&c=2");
        assert_eq!(uri(&target("https://a.example/x/mcp?k=1"), "/mcp"), "https://a.example/x/mcp?k=1");
        for bare in ["https://a.example", "https://a.example?k=1", "https://a.example#top"] {
            assert!(uri(&target(bare), "/other").starts_with("https://a.example/other"), "{bare}");
        }
        assert_eq!(uri(&target("https://a.example/"), "/other"), "https://a.example/");
        assert_eq!(uri(&target("https://a.example/?k=1"), "/other"), "https://a.example/?k=1");
        // A server that speaks SSE says itself where messages go. Its client does not.
        let message = "/messages?sessionId=s";
        let endpoint =
            |url: &str, endpoint| target(url).uri(&message.parse().unwrap(), Some(endpoint)).unwrap().to_string();
        assert_eq!(endpoint("https://a.example/sse", message), "https://a.example/messages?sessionId=s");
        assert_eq!(endpoint("https://a.example/sse?k=1", message), "https://a.example/messages?k=1&sessionId=s");
        assert_eq!(endpoint("https://a.example/sse", "/messages/s"), "https://a.example/messages/s");
        assert_eq!(uri(&target("https://a.example/sse"), message), "https://a.example/sse?sessionId=s");
    }
}
