//! The work queue: the resources to reconcile, each once however often it was added, and never two workers on one.
//!
//! A resource whose reconcile fails is retried with backoff; one that is added while a worker reconciles it is queued again when that worker is
//! done. The state is a plain value ([`State`]) without a clock, so the rules are tested without waiting.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use skep_plan::key::Key;
use tokio::sync::Notify;

/// The wait after the first failure.
const FIRST_RETRY: Duration = Duration::from_millis(200);
/// The longest wait between two retries.
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// The queue that workers share.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It succeeded; reconcile again when something changes.
    Settled,
    /// It succeeded so far; reconcile again after this time.
    Again(Duration),
    /// It failed; retry with backoff.
    Failed,
}

#[derive(Debug, Default)]
struct State {
    // INVARIANT: a key is in at most one of `ready`, `waiting` and `running`; `queued` is the set of `ready`; `due` is
    // `waiting` by time; `woken` is a part of `running`.
    ready: VecDeque<(Key, Instant)>,
    queued: HashSet<Key>,
    waiting: HashMap<Key, Instant>,
    due: BTreeSet<(Instant, Key)>,
    running: HashSet<Key>,
    /// How many of them are in each namespace.
    running_in: HashMap<String, usize>,
    /// How many of one namespace may run at a time; no limit for none.
    namespace_limit: Option<usize>,
    woken: HashSet<Key>,
    failures: HashMap<Key, u32>,
}

// === impl Queue ===

