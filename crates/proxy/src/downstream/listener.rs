//! What a session hears beside its calls, counted in the memory budget.
//!
//! The one reader of the server's output never waits for a client: it puts messages into the queue of each session that listens, and
//! drops those that find it full. Here they wait for room in the budget, so only the stream of that client waits.

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use skep_mcp::sse;
use skep_net::Budget;
use skep_net::budget::{OverBudgetError, Purpose};
use tokio::sync::mpsc;

/// The events of one listening stream.
pub(super) struct Listener {
    heard: mpsc::Receiver<Bytes>,
    budget: Budget,
    /// An event that waits for room.
    waiting: Option<Waiting>,
}

type Waiting = Pin<Box<dyn Future<Output = Result<Bytes, OverBudgetError>> + Send>>;

// === impl Listener ===

impl Listener {
    pub(super) fn new(heard: mpsc::Receiver<Bytes>, budget: Budget) -> Self {
        Self { heard, budget, waiting: None }
    }

    /// The next event, as soon as there is room for it. Nothing if no more will come. Can be given up and called again: nothing is lost.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                let held = waiting.await;
                self.waiting = None;
                match held {
                    Ok(event) => return Some(event),
                    Err(error) => {
                        tracing::warn!(%error, "dropping a message for a listening session: over the memory budget");
                    }
                }
            }
            let message = self.heard.recv().await?;
            let event = sse::event(Some("message"), None, &message);
            // It was counted while it waited in the queue, and makes room for its event.
            drop(message);
            if let Some(room) = self.budget.try_reserve(event.len(), Purpose::Response) {
                return Some(room.over(event));
            }
            let budget = self.budget.clone();
            self.waiting = Some(Box::pin(async move { budget.hold_or_wait(event, Purpose::Response).await }));
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Listener").field("is_waiting", &self.waiting.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skep_net::budget::ROOM_TIMEOUT;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn item_8_a_message_waits_for_room_however_often_it_is_asked_for() {
        let budget = Budget::new(1 << 20);
        let (sender, heard) = mpsc::channel(4);
        let mut listener = Listener::new(heard, budget.clone());
        let long = Bytes::from("x".repeat(200_000));
        let held = budget.reserve(900_000, Purpose::Response).unwrap();
        for message in [&long, &long, &Bytes::from_static(b"short")] {
            sender.send(message.clone()).await.unwrap();
        }
        let started = Instant::now();
        // A stream writes that it is alive meanwhile.
        let patience = Duration::from_secs(7);
        while tokio::time::timeout(patience, listener.next()).await.is_err() {
            assert!(started.elapsed() < ROOM_TIMEOUT + ROOM_TIMEOUT);
            if started.elapsed() > ROOM_TIMEOUT && budget.held() == 900_000 {
                break;
            }
        }
        assert_eq!(budget.refused(), 1, "the first one waited for as long as it may");
        drop(held);
        assert_eq!(listener.next().await.unwrap().len(), long.len() + "event: message\ndata: \n\n".len());
        assert!(listener.next().await.unwrap().ends_with(b"short\n\n"));
        drop(sender);
        assert_eq!(listener.next().await, None);
        assert_eq!(budget.held(), 0);
    }
}
