//! Requests in flight of clients behind a trusted proxy. The connections are the proxy's, so the share of them that one peer may have says
//! nothing about its clients; one of them could take all of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::Response;
use skep_net::Body;

use crate::exchange::Exchange;
use crate::observe::Observation;

/// How many requests each client has in flight, streams included. Clones count the same.
#[derive(Clone, Debug)]
pub struct InFlight {
    limit: usize,
    /// By the network of the client.
    clients: Arc<Mutex<HashMap<IpAddr, usize>>>,
    refused: Arc<AtomicU64>,
}

/// A request in flight; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Flight {
    all: InFlight,
    client: IpAddr,
}

// === impl InFlight ===

impl Default for InFlight {
    /// No limit.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl InFlight {
    /// So many of each client.
    pub fn new(limit: usize) -> Self {
        Self { limit, clients: Arc::default(), refused: Arc::default() }
    }

    /// How many requests were refused.
    pub fn refused(&self) -> Arc<AtomicU64> {
        self.refused.clone()
    }

    /// Counts a request of a client, unless it has too many.
    pub(crate) fn begin(&self, client: IpAddr) -> Option<Flight> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let count = clients.entry(client).or_default();
        if *count >= self.limit {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *count += 1;
        Some(Flight { all: self.clone(), client })
    }
}

// === impl Flight ===

impl Observation for Flight {
    fn answered(&mut self, _: &Exchange, _: &Response<Body>) {}
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut clients = self.all.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_no_more_in_flight_than_its_limit() {
        let all = InFlight::new(2);
        let (one, other): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let flights = [all.begin(one), all.begin(one)];
        assert!(flights.iter().all(Option::is_some) && all.begin(one).is_none() && all.begin(other).is_some());
        assert_eq!(all.refused().load(Ordering::Relaxed), 1);
        drop(flights);
        assert!(all.clients.lock().unwrap().is_empty(), "nothing is kept of clients that left");
        assert!(all.begin(one).is_some());
    }
}
