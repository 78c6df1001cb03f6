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

/// Who is there, once that is known.
pub type Answer = Pin<Box<dyn Future<Output = std::io::Result<Vec<SocketAddr>>> + Send>>;

/// The pods of a server.
pub struct Pods {
    resolve: Box<dyn Fn() -> Answer + Send + Sync>,
    found: Mutex<Found>,
    turn: AtomicUsize,
}

/// Who was there when somebody asked last.
#[derive(Clone, Default)]
struct Found {
    at: Option<Instant>,
    addresses: Arc<[SocketAddr]>,
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

    /// The pods that somebody else knows.
    pub fn new(resolve: impl Fn() -> Answer + Send + Sync + 'static) -> Self {
        Self { resolve: Box::new(resolve), found: Mutex::default(), turn: AtomicUsize::new(0) }
    }

    /// Whose turn it is; nobody's if there is no choice, because the Service is as good then.
    pub(super) async fn next(&self) -> Option<SocketAddr> {
        let addresses = self.addresses().await;
        if addresses.len() < 2 {
            return None;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        addresses.get(turn % addresses.len()).copied()
    }

    /// Whether a pod is still there. An address is given to somebody else when its pod is gone, so calls go to known ones only.
    pub(super) async fn has(&self, pod: SocketAddr) -> bool {
        self.addresses().await.contains(&pod)
    }

    async fn addresses(&self) -> Arc<[SocketAddr]> {
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.at.is_some_and(|at| at.elapsed() < BELIEVED) {
            return known.addresses;
        }
        // While the name service is silent, what it said last is the best there is.
        let addresses = match (self.resolve)().await {
            Ok(mut addresses) => {
                // The name service shuffles them, and all proxies should see one order.
                addresses.sort_unstable();
                addresses.dedup();
                addresses.into()
            }
            Err(error) => {
                tracing::debug!(%error, "the pods of the server cannot be looked up");
                known.addresses
            }
        };
        let found = Found { at: Some(Instant::now()), addresses: Arc::clone(&addresses) };
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        addresses
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
        // A name service that fails takes nothing away.
        *there.lock().unwrap() = Err(std::io::ErrorKind::TimedOut.into());
        tokio::time::advance(BELIEVED).await;
        assert!(pods.has(at(2)).await);
    }
}
