//! What another replica must know of a session beside its `initialize`, and what a backend is told again that replaces another one: the log
//! level, and the resources that the client subscribes to.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};
use serde_json::json;
use skep_mcp::value;
use skep_upstream::SessionId;
use tracing::Instrument as _;

use super::VirtualUpstream;
use crate::backend::Backend;
use crate::view::ClientView;

/// How many bytes the URIs may have that are kept of one session.
const URIS: usize = 8 * 1024;
/// What a URI takes beside its text.
const PLACE: usize = 16;

/// What is kept of a session.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Counts changes. Of two replicas, the one knows more that counted further.
    revision: u64,
    level: Option<String>,
    /// The resources, and the backends that were asked to report their changes.
    resources: BTreeMap<String, Weak<Backend>>,
}

/// It as it is written.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Written {
    revision: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<String>,
    resources: Vec<String>,
}

// === impl Kept ===

impl Kept {
    /// The log level that the client asked for.
    pub(super) fn level(&self) -> Option<&str> {
        self.level.as_deref()
    }

    fn set_level(&mut self, level: &str) -> bool {
        let is_new = self.level.as_deref() != Some(level);
        if is_new {
            (self.revision, self.level) = (self.revision + 1, Some(level.to_owned()));
        }
        is_new
    }

    /// Notes a subscription. Says whether that is to be written; what has no room is not kept.
    fn subscribe(&mut self, uri: &str, backend: &Arc<Backend>) -> bool {
        if let Some(at) = self.resources.get_mut(uri) {
            *at = Arc::downgrade(backend);
            return false;
        }
        let size: usize = self.resources.keys().map(|uri| uri.len() + PLACE).sum();
        if size + uri.len() + PLACE > URIS {
            tracing::warn!(
                "subscription not kept: the session has too many, and this one ends with its session at the backend"
            );
            return false;
        }
        self.resources.insert(uri.to_owned(), Arc::downgrade(backend));
        self.revision += 1;
        true
    }

    fn unsubscribe(&mut self, uri: &str) -> bool {
        let was_there = self.resources.remove(uri).is_some();
        self.revision += u64::from(was_there);
        was_there
    }

    fn write(&self) -> String {
        let resources = self.resources.keys().cloned().collect();
        let written = Written { revision: self.revision, level: self.level.clone(), resources };
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// Takes what another replica wrote, unless that is not newer. Returns the log level if it is another one now.
    fn take(&mut self, written: Written) -> Option<String> {
        if written.revision <= self.revision {
            return None;
        }
        let mut known = std::mem::take(&mut self.resources);
        let place = |uri: String| {
            let at = known.remove(&uri).unwrap_or_default();
            (uri, at)
        };
        let is_same = self.level == written.level;
        *self = Self {
            revision: written.revision,
            level: written.level,
            resources: written.resources.into_iter().map(place).collect(),
        };
        self.level.clone().filter(|_| !is_same)
    }
}

// === impl Written ===

impl Written {
    /// What was written, if it is newer than this. It comes with every request of the session, and is mostly known.
    fn newer(written: &str, revision: u64) -> Option<Self> {
        let found = value::find(written.as_bytes(), &["revision"])?.parse::<u64>().ok()?;
        if found <= revision {
            return None;
        }
        serde_json::from_str(written).ok()
    }
}

// === impl VirtualUpstream ===

impl VirtualUpstream {
    /// Takes what another replica wrote of a session.
    pub(super) fn take_kept(&self, session: &SessionId, written: &str) {
        let revision = self.sessions.with(session, |mine| mine.kept.revision);
        let Some(newer) = revision.and_then(|revision| Written::newer(written, revision)) else { return };
        let Some(level) = self.sessions.with(session, |mine| mine.kept.take(newer)).flatten() else { return };
        for backend in self.opened(session) {
            self.send_level(session, &backend, &level);
        }
    }

    /// Notes the log level of a session.
    pub(super) async fn note_level(&self, session: &SessionId, level: &str) {
        self.change_kept(session, |kept| kept.set_level(level)).await;
    }

    /// Notes that a client subscribes to a resource of this backend.
    pub(super) async fn note_subscription(&self, session: &SessionId, uri: &str, backend: &Arc<Backend>) {
        self.change_kept(session, |kept| kept.subscribe(uri, backend)).await;
    }

    /// Notes that it does so no more.
    pub(super) async fn forget_subscription(&self, session: &SessionId, uri: &str) {
        self.change_kept(session, |kept| kept.unsubscribe(uri)).await;
    }

    /// Changes what is kept of a session, and writes it if it is another one then.
    async fn change_kept(&self, session: &SessionId, change: impl FnOnce(&mut Kept) -> bool) {
        let changed = |mine: &mut super::session::Session| change(&mut mine.kept).then(|| mine.keeping.clone());
        let Some(turn) = self.sessions.with(session, changed).flatten() else { return };
        let Some(keeper) = self.keeper.get() else { return };
        let _one_at_a_time = turn.lock().await;
        if let Some(written) = self.sessions.with(session, |mine| mine.kept.write()) {
            keeper.keep(session, written).await;
        }
    }

    /// Subscribes a session again to those of its resources that are not reported: another replica had it before, or the backend is another
    /// one now.
    pub(super) fn resubscribe(&self, session: &SessionId, view: &ClientView) {
        let resources = self.sessions.with(session, |mine| mine.kept.resources.clone()).unwrap_or_default();
        for (uri, at) in resources {
            let Some((name, original)) = view.view.resource(&uri) else { continue };
            let Some(backend) = self.backends.get(&name) else { continue };
            let is_new = at.as_ptr() != Arc::as_ptr(&backend) && view.abilities_of(&name).subscriptions;
            if !is_new || self.open_at(session, &backend).is_err() {
                continue;
            }
            let Some(sent) = self.send_own(session, &backend, "resources/subscribe", &json!({ "uri": original }))
            else {
                continue;
            };
            self.place(session, &uri, Arc::downgrade(&backend));
            let (me, session) = (self.me.clone(), session.clone());
            tokio::spawn(
                async move {
                    if let (false, Some(me)) = (sent.await, me.upgrade()) {
                        tracing::debug!("subscription not renewed at a backend");
                        // It is tried again when something changes.
                        me.place(&session, &uri, Weak::new());
                    }
                }
                .in_current_span(),
            );
        }
    }

    fn place(&self, session: &SessionId, uri: &str, backend: Weak<Backend>) {
        self.sessions.with(session, |mine| {
            if let Some(at) = mine.kept.resources.get_mut(uri) {
                *at = backend;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_replicas_the_newer_knowledge_counts() {
        let take = |kept: &mut Kept, written: &str| kept.take(Written::newer(written, kept.revision)?);
        let (mut first, mut second) = (Kept::default(), Kept::default());
        assert!(first.set_level("debug") && !first.set_level("debug"));
        let older = first.write();
        assert_eq!(take(&mut second, &older).as_deref(), Some("debug"));
        assert!(second.set_level("error"));
        assert_eq!(take(&mut second, &older), None, "what was read before is no news");
        assert_eq!(second.level(), Some("error"));
        assert_eq!(take(&mut first, &second.write()).as_deref(), Some("error"));
        assert_eq!(take(&mut first, "garbage"), None);
    }
}
