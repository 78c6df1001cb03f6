//! Requests of the proxy's own, which it sends in the name of a client: see [`crate::chain`].

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::{Response, header};
use http_body::Body as _;
use skep_mcp::{Era, Id, Message, message, sse};
use skep_net::Body;
use skep_net::body::{Limit, collect};
use skep_upstream::{BackendNames, BoxFuture, Call, admission};

use super::endpoint::Endpoint;
use super::forward::Forward;
use crate::chain::ToolSource;
use crate::exchange::Exchange;
use crate::http::is_of_type;
use crate::proxy::Front;

/// How long a server may be silent within a response.
const IDLE: Duration = Duration::from_secs(10);

impl ToolSource for Front {
    fn request(&self, exchange: Exchange, limit: usize) -> Pin<Box<dyn Future<Output = Option<Message>> + Send + '_>> {
        Box::pin(async move {
            match self {
                Self::Streamable(front) => front.endpoint().own_request(&exchange).await,
                Self::Sse(front) => front.endpoint().own_request(&exchange).await,
                Self::Forward(front) => front.own_request(exchange, limit).await,
            }
        })
    }

    fn is_composed(&self) -> bool {
        match self {
            Self::Streamable(front) => front.endpoint().upstream.is_composed(),
            Self::Sse(_) | Self::Forward(_) => false,
        }
    }

    fn backend_names<'a>(&'a self, exchange: &'a Exchange) -> BoxFuture<'a, Option<Arc<dyn BackendNames>>> {
        Box::pin(async move {
            let Self::Streamable(front) = self else { return None };
            let client = front.endpoint().client(exchange);
            let name = exchange.resource().unwrap_or_default();
            let named = exchange.named_in().map(|list| (list, &*name));
            front.endpoint().upstream.backend_names(&client, named).await
        })
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// The response of the server. The message is not of the client's session: its responses would be for the client.
    async fn own_request(&self, exchange: &Exchange) -> Option<Message> {
        let message = exchange.message()?.clone();
        let era = exchange.era().and_then(Result::ok).unwrap_or(Era::Legacy);
        let answered = async {
            admission::ready(&mut self.state.clone()).await.ok()?;
            let (client, budget) = (self.client(exchange), exchange.head.budget.clone());
            let call = Call { client, budget, ..Call::new(message, era) };
            let mut replies = self.upstream.clone().call(call).await.ok()?;
            replies.response.response().await.ok()
        };
        tokio::time::timeout(self.timeout, answered).await.ok()?
    }
}

// === impl Forward ===

impl Forward {
    /// The response of the server. Over HTTP+SSE it would come on the client's stream.
    async fn own_request(self: &Arc<Self>, mut exchange: Exchange, limit: usize) -> Option<Message> {
        if self.is_sse() {
            return None;
        }
        let id = exchange.id()?;
        let response = self.call(&mut exchange).await;
        if !response.status().is_success() {
            return None;
        }
        if is_of_type(response.headers().get(header::CONTENT_TYPE), "text/event-stream") {
            return first_event(response, &id, limit).await;
        }
        let body = collect(response.into_body(), Limit { bytes: limit, idle: IDLE, pace: 1 }).await.ok()?;
        Message::parse(message::without_byte_order_mark(body)).ok()
    }
}

/// The first message of a stream with an id.
async fn first_event(response: Response<Body>, id: &Id, limit: usize) -> Option<Message> {
    let mut body = pin!(response.into_body());
    let mut reader = sse::Reader::new(sse::Limits { line: limit, event: limit });
    let mut room = limit;
    loop {
        let frame = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await?.ok()?;
        let Ok(bytes) = frame.into_data() else { continue };
        room = room.checked_sub(bytes.len())?;
        reader.feed(&bytes);
        while let Some(item) = reader.next_item().ok()? {
            let sse::Item::Event(event) = item else { continue };
            let data = if event.is_message() { event.data } else { None };
            let message = data.and_then(|data| Message::parse(data).ok()).filter(|message| message.method().is_none());
            if message.as_ref().is_some_and(|message| message.id().as_ref() == Some(id)) {
                return message;
            }
        }
    }
}
