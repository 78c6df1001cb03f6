//! The watch of one of our kinds: in the version that the API server serves, and without the kind where it cannot be listed.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::ListParams;
use kube::runtime::watcher;
use skep_api::crd::{GROUP, STORED_VERSION};
use skep_api::resource::KindName;
use skep_plan::key::Key;
use tokio::sync::watch as signal;

use super::{Feed, NOT_SYNCED, Resources, Signal, check_name, dynamic, pump};
use crate::failure::{describe, refusal};
use crate::object::Object;
use crate::readiness::Check;
use crate::served::{Found, Served, VERSIONS, resource_in};
use crate::store::Unavailable;

/// A watch that was not refused for so long is open: it is tried again more often than that.
const PROBATION: Duration = Duration::from_mins(1);

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
        Self { kind, client: client.clone(), scope: scope.map(str::to_owned), check, feed, served, settled }
    }

    /// Follows the objects of the kind. Never ends.
    pub(super) async fn keep(self) {
        let mut found = self.served.subscribe();
        let mut brought = BTreeSet::new();
        loop {
            // The sender lives as long as we do.
            let Ok(now) = found.wait_for(|found| found.rounds > 0).await.map(|found| found.clone()) else { return };
            let Some(version) = now.versions.get(&self.kind).copied() else {
                self.unavailable(Unavailable::NotServed);
                let is_left = self.feed.store.has_kind(self.kind, self.scope.as_deref()) && !self.is_gone().await;
                if !is_left {
                    self.forget(&mut brought);
                }
                let is_due = |found: &Found| is_left && found.rounds > now.rounds;
                drop(found.wait_for(|found| found.versions.contains_key(&self.kind) || is_due(found)).await);
                continue;
            };
            match self.follow(version, &mut brought).await {
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

    fn forget(&self, brought: &mut BTreeSet<Key>) {
        brought.clear();
        self.feed.wake(self.feed.store.remove_kind(self.kind, self.scope.as_deref()));
    }

    /// Follows the objects in a version for as long as that is the one to follow.
    async fn follow(&self, version: &'static str, brought: &mut BTreeSet<Key>) -> End {
        let api = dynamic::<Object>(&self.client, self.scope.as_deref(), &resource_in(self.kind, version));
        let mut found = self.served.subscribe();
        // A watch that may be opened again says nothing until there is a change; that it was refused says it each time.
        let refused_at: Mutex<Option<Instant>> = Mutex::new(None);
        let note = |at: Option<Instant>| std::mem::replace(&mut *lock(&refused_at), at);
        let tell = |signal: Signal<'_>| {
            match signal {
                Signal::Changed if lock(&refused_at).is_none() => {}
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
                    _ => self.interrupted(error),
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
        let pumped = pump(&self.feed, api, watcher::Config::default(), &resources, brought, tell);
        tokio::select! {
            () = pumped => End::NotServed,
            () = probation => End::OtherVersion,
            _changed = found.wait_for(|found| found.versions.get(&self.kind) != Some(&version)) => End::OtherVersion,
        }
    }

    fn available(&self, version: &'static str) {
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
        if !*self.settled.borrow() {
            self.feed.readiness.set(&self.check, Check::Failed(why.clone()));
        }
        tracing::warn!(watch = self.kind.plural(), error = why, "watch interrupted");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the API server answered to a watch; 0 for what is no answer.
fn code(error: &watcher::Error) -> u16 {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code,
        _ => 0,
    }
}

fn refused(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => refusal(status),
        other => describe(other),
    }
}
