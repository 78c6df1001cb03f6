//! The pods of a server that has several: each session stays with one, and calls without a session take turns.
//!
//! A Service cannot do that. It sees a proxy as one client, and another proxy as another: a session that moves between proxies
//! would move between pods. The name of the headless Service resolves to the pods that are ready, so that is asked.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long an answer of the name service is believed.
const BELIEVED: Duration = Duration::from_secs(2);

/// How long what it said last is believed while it answers with errors. That a Service has no pods any more is such an error, and
/// looks the same as a name service that fails.
const KEPT: Duration = Duration::from_secs(10);

/// The addresses of the pods, once they are known.
pub type Lookup = Pin<Box<dyn Future<Output = std::io::Result<Vec<SocketAddr>>> + Send>>;

/// The pods of a server.
pub struct Pods {
    resolve: Box<dyn Fn() -> Lookup + Send + Sync>,
    found: Mutex<Found>,
    asking: tokio::sync::Mutex<()>,
    turn: AtomicUsize,
}

/// The pods of the last lookup.
#[derive(Clone, Default)]
struct Found {
    at: Option<Instant>,
    /// Since when there are errors and no answers.
    failing: Option<Instant>,
    /// Nothing if no lookup ever succeeded.
    addresses: Option<Arc<[SocketAddr]>>,
}

// === impl Pods ===

impl Pods {
    /// The pods behind a headless Service.
    pub fn behind(host: String, port: u16) -> Self {
        Self::new(move || {
            let host = host.clone();
            Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
        })
    }

    /// The pods that a function finds.
    pub fn new(resolve: impl Fn() -> Lookup + Send + Sync + 'static) -> Self {
        Self {
            resolve: Box::new(resolve),
            found: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// The next pod in turn; none if there is no choice, because the Service is as good then.
    pub(super) async fn next(&self) -> Option<SocketAddr> {
        let addresses = self.addresses().await.filter(|addresses| addresses.len() > 1)?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        addresses.get(turn % addresses.len()).copied()
    }

    /// Whether a pod is still ready, as far as is known. The address of a pod that is gone is given to another workload, so calls
    /// go to known ones only.
    pub(super) async fn has(&self, pod: SocketAddr) -> bool {
        self.addresses().await.is_none_or(|addresses| addresses.contains(&pod))
    }

    /// The addresses of the pods; nothing if they were never known.
    async fn addresses(&self) -> Option<Arc<[SocketAddr]>> {
        let known = self.found();
        if known.is_fresh() {
            return known.addresses;
        }
        // One asks for all. Meanwhile the others believe what was said last, or wait if nothing was said yet.
        let _one_at_a_time = match known.addresses {
            Some(addresses) => match self.asking.try_lock() {
                Ok(turn) => turn,
                Err(_taken) => return Some(addresses),
            },
            None => self.asking.lock().await,
        };
        let known = self.found();
        if known.is_fresh() {
            return known.addresses;
        }
        let found = match (self.resolve)().await {
            Ok(mut addresses) => {
                // The name service shuffles them, and all proxies should see one order.
                addresses.sort_unstable();
                addresses.dedup();
                Found { at: Some(Instant::now()), failing: None, addresses: Some(addresses.into()) }
            }
            Err(error) => {
                tracing::debug!(%error, "pods of the server not resolved");
                known.failed(Instant::now())
            }
        };
        let addresses = found.addresses.clone();
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        addresses
    }

    fn found(&self) -> Found {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

// === impl Found ===

impl Found {
    fn is_fresh(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < BELIEVED)
    }

    /// What is left of it when the name service fails: for a while all pods, then none.
    fn failed(self, now: Instant) -> Self {
        // Not since the last answer: without requests there are no lookups, and one error should move no session.
        let failing = self.failing.unwrap_or(now);
        let is_kept = now.duration_since(failing) < KEPT;
        let addresses = self.addresses.map(|addresses| if is_kept { addresses } else { Arc::default() });
        Self { at: Some(now), failing: Some(failing), addresses }
    }
}

impl std::fmt::Debug for Pods {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pods").field("turn", &self.turn).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(addresses: &Arc<Mutex<std::io::Result<Vec<SocketAddr>>>>) -> Pods {
        let addresses = addresses.clone();
        Pods::new(move || {
            let found = match &*addresses.lock().unwrap() {
                Ok(addresses) => Ok(addresses.clone()),
                Err(error) => Err(error.kind().into()),
            };
            Box::pin(std::future::ready(found))
        })
    }

    fn at(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 8080))
    }

    #[tokio::test(start_paused = true)]
    async fn pods_take_turns_and_those_that_are_gone_are_forgotten() {
        let there = Arc::new(Mutex::new(Ok(vec![at(2), at(1), at(2)])));
        let pods = pods(&there);
        assert_eq!([pods.next().await, pods.next().await, pods.next().await], [Some(at(1)), Some(at(2)), Some(at(1))]);
        *there.lock().unwrap() = Ok(vec![at(2)]);
        assert!(pods.has(at(1)).await, "asked again too early");
        tokio::time::advance(BELIEVED).await;
        assert!(!pods.has(at(1)).await && pods.has(at(2)).await);
        // One pod is no choice.
        assert_eq!(pods.next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_no_lookup_found_for_a_while_are_gone() {
        let there = Arc::new(Mutex::new(Ok(vec![at(1), at(2)])));
        let pods = pods(&there);
        assert!(pods.has(at(2)).await);
        // No requests, no lookups.
        tokio::time::advance(Duration::from_hours(1)).await;
        for round in 0..2 {
            // A name service that fails for a moment takes nothing away.
            *there.lock().unwrap() = Err(std::io::ErrorKind::TimedOut.into());
            let failing = Instant::now();
            while failing.elapsed() < KEPT {
                assert!(pods.has(at(2)).await && pods.next().await.is_some(), "round {round}");
                tokio::time::advance(BELIEVED).await;
            }
            if round == 0 {
                *there.lock().unwrap() = Ok(vec![at(1), at(2)]);
                assert!(pods.has(at(2)).await);
                tokio::time::advance(BELIEVED).await;
            }
        }
        // A Service without any pod is an error as well.
        assert!(!pods.has(at(2)).await && pods.next().await.is_none());
        *there.lock().unwrap() = Ok(vec![at(2), at(3)]);
        tokio::time::advance(BELIEVED).await;
        assert!(pods.has(at(2)).await && pods.next().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_never_known_is_not_gone() {
        let unknown = pods(&Arc::new(Mutex::new(Err(std::io::ErrorKind::TimedOut.into()))));
        for _ in 0..2 {
            assert!(unknown.has(at(1)).await && unknown.next().await.is_none());
            tokio::time::advance(KEPT).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_at_once_ask_once() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let pods = Arc::new(Pods::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(vec![at(1), at(2)])
            })
        }));
        for round in 1..=2 {
            let calls: Vec<_> = (0..100)
                .map(|_| {
                    let pods = pods.clone();
                    tokio::spawn(async move { pods.has(at(1)).await })
                })
                .collect();
            for call in calls {
                assert!(call.await.unwrap(), "round {round}");
            }
            assert_eq!(asked.load(Ordering::SeqCst), round);
            tokio::time::advance(BELIEVED).await;
        }
    }
}
