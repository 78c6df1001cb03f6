//! The watch of anything but our own kinds: children, pods, Secrets and ConfigMaps, in one namespace or in all.
//!
//! Without it the operator does not know what runs, so it is not ready before the first list, nor once the watch is refused or fails
//! again and again. Where several namespaces are watched, one in which it is refused concerns that namespace alone: it may have been
//! deleted, and the operator's Role with it. Nothing in it is reconciled until the first list succeeds.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kube::api::Api;
use kube::core::Resource as KubeResource;
use kube::runtime::watcher;
use tokio::sync::watch as signal;

use super::sink::Sink;
use super::{Feed, MANY_FAILURES, NOT_SYNCED, PROBATION, Signal, check_name, code, pump, refused};
use crate::failure::describe;
use crate::readiness::Check;

/// The watch of what is cached, in one namespace or in all.
pub(super) struct CacheWatch {
    name: String,
    /// The namespace.
    scope: Option<String>,
    /// Whether the operator does without this namespace when it has no rights in it.
    is_dispensable: bool,
    check: String,
    feed: Feed,
    /// Whether everything was listed once, or cannot be.
    settled: signal::Sender<bool>,
    health: Mutex<Health>,
}

/// How a watch is doing.
#[derive(Debug, Default)]
struct Health {
    /// Whether everything was listed once.
    is_synced: bool,
    /// How often it failed since it was open last.
    failures: u32,
    /// When it failed last, if it listed everything before: one that is open again says nothing until there is a change.
    watch_failed_at: Option<Instant>,
}

// === impl CacheWatch ===

impl CacheWatch {
    pub(super) fn new(
        name: String,
        scope: Option<&str>,
        is_one_of_several: bool,
        feed: Feed,
        settled: signal::Sender<bool>,
    ) -> Self {
        let check = check_name(&name, scope);
        feed.readiness.set(&check, Check::Failed(NOT_SYNCED.to_owned()));
        let (scope, is_dispensable) = (scope.map(str::to_owned), is_one_of_several && scope.is_some());
        Self { name, scope, is_dispensable, check, feed, settled, health: Mutex::default() }
    }

    /// Follows the objects. Never ends.
    pub(super) async fn keep<K, T>(self, api: Api<K>, config: watcher::Config, sink: T)
    where
        K: KubeResource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
        K::DynamicType: Send + Sync,
        T: Sink<K>,
    {
        let mut delivered = BTreeSet::new();
        let on_signal = |signal: Signal<'_>| {
            match signal {
                Signal::Synced => self.synced(),
                Signal::Changed => self.opened(),
                Signal::Interrupted(error) => self.interrupted(error),
            }
            ControlFlow::Continue(())
        };
        let probation = async {
            loop {
                tokio::time::sleep(PROBATION).await;
                if self.health().watch_failed_at.is_some_and(|at| at.elapsed() >= PROBATION) {
                    self.opened();
                }
            }
        };
        tokio::select! {
            () = pump(&self.feed, api, config, &sink, &mut delivered, on_signal) => {}
            () = probation => {}
        }
    }

    fn synced(&self) {
        self.health().is_synced = true;
        if let Some(namespace) = &self.scope {
            self.feed.wake(self.feed.store.set_unseen(namespace, &self.name, false));
        }
        self.passed();
        self.settled.send_replace(true);
    }

    /// The watch is open. What was listed is still known, and every change since comes through it.
    fn opened(&self) {
        let health = self.health();
        let has_recovered = health.is_synced && health.failures > 0;
        drop(health);
        if has_recovered {
            self.passed();
        }
    }

    fn passed(&self) {
        let mut health = self.health();
        (health.failures, health.watch_failed_at) = (0, None);
        drop(health);
        if self.feed.readiness.set(&self.check, Check::Passed(String::new())) {
            tracing::info!(watch = self.name, namespace = self.scope, "cache synced");
        }
        self.feed.metrics.cache_synced(&self.name, self.scope.as_deref(), true);
    }

    fn interrupted(&self, error: &watcher::Error) {
        let mut health = self.health();
        health.failures = health.failures.saturating_add(1);
        let is_listed = !matches!(error, watcher::Error::InitialListFailed(_));
        health.watch_failed_at = is_listed.then(Instant::now);
        let (is_synced, failures) = (health.is_synced, health.failures);
        drop(health);
        let is_refused = matches!(code(error), 403 | 404);
        let why = if is_refused { refused(error) } else { describe(error) };
        tracing::warn!(watch = self.name, namespace = self.scope, error = why, "watch interrupted");
        if is_refused && self.is_dispensable {
            self.degraded(is_synced, &why);
        } else if is_refused || !is_synced || failures >= MANY_FAILURES {
            self.feed.readiness.set(&self.check, Check::Failed(why));
            self.feed.metrics.cache_synced(&self.name, self.scope.as_deref(), false);
        }
    }

    /// The other namespaces go on without this one.
    fn degraded(&self, is_synced: bool, why: &str) {
        let Some(namespace) = &self.scope else { return };
        let advice = format!("grant the operator its rights in namespace `{namespace}`, or watch it no longer");
        if self.feed.readiness.set(&self.check, Check::Degraded(format!("{why}; {advice}"))) {
            tracing::warn!(watch = self.name, namespace, error = why, "namespace is not watched");
        }
        self.feed.metrics.cache_synced(&self.name, self.scope.as_deref(), false);
        if !is_synced {
            self.feed.wake(self.feed.store.set_unseen(namespace, &self.name, true));
        }
        self.settled.send_replace(true);
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
