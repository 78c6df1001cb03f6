//! The endpoints that a server named for the messages of its streams, and whose these streams are.
//!
//! A stream over SSE says where messages for it go, and names its session there. Both are kept with the sessions, so that every
//! replica knows them, for as long as the stream is open. Messages for the stream of another client go nowhere.
//!
//! Every call to a remote URL with a path goes to that path, but for messages over SSE: these go where the stream said. Nothing
//! that a client writes into its own URL leads anywhere else.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use http::{Method, Uri};
use url::Url;

use super::Forward;
use crate::caller::Identity;
use crate::exchange::Exchange;
use crate::sessions::{Client, Unavailable};

/// Where messages go at the server: a path and a query.
const ENDPOINT: &str = "endpoint";
/// What servers call a session in the URL for its messages.
const SESSIONS: [&str; 2] = ["sessionId", "session_id"];

/// How a stream was opened.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    /// What its client asked us for.
    asked: Uri,
    /// What we asked the server for, if calls would go to no other path.
    sent: Option<Uri>,
    owner: Owner,
}

/// Whose stream it is, and whom what is kept of it counts against.
#[derive(Clone, Debug, Default)]
struct Owner {
    identity: Option<Identity>,
    address: Option<IpAddr>,
}

/// Where messages for a stream go.
#[derive(Clone, Debug)]
pub(super) struct StreamEndpoint {
    /// What it is kept under.
    name: String,
    /// Where messages go at the server, if they would go to another place otherwise.
    endpoint: Option<String>,
    owner: Owner,
}

/// How many open streams were named each endpoint. Servers whose sessions are not in the URL name the same one to all.
#[derive(Debug, Default)]
pub(super) struct OpenEndpoints(Mutex<HashMap<String, usize>>);

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndpointRoute {
    /// As any call.
    Any,
    /// Where its stream said.
    To(String),
    /// Nowhere: its stream is another client's.
    None,
}

// === impl Opened ===

impl Opened {
    /// The endpoint that the server names on this stream by a URL. The client resolves it against the URL that it knows, behind a prefix
    /// if it is sent one.
    pub(super) fn endpoint(&self, url: &str, is_prefixed: bool) -> Option<StreamEndpoint> {
        let is_bare = is_prefixed && !url.starts_with('/') && !url.contains("://");
        let by_caller = if is_bare { format!("/{url}") } else { url.to_owned() };
        let by_caller = here(&self.asked)?.join(&by_caller).ok()?;
        let owner = self.owner.clone();
        Some(match &self.sent {
            Some(sent) => {
                let endpoint = path_and_query(&Url::parse(&sent.to_string()).ok()?.join(url).ok()?);
                let name = name(&by_caller, owner.identity.as_ref());
                StreamEndpoint { name, endpoint: Some(endpoint), owner }
            }
            None => StreamEndpoint { name: sessions(&by_caller).next()?, endpoint: None, owner },
        })
    }
}

// === impl Owner ===

impl Owner {
    fn client(&self) -> Client<'_> {
        Client { identity: self.identity.as_ref(), address: self.address, kept: 0 }
    }
}

// === impl Forward ===

impl Forward {
    /// How a stream was opened, if it may name an endpoint.
    pub(super) fn opened(&self, exchange: &Exchange) -> Option<Opened> {
        if !self.upstream.is_sse() {
            return None;
        }
        let is_kept = self.upstream.target().keeps_to_a_path();
        let sent = if is_kept { Some(self.upstream.target().uri(&exchange.head.uri, None)?) } else { None };
        let owner = Owner { identity: exchange.head.identity().cloned(), address: Some(exchange.head.client) };
        Some(Opened { asked: exchange.head.uri.clone(), sent, owner })
    }

    /// Whether a stream may have said where a message goes: only then is anything looked up.
    pub(super) fn has_endpoint(&self, exchange: &Exchange) -> bool {
        self.upstream.is_sse() && exchange.head.method == Method::POST
    }

