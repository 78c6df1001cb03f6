//! Where a remote server told callers to send the messages for their streams.
//!
//! Every call to a remote URL with a path goes to that path, but for messages over SSE: these go where the stream said. What it
//! said is kept with the sessions, so that every replica knows it, for as long as the stream is open. Nothing that a caller
//! writes into its own URL leads anywhere else.

use std::time::Duration;

use http::{Method, Uri};
use url::Url;

use super::Transparent;
use crate::exchange::{Exchange, Identity};
use crate::sessions::Unavailable;

/// Where messages go at the server: a path and a query.
const ENDPOINT: &str = "endpoint";
/// How often it is kept anew while the stream is open.
pub(super) const AGAIN: Duration = Duration::from_mins(1);

/// How a stream was opened.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    /// What its caller asked us for.
    asked: Uri,
    /// What we asked the server for.
    sent: Uri,
    identity: Option<Identity>,
}

/// Where messages for a stream go.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// What it is kept under.
    name: String,
    endpoint: String,
    identity: Option<Identity>,
}

// === impl Opened ===

impl Opened {
    /// What a URL means that the server told on this stream. The caller reads it against the URL that it knows, behind a prefix
    /// if it is told one.
    pub(super) fn told(&self, url: &str, is_prefixed: bool) -> Option<Told> {
        let is_bare = is_prefixed && !url.starts_with('/') && !url.contains("://");
        let by_caller = if is_bare { format!("/{url}") } else { url.to_owned() };
        Some(Told {
            name: name(&here(&self.asked)?.join(&by_caller).ok()?),
            endpoint: path_and_query(&Url::parse(&self.sent.to_string()).ok()?.join(url).ok()?),
            identity: self.identity.clone(),
        })
    }
}

// === impl Transparent ===

impl Transparent {
    /// How a stream was opened, if anybody must know.
    pub(super) fn opened(&self, exchange: &Exchange) -> Option<Opened> {
        let sent = self.is_needed().then(|| self.target.uri(&exchange.uri, None)).flatten()?;
        Some(Opened { asked: exchange.uri.clone(), sent, identity: exchange.identity.clone() })
    }

    /// Whether a stream may have said where a message goes: only then is anything looked up.
    pub(super) fn may_be_told(&self, exchange: &Exchange) -> bool {
        self.is_needed() && exchange.method == Method::POST
    }

    /// Where a message goes, if a stream of this caller said so.
    pub(super) async fn told(&self, exchange: &Exchange) -> Result<Option<String>, Unavailable> {
        let Some(asked) = here(&exchange.uri) else { return Ok(None) };
        let found = self.sessions.find(&name(&asked), exchange.identity.as_ref()).await?;
        Ok(found.and_then(|session| session.metadata.get(ENDPOINT).cloned()))
    }

    /// Keeps where messages for a stream go, for a while.
    pub(super) async fn keep(&self, told: &Told) {
        let kept = match self.sessions.find(&told.name, told.identity.as_ref()).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                let metadata = [(ENDPOINT.to_owned(), told.endpoint.clone())];
                self.sessions.adopt(&told.name, told.identity.as_ref(), metadata).await
            }
            Err(unavailable) => Err(unavailable),
        };
        if let Err(unavailable) = kept {
            tracing::warn!(%unavailable, "where messages for a stream go is not kept");
        }
    }

    /// The stream has ended.
    pub(super) async fn forget(&self, told: &Told) {
        if let Err(unavailable) = self.sessions.close(&told.name).await {
            tracing::debug!(%unavailable, "where messages for a stream went stays until its time is up");
        }
    }

    /// Whether messages would go to another place than a stream says.
    fn is_needed(&self) -> bool {
        self.options.sse && self.target.keeps_to_a_path()
    }
}

/// A URL of this proxy, by whatever name it is called.
fn here(asked: &Uri) -> Option<Url> {
    Url::parse("http://proxy").ok()?.join(asked.path_and_query()?.as_str()).ok()
}

fn name(url: &Url) -> String {
    format!("{ENDPOINT} {}", path_and_query(url))
}

fn path_and_query(url: &Url) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_means_one_thing_to_the_caller_and_another_one_at_the_server() {
        let opened = |asked: &str| Opened {
            asked: asked.parse().unwrap(),
            sent: "https://a.example/v1/sse?key=1".parse().unwrap(),
            identity: None,
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
            let told = opened(asked).told(url, is_prefixed).unwrap();
            assert_eq!(
                (told.name.as_str(), told.endpoint.as_str()),
                (&*format!("endpoint {by_caller}"), endpoint),
                "{url}"
            );
            assert_eq!(name(&here(&by_caller.parse().unwrap()).unwrap()), told.name, "as its caller asks for it");
        }
    }
}
