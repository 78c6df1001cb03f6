//! The watch of one of our kinds: in the version that the API server serves, and without the kind where it cannot be listed.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kube::Client;
use kube::api::ListParams;
use kube::runtime::watcher;
use skep_api::crd::{GROUP, STORED_VERSION};
use skep_api::resource::KindName;
use skep_plan::key::Key;
use tokio::sync::watch as signal;

use super::{
    Feed, MANY_FAILURES, NOT_SYNCED, PROBATION, Resources, Signal, check_name, code, config, dynamic, pump, refused,
};
use crate::failure::describe;
use crate::object::Object;
use crate::readiness::Check;
use crate::served::{Found, Served, VERSIONS, resource_in};
use crate::store::Unavailable;

/// The watch of one kind, in one namespace or in all.
pub(super) struct KindWatch {
    kind: KindName,
    client: Client,
    scope: Option<String>,
    check: String,
    feed: Feed,
    served: Arc<Served>,
    /// Whether the operator knows all objects of this kind, or that it cannot.
    settled: signal::Sender<bool>,
    /// How the watch failed since it was open last, other than by being refused.
    failures: Mutex<Interruptions>,
}

/// Interruptions of a watch in a row. One that comes after the watch was open for [`PROBATION`] begins anew, whether the watch brought a
/// change meanwhile or not.
#[derive(Debug, Default)]
struct Interruptions {
    count: u32,
    last: Option<Instant>,
}

/// Why the watch of a version ended.
enum End {
    /// The API server does not serve it any more.
    NotServed,
    /// Discovery found another version.
    OtherVersion,
}

// === impl KindWatch ===

impl KindWatch {
    pub(super) fn new(
        kind: KindName,
        client: &Client,
        scope: Option<&str>,
        feed: Feed,
        served: Arc<Served>,
        settled: signal::Sender<bool>,
    ) -> Self {
        let check = check_name(kind.plural(), scope);
        feed.readiness.set(&check, Check::Failed(NOT_SYNCED.to_owned()));
        Self {
            kind,
            client: client.clone(),
            scope: scope.map(str::to_owned),
            check,
            feed,
            served,
            settled,
            failures: Mutex::default(),
        }
    }

    /// Follows the objects of the kind. Never ends.
    pub(super) async fn keep(self) {
        let mut found = self.served.subscribe();
        let mut delivered = BTreeSet::new();
        let mut followed = None;
        loop {
            // The sender lives as long as we do.
            let Ok(now) = found.wait_for(|found| found.rounds > 0).await.map(|found| found.clone()) else { return };
            let Some(version) = now.versions.get(&self.kind).copied() else {
                if let Some(version) = now.unknown.get(&self.kind) {
                    // Its objects exist, and their present content is unknown.
                    self.unavailable(Unavailable::UnknownVersion(format!("{GROUP}/{version}")));
                    let is_another = |found: &Found| found.unknown.get(&self.kind) != Some(version);
                    drop(found.wait_for(is_another).await);
                    continue;
                }
                self.unavailable(Unavailable::NotServed);
                let is_left = self.feed.store.has_kind(self.kind, self.scope.as_deref()) && !self.is_gone().await;
                if !is_left {
                    self.forget(&mut delivered);
                }
                let is_due = |found: &Found| is_left && found.rounds > now.rounds;
                drop(found.wait_for(|found| found.has(self.kind) || is_due(found)).await);
                continue;
            };
            if followed.replace(version).is_some_and(|before| before != version) {
                // Their children name their owner in the version before.
                self.feed.wake(self.feed.store.wake_kind(self.kind, self.scope.as_deref()));
            }
            match self.follow(version, &mut delivered).await {
                End::OtherVersion => {}
                End::NotServed => {
                    self.served.refresh();
                    drop(found.wait_for(|found| found.rounds > now.rounds).await);
                }
            }
        }
    }

    /// Whether the kind is gone, and its objects with it: lists of it find nothing to list either. Discovery alone may be behind, and
    /// to take objects for gone that are there would let go of the configurations that they use.
    async fn is_gone(&self) -> bool {
        for version in VERSIONS {
            let api = dynamic::<Object>(&self.client, self.scope.as_deref(), &resource_in(self.kind, version));
            match api.list_metadata(&ListParams::default().limit(1)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                _ => return false,
            }
        }
        true
    }

    fn forget(&self, delivered: &mut BTreeSet<Key>) {
        delivered.clear();
        self.feed.wake(self.feed.store.remove_kind(self.kind, self.scope.as_deref()));
    }