    /// Where a message goes. An endpoint that no stream here named is left to the server.
    pub(super) async fn find_endpoint(&self, exchange: &Exchange) -> Result<EndpointRoute, Unavailable> {
        let Some(asked) = here(&exchange.head.uri) else { return Ok(EndpointRoute::Any) };
        if self.upstream.target().keeps_to_a_path() {
            let found = self.sessions.find(&name(&asked, exchange.head.identity()), exchange).await?;
            let endpoint = found.and_then(|session| session.metadata.get(ENDPOINT).cloned());
            return Ok(endpoint.map_or(EndpointRoute::Any, EndpointRoute::To));
        }
        // Who names several wants one of us to read another one than the server.
        for session in sessions(&asked) {
            if self.sessions.belongs_to_another(&session, exchange.head.identity()).await? {
                return Ok(EndpointRoute::None);
            }
        }
        Ok(EndpointRoute::Any)
    }

    /// Keeps where messages for a stream go, for a while.
    pub(super) async fn keep(&self, named: &StreamEndpoint) {
        let kept = match self.sessions.find(&named.name, named.owner.client()).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                let metadata = named.endpoint.clone().map(|endpoint| (ENDPOINT.to_owned(), endpoint));
                self.sessions.adopt(&named.name, named.owner.client(), metadata).await
            }
            Err(unavailable) => Err(unavailable),
        };
        if let Err(unavailable) = kept {
            tracing::warn!(%unavailable, "endpoint of a stream not stored");
        }
    }

    /// A stream named its endpoint.
    pub(super) fn begin(&self, named: &StreamEndpoint) {
        self.endpoints.begin(&named.name);
    }

    /// The stream has ended. Others may have been named the same endpoint, which is kept for them.
    pub(super) async fn forget(&self, named: &StreamEndpoint) {
        if !self.endpoints.end(&named.name) {
            return;
        }
        if let Err(unavailable) = self.sessions.close(&named.name).await {
            tracing::debug!(%unavailable, "endpoint of a stream left in the store until it expires");
        }
    }
}

// === impl OpenEndpoints ===

impl OpenEndpoints {
    fn begin(&self, name: &str) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *open.entry(name.to_owned()).or_default() += 1;
    }

    /// Ends one stream. Says whether it was the last one.
    fn end(&self, name: &str) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = open.get_mut(name) else { return true };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            open.remove(name);
        }
        is_last
    }
}

/// A URL of this proxy, by whatever name it is called.
fn here(asked: &Uri) -> Option<Url> {
    Url::parse("http://proxy").ok()?.join(asked.path_and_query()?.as_str()).ok()
}

/// The sessions that a URL names: one, if a server wrote it.
fn sessions(url: &Url) -> impl Iterator<Item = String> {
    let is_session = |name: &str| SESSIONS.iter().any(|known| name.eq_ignore_ascii_case(known));
    url.query_pairs().filter(move |(name, value)| is_session(name) && !value.is_empty()).map(|(_, id)| id.into_owned())
}

/// What an endpoint is kept under: the URL by which clients know it. Servers need not name a session in it, so that of one identity is not
/// that of another.
fn name(url: &Url, identity: Option<&Identity>) -> String {
    match identity.filter(|identity| identity.is_authenticated()) {
        Some(identity) => format!("{ENDPOINT} {} {}", path_and_query(url), identity.key()),
        None => format!("{ENDPOINT} {}", path_and_query(url)),
    }
}

