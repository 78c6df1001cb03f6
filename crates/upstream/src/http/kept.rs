//! What a server is told again that forgot a session: the log level of its client, and the resources that it subscribes to.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use skep_mcp::{Era, Kind, Message, method, value};
use tracing::Instrument as _;

use super::HttpUpstream;
use super::client_session::ClientSession;
use crate::upstream::{Call, Upstream};

/// How many bytes the URIs may have that are kept of one session, and what one takes beside its text.
const URIS: usize = 8 * 1024;
const PLACE: usize = 16;
/// How long the server may take for each request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the server agreed to in a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    level: Option<String>,
    resources: BTreeSet<String>,
    /// Whether the server is being told. One that forgets the session again and again is not told each time.
    is_telling: bool,
}

// === impl Kept ===

impl Kept {
    /// Takes a request that the server did as it was asked.
    fn note(&mut self, request: &Message) {
        match request.method() {
            Some("logging/setLevel") => {
                let level = request.params().and_then(|params| value::find_text(params, &["level"]));
                self.level = level.map(std::borrow::Cow::into_owned);
            }
            Some("resources/subscribe") => {
                let uri = method::resource(request).unwrap_or_default();
                let size: usize = self.resources.iter().map(|uri| uri.len() + PLACE).sum();
                if size + uri.len() + PLACE <= URIS {
                    self.resources.insert(uri.into_owned());
                }
            }
            Some("resources/unsubscribe") => {
                self.resources.remove(&*method::resource(request).unwrap_or_default());
            }
            _ => {}
        }
    }

    /// The requests that a server is sent for it.
    fn requests(&self) -> Vec<Message> {
        let level = self.level.iter().map(|level| ("logging/setLevel", json!({ "level": level })));
        let resources = self.resources.iter().map(|uri| ("resources/subscribe", json!({ "uri": uri })));
        let all = level.chain(resources).map(|(method, params)| {
            let id = uuid::Uuid::new_v4().to_string();
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
        });
        all.filter_map(|request| Message::parse(request.into()).ok()).collect()
    }
}

// === impl ClientSession ===

impl ClientSession {
    /// Notes what the server agreed to.
    pub(super) fn note(&self, request: &Message, response: &Message) {
        if response.kind() == Kind::Response {
            self.with_kept(|kept| kept.note(request));
        }
    }

    /// Tells a server that forgot the session what it had agreed to, in the background.
    pub(super) fn tell_again(self: &Arc<Self>, upstream: &Arc<HttpUpstream>) {
        let begin = |kept: &mut Kept| {
            let requests = if kept.is_telling { Vec::new() } else { kept.requests() };
            kept.is_telling |= !requests.is_empty();
            requests
        };
        let requests = self.with_kept(begin);
        if requests.is_empty() {
            return;
        }
        let (session, upstream) = (self.clone(), upstream.clone());
        tokio::spawn(
            async move {
                for message in requests {
                    let (id, client) = (session.id.clone(), session.client());
                    let call = Call { session: Some(id), client, ..Call::new(message, Era::Legacy) };
                    let told = async { Upstream::call(upstream.clone(), call).await?.response.response().await };
                    match tokio::time::timeout(TIMEOUT, told).await {
                        Ok(Ok(_)) => {}
                        Ok(Err(error)) => tracing::debug!(%error, "subscription not renewed"),
                        Err(_elapsed) => tracing::debug!("subscription not renewed: the server does not respond"),
                    }
                }
                session.with_kept(|kept| kept.is_telling = false);
            }
            .in_current_span(),
        );
    }
}
