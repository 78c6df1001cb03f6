//! A call in flight, whose messages are translated on their way back.

use std::time::Duration;

use bytes::Bytes;
use skep_mcp::Message;
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use super::interim;
use crate::error::CallError;
use crate::relayed_call::RelayedCall;
use crate::replies::{PendingResponse, Replies};
use crate::upstream::BoxFuture;

/// How long a server may take to end a call during which it was refused what it asked for.
const ENDING: Duration = Duration::from_secs(5);

/// What becomes of the messages of one call.
pub(super) trait Translation: Send + 'static {
    /// A message that comes before the response, as the client gets it; nothing if it does not. An error ends the call.
    fn before(&mut self, message: Message) -> BoxFuture<'_, Result<Option<Bytes>, CallError>>;

    /// The response as the client gets it.
    fn response(&mut self, response: &Message) -> Result<Message, CallError>;
}

/// How a call is relayed.
#[derive(Debug)]
pub(super) struct Relay {
    /// Whether the client takes messages before the response.
    pub(super) takes_interim: bool,
    /// What belongs to the call and comes beside it.
    pub(super) beside: Option<mpsc::Receiver<Bytes>>,
    /// Fired when the client cancels the call.
    pub(super) cancelled: Option<oneshot::Receiver<()>>,
}

// === impl Relay ===

impl Relay {
    /// Translates what comes back of a call. The task that does so ends with the returned replies.
    pub(super) fn run(self, mut called: Replies, mut translation: impl Translation) -> Replies {
        let Self { takes_interim, mut beside, cancelled } = self;
        let (sender, interim) = interim(takes_interim);
        let (outcome, response) = oneshot::channel();
        let inner = called.response.in_flight();
        let task = tokio::spawn(
            async move {
                let result = tokio::select! {
                    result = relay(&mut called, &mut beside, &mut translation, sender.as_ref()) => result,
                    () = fired(cancelled) => Err(CallError::Cancelled),
                };
                if matches!(result, Err(CallError::NeedsClient(_))) {
                    let _left = outcome.send(result.map(Box::new));
                    // The server was refused something, and may end the call by itself. If it does not, it is cancelled.
                    let ended = relay(&mut called, &mut beside, &mut translation, None);
                    let _late = tokio::time::timeout(ENDING, ended).await;
                    return;
                }
                // The call is cancelled before its client hears of it, and while it has its session.
                drop(called);
                drop(translation);
                // The client may have left.
                let _left = outcome.send(result.map(Box::new));
            }
            .in_current_span(),
        );
        let call = RelayedCall::new(inner, task.abort_handle());
        Replies { interim, response: PendingResponse::new(response, Box::new(call)) }
    }
}

async fn relay(
    called: &mut Replies,
    beside: &mut Option<mpsc::Receiver<Bytes>>,
    translation: &mut impl Translation,
    client: Option<&mpsc::Sender<Bytes>>,
) -> Result<Message, CallError> {
    let response = loop {
        let message = tokio::select! {
            biased;
            Some(message) = next(&mut called.interim) => message,
            Some(message) = next(beside) => message,
            response = called.response.response() => break response?,
        };
        pass(message, translation, client).await?;
    };
    // What came before the response stays before it.
    for queue in [&mut called.interim, beside] {
        while let Some(message) = queue.as_mut().and_then(|queue| queue.try_recv().ok()) {
            pass(message, translation, client).await?;
        }
    }
    translation.response(&response)
}

async fn pass(
    message: Bytes,
    translation: &mut impl Translation,
    client: Option<&mpsc::Sender<Bytes>>,
) -> Result<(), CallError> {
    let Ok(message) = Message::parse(message) else { return Ok(()) };
    let translated = translation.before(message).await?;
    if let Some((client, message)) = client.zip(translated) {
        // The client may wait for the response only.
        let _unread = client.send(message).await;
    }
    Ok(())
}

/// The next message of a queue. Nothing if there will be none.
async fn next(queue: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    queue.as_mut()?.recv().await
}

/// Waits until the client cancels. Never ends for a call that cannot be cancelled so.
async fn fired(cancelled: Option<oneshot::Receiver<()>>) {
    let is_fired = match cancelled {
        Some(cancelled) => cancelled.await.is_ok(),
        None => false,
    };
    if !is_fired {
        std::future::pending::<()>().await;
    }
}