fn path_and_query(url: &Url) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use skep_upstream::http::{HttpOptions, HttpUpstream, Target, Transport};

    use super::super::ForwardOptions;
    use super::*;

    #[test]
    fn a_url_means_one_thing_to_the_client_and_another_one_at_the_server() {
        let opened = |asked: &str| Opened {
            asked: asked.parse().unwrap(),
            sent: Some("https://a.example/v1/sse?key=1".parse().unwrap()),
            owner: Owner::default(),
        };
        for (asked, url, is_prefixed, by_caller, endpoint) in [
            ("/sse", "/messages?sessionId=s", false, "/messages?sessionId=s", "/messages?sessionId=s"),
            ("/sse", "/messages?sessionId=s", true, "/messages?sessionId=s", "/messages?sessionId=s"),
            ("/sse", "messages/?s=1#x", false, "/messages/?s=1", "/v1/messages/?s=1"),
            ("/deep/sse", "messages", false, "/deep/messages", "/v1/messages"),
            ("/deep/sse", "messages", true, "/messages", "/v1/messages"),
            ("/sse?a=b", "?sessionId=s", false, "/sse?sessionId=s", "/v1/sse?sessionId=s"),
            ("/sse", "https://a.example/v1/m?s=1", false, "/v1/m?s=1", "/v1/m?s=1"),
        ] {
            let named = opened(asked).endpoint(url, is_prefixed).unwrap();
            assert_eq!(
                (named.name.as_str(), named.endpoint.as_deref()),
                (&*format!("endpoint {by_caller}"), Some(endpoint)),
                "{url}"
            );
            assert_eq!(
                name(&here(&by_caller.parse().unwrap()).unwrap(), None),
                named.name,
                "as its client asks for it"
            );
        }
    }

    #[tokio::test]
    async fn item_8_what_is_kept_of_a_stream_counts_against_its_client() {
        use skep_net::drain::Grace;
        use skep_store::{Memory, SESSION_BYTES, SessionLimits};
        use std::time::Duration;

        let drain = skep_net::Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
        let limits = SessionLimits::of_total(8 * (SESSION_BYTES + 200));
        let store = crate::sessions::Store::Memory(Memory::within(Duration::from_mins(10), limits));
        let sessions = crate::sessions::Sessions::new(store, crate::sessions::Kind::Sse);
        let client = skep_net::Client::new(skep_net::client::Options::default());
        let target = Target::remote("http://192.0.2.1/sse").unwrap();
        let options = HttpOptions { transport: Some(Transport::Sse), ..HttpOptions::default() };
        let upstream = HttpUpstream::new(target, client, options);
        let front = Forward::new(upstream, sessions, ForwardOptions::default(), drain);
        let tell = async |network: u8, number: usize| {
            let peer = skep_net::Peer { address: ([192, 0, 2, network], 1).into(), tls: false };
            let parts = http::Request::get("/sse").body(()).unwrap().into_parts().0;
            let content = crate::exchange::Content::Opaque(bytes::Bytes::new());
            let exchange = Exchange::new(crate::exchange::Head::new(parts, peer), content);
            let url = format!("/messages?sessionId={network}-{number}");
            let named = front.opened(&exchange).unwrap().endpoint(&url, false).unwrap();
            front.keep(&named).await;
            named.name
        };
        let other = tell(2, 0).await;
        let mut kept = 0;
        for number in 0..20 {
            tell(1, number).await;
        }
        for number in 0..20 {
            let url: Uri = format!("/messages?sessionId=1-{number}").parse().unwrap();
            let found = front.sessions.store().touch(&name(&here(&url).unwrap(), None)).await.unwrap();
            kept += usize::from(found.is_some());
        }
        assert!((1..=4).contains(&kept), "one client has half of the limit, and not {kept} of 8");
        assert!(front.sessions.store().touch(&other).await.unwrap().is_some(), "others lose nothing");
    }

    #[test]
    fn an_endpoint_is_kept_until_its_last_stream_ends() {
        let endpoints = OpenEndpoints::default();
        endpoints.begin("a");
        endpoints.begin("a");
        endpoints.begin("b");
        assert!(!endpoints.end("a"));
        assert!(endpoints.end("b"));
        assert!(endpoints.end("a"));
        assert!(endpoints.0.lock().unwrap().is_empty());
    }

    #[test]
    fn one_identity_does_not_take_over_the_endpoint_of_another() {
        let identity =
            |subject: &str| Identity { issuer: "https://idp".into(), subject: subject.into(), name: "".into() };
        let url = here(&"/messages".parse().unwrap()).unwrap();
        assert_ne!(name(&url, Some(&identity("ada"))), name(&url, Some(&identity("bob"))));
        assert_eq!(name(&url, Some(&identity("ada"))), name(&url, Some(&identity("ada"))));
    }

    #[test]
    fn a_session_is_named_in_the_query_however_that_is_written() {
        for (asked, named) in [
            ("/messages?sessionId=a", &["a"][..]),
            ("/messages/?session_id=a&x=1", &["a"]),
            ("/messages?x=1&Session%49d=%61", &["a"]),
            ("/messages?sessionId=a&sessionId=b", &["a", "b"]),
            ("/messages?sessionId=", &[]),
            ("/messages/a", &[]),
        ] {
            let found: Vec<String> = sessions(&here(&asked.parse().unwrap()).unwrap()).collect();
            assert_eq!(found, named, "{asked}");
        }
    }
}