    /// Follows the objects in a version for as long as that is the one to follow.
    async fn follow(&self, version: &'static str, delivered: &mut BTreeSet<Key>) -> End {
        let api = dynamic::<Object>(&self.client, self.scope.as_deref(), &resource_in(self.kind, version));
        let mut found = self.served.subscribe();
        // A watch that may be opened again says nothing until there is a change; that it was refused says it each time.
        let refused_at: Mutex<Option<Instant>> = Mutex::new(None);
        let note = |at: Option<Instant>| std::mem::replace(&mut *lock(&refused_at), at);
        let on_signal = |signal: Signal<'_>| {
            match signal {
                Signal::Changed if lock(&refused_at).is_none() && !self.has_failed() => {
                    *lock(&self.failures) = Interruptions::default();
                }
                Signal::Synced if lock(&refused_at).is_some() => {}
                Signal::Synced | Signal::Changed => {
                    note(None);
                    self.available(version);
                }
                Signal::Interrupted(error) => match code(error) {
                    403 => {
                        note(matches!(error, watcher::Error::WatchStartFailed(_)).then(Instant::now));
                        self.unavailable(Unavailable::Forbidden(refused(error)));
                    }
                    404 => return ControlFlow::Break(()),
                    _ => {
                        self.interrupted(error);
                        let is_listed = !matches!(error, watcher::Error::InitialListFailed(_));
                        if self.has_failed() {
                            note(is_listed.then(Instant::now));
                        }
                    }
                },
            }
            ControlFlow::Continue(())
        };
        let probation = async {
            loop {
                tokio::time::sleep(PROBATION).await;
                if lock(&refused_at).is_some_and(|at| at.elapsed() >= PROBATION) {
                    note(None);
                    self.available(version);
                }
            }
        };
        let resources = Resources(self.kind);
        let pumped = pump(&self.feed, api, config(), &resources, delivered, on_signal);
        tokio::select! {
            () = pumped => End::NotServed,
            () = probation => End::OtherVersion,
            _changed = found.wait_for(|found| found.versions.get(&self.kind) != Some(&version)) => End::OtherVersion,
        }
    }

    /// Whether it failed so often in a row that it does not count as ready.
    fn has_failed(&self) -> bool {
        lock(&self.failures).count >= MANY_FAILURES
    }

    fn available(&self, version: &'static str) {
        *lock(&self.failures) = Interruptions::default();
        let is_best = version == STORED_VERSION;
        let check = if is_best {
            Check::Passed(version.to_owned())
        } else {
            Check::Degraded(format!("served as {GROUP}/{version} only; update its definition"))
        };
        if self.feed.readiness.set(&self.check, check) {
            tracing::info!(kind = %self.kind, version, "cache synced");
            if !is_best {
                tracing::warn!(kind = %self.kind, version, "kind is not served in the stored version");
            }
        }
        self.feed.metrics.kind_watched(self.kind.as_str(), self.scope.as_deref(), Some(version));
        self.feed.wake(self.feed.store.set_unavailable(self.kind, self.scope.as_deref(), None));
        self.settled.send_replace(true);
    }

    fn unavailable(&self, why: Unavailable) {
        if self.feed.readiness.set(&self.check, Check::Degraded(why.to_string())) {
            tracing::warn!(kind = %self.kind, error = %why, "kind is not reconciled");
        }
        self.feed.metrics.kind_watched(self.kind.as_str(), self.scope.as_deref(), None);
        self.feed.wake(self.feed.store.set_unavailable(self.kind, self.scope.as_deref(), Some(why)));
        self.settled.send_replace(true);
    }

    fn interrupted(&self, error: &watcher::Error) {
        let why = describe(error);
        let failures = lock(&self.failures).note(Instant::now());
        if !*self.settled.borrow() || failures >= MANY_FAILURES {
            self.feed.readiness.set(&self.check, Check::Failed(why.clone()));
        }
        tracing::warn!(watch = self.kind.plural(), error = why, "watch interrupted");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Interruptions ===

impl Interruptions {
    /// Notes one, and returns how many they are in a row.
    fn note(&mut self, now: Instant) -> u32 {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) >= PROBATION) {
            self.count = 0;
        }
        (self.count, self.last) = (self.count.saturating_add(1), Some(now));
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruptions_that_are_far_apart_are_not_many_in_a_row() {
        let (mut seldom, mut often, start) = (Interruptions::default(), Interruptions::default(), Instant::now());
        for number in 1..=2 * MANY_FAILURES {
            assert_eq!(seldom.note(start + PROBATION * number), 1);
            assert_eq!(often.note(start + PROBATION / 2 * number), number);
        }
    }
}