impl Queue {
    /// A queue of which workers take no more than so many resources of one namespace at a time: slow ones must not stop the others.
    pub fn with_namespace_limit(limit: usize) -> Self {
        let state = State { namespace_limit: Some(limit), ..State::default() };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// Queues a resource to be reconciled now.
    pub fn add(&self, key: Key) {
        self.with(|state| state.add(key, Instant::now()));
        self.changed.notify_one();
    }

    /// Queues a resource to be reconciled within `delay`: several additions in that time become one reconcile.
    pub fn add_within(&self, key: Key, delay: Duration) {
        self.with(|state| state.add_at(key, Instant::now() + delay));
        self.changed.notify_one();
    }

    /// The next resource to reconcile, and how long it has waited. It never ends; the worker that waits is cancelled instead.
    pub async fn next(&self) -> (Key, Duration) {
        loop {
            let now = Instant::now();
            let (taken, wake_at) = self.with(|state| {
                let taken = state.take(now);
                (taken, state.next_due())
            });
            if let Some((key, since)) = taken {
                // Another worker may have slept through the notification that we used up.
                self.changed.notify_one();
                return (key, now.saturating_duration_since(since));
            }
            let changed = self.changed.notified();
            match wake_at {
                Some(due) => {
                    let _either = tokio::time::timeout_at(due.into(), changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Says how the work on a resource ended.
    pub fn finish(&self, key: Key, done: Done) {
        self.with(|state| state.finish(key, done, Instant::now()));
        self.changed.notify_one();
    }

    /// How many resources wait to be reconciled now.
    pub fn depth(&self) -> usize {
        self.with(|state| state.ready.len())
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // A worker that panicked left the state whole: every change of it is one call.
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl State ===

impl State {
    fn add(&mut self, key: Key, now: Instant) {
        if self.running.contains(&key) {
            self.woken.insert(key);
            return;
        }
        self.stop_waiting(&key);
        if self.queued.insert(key.clone()) {
            self.ready.push_back((key, now));
        }
    }

    fn add_at(&mut self, key: Key, due: Instant) {
        if self.running.contains(&key) {
            self.woken.insert(key);
        } else if !self.queued.contains(&key) {
            let earliest = self.stop_waiting(&key).map_or(due, |known| due.min(known));
            self.due.insert((earliest, key.clone()));
            self.waiting.insert(key, earliest);
        }
    }

    fn take(&mut self, now: Instant) -> Option<(Key, Instant)> {
        while let Some((at, key)) = self.due.first()
            && *at <= now
        {
            self.add(key.clone(), now);
        }
        let is_allowed = |(key, _): &(Key, Instant)| {
            let running = self.running_in.get(&key.namespace).copied().unwrap_or_default();
            self.namespace_limit.is_none_or(|limit| running < limit)
        };
        let next = self.ready.iter().position(is_allowed)?;
        let (key, since) = self.ready.remove(next)?;
        self.queued.remove(&key);
        *self.running_in.entry(key.namespace.clone()).or_default() += 1;
        self.running.insert(key.clone());
        Some((key, since))
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Until when a resource was to wait, if it was.
    fn stop_waiting(&mut self, key: &Key) -> Option<Instant> {
        let at = self.waiting.remove(key)?;
        self.due.remove(&(at, key.clone()));
        Some(at)
    }

    fn finish(&mut self, key: Key, done: Done, now: Instant) {
        self.running.remove(&key);
        if let Some(running) = self.running_in.get_mut(&key.namespace) {
            *running -= 1;
            if *running == 0 {
                self.running_in.remove(&key.namespace);
            }
        }
        let woken = self.woken.remove(&key);
        if done == Done::Failed {
            let failures = self.failures.entry(key.clone()).or_default();
            *failures += 1;
            let wait = FIRST_RETRY.saturating_mul(1 << (*failures - 1).min(16)).min(LONGEST_RETRY);
            // A change may be the cure, but a resource that changes all the time must not be retried without backoff.
            let wait = if woken { wait.min(Duration::from_secs(1)) } else { wait };
            self.add_at(key, now + wait);
            return;
        }
        self.failures.remove(&key);
        match done {
            _ if woken => self.add(key, now),
            Done::Again(delay) => self.add_at(key, now + delay),
            Done::Settled | Done::Failed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use skep_api::resource::KindName;

    use super::*;

    fn key(name: &str) -> Key {
        Key::resource(KindName::MCPServer, "ns", name)
    }

    #[test]
    fn a_resource_that_is_added_often_is_reconciled_once() {
        let (mut state, now) = (State::default(), Instant::now());
        state.add(key("a"), now);
        state.add(key("b"), now);
        state.add(key("a"), now);
        state.add_at(key("a"), now);
        assert_eq!(state.take(now).map(|(key, _)| key), Some(key("a")));
        assert_eq!(state.take(now).map(|(key, _)| key), Some(key("b")));
        assert_eq!(state.take(now), None);
    }

    #[test]
    fn a_resource_queued_during_its_reconcile_is_reconciled_again_and_never_twice_at_once() {
        let (mut state, now) = (State::default(), Instant::now());
        state.add(key("a"), now);
        assert!(state.take(now).is_some());
        state.add(key("a"), now);
        assert_eq!(state.take(now), None);
        state.finish(key("a"), Done::Settled, now);
        assert!(state.take(now).is_some());
        state.finish(key("a"), Done::Settled, now);
        assert_eq!(state.take(now), None);
    }

    #[test]
    fn failures_come_back_later_each_time_and_success_forgets_them() {
        let (mut state, mut now) = (State::default(), Instant::now());
        state.add(key("a"), now);
        for wait in [200, 400, 800] {
            assert!(state.take(now).is_some());
            state.finish(key("a"), Done::Failed, now);
            assert_eq!(state.next_due(), Some(now + Duration::from_millis(wait)));
            now += Duration::from_millis(wait);
        }
        assert!(state.take(now).is_some());
        state.finish(key("a"), Done::Settled, now);
        assert!(state.failures.is_empty() && state.next_due().is_none());
    }

    #[test]
    fn additions_within_a_delay_become_one_reconcile_at_the_earliest_time() {
        let (mut state, now) = (State::default(), Instant::now());
        state.add_at(key("a"), now + Duration::from_millis(100));
        state.add_at(key("a"), now + Duration::from_millis(500));
        assert_eq!(state.take(now), None);
        let later = now + Duration::from_millis(100);
        assert!(state.take(later).is_some());
        state.finish(key("a"), Done::Settled, later);
        assert_eq!(state.next_due(), None);
    }

    #[test]
    fn a_delayed_resource_that_is_queued_now_is_reconciled_now() {
        let (mut state, now) = (State::default(), Instant::now());
        let (soon, late) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        state.add_at(key("a"), soon);
        state.add_at(key("b"), late);
        state.add(key("a"), now);
        assert_eq!(state.next_due(), Some(late));
        assert_eq!(state.take(now).map(|(key, _)| key), Some(key("a")));
        state.finish(key("a"), Done::Settled, now);
        assert_eq!(state.take(soon), None);
        assert_eq!(state.take(late).map(|(key, _)| key), Some(key("b")));
        assert!(state.waiting.is_empty() && state.due.is_empty());
    }

    #[test]
    fn a_namespace_holds_no_more_workers_than_its_limit() {
        let (mut state, now) = (State { namespace_limit: Some(2), ..State::default() }, Instant::now());
        let in_namespace = |namespace: &str, name: &str| Key::resource(KindName::MCPServer, namespace, name);
        for name in ["a", "b", "c", "d"] {
            state.add(in_namespace("slow", name), now);
        }
        state.add(in_namespace("other", "e"), now);
        let mut taken = || state.take(now).map(|(key, _)| key.name);
        assert_eq!(
            [taken(), taken(), taken(), taken()],
            [Some("a"), Some("b"), Some("e"), None].map(|name| name.map(str::to_owned))
        );
        state.finish(in_namespace("slow", "a"), Done::Settled, now);
        assert_eq!(state.take(now).map(|(key, _)| key.name), Some("c".to_owned()));
    }
}
