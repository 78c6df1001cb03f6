//! One request on its way to the server and back: its response is one JSON body, or the last message of a stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use skep_mcp::headers::LAST_EVENT_ID;
use skep_mcp::headers::parameters::Parameter;
use skep_mcp::{Edit, Era, Id, Kind, Message, method, splice};
use skep_net::{Body, Budget};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::client_session::{ClientSession, Link, PendingCall};
use super::handshake::accepted;
use super::listen::Source;
use super::messages::{Messages, is_events};
use super::probe::is_header_mismatch;
use super::{HttpUpstream, protocol_headers};
use crate::error::CallError;
use crate::replies::{INTERIM, InFlight, PendingResponse, Replies};
use crate::upstream::{Call, ClientContext, Upstream};

/// How often in a row a stream that broke before the response is resumed without a message in between.
const RESUMPTIONS: usize = 10;
/// How long is waited before that, unless the server asks for another time, and the longest that it may ask for.
const RECONNECT: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// A call that the server has.
#[derive(Debug)]
struct HttpCall {
    upstream: Arc<HttpUpstream>,
    id: Id,
    era: Era,
    session: Option<Arc<ClientSession>>,
    client: ClientContext,
    task: AbortHandle,
}

/// What the task of a call has.
struct Exchange {
    upstream: Arc<HttpUpstream>,
    message: Message,
    id: Id,
    era: Era,
    session: Option<Arc<ClientSession>>,
    client: ClientContext,
    parameters: Arc<[Parameter]>,
    interim: Option<mpsc::Sender<Bytes>>,
    budget: Budget,
    /// Messages that come on the stream of the session, over HTTP+SSE.
    routed: mpsc::Receiver<Message>,
    /// When the last message came.
    last_message: Arc<watch::Sender<Instant>>,
}

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Sends a request. The task that waits for its response ends with the returned replies.
    pub(super) async fn start_call(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        let Call { message, era, session, takes_interim, client, budget, timeout } = call;
        let id = message.id().ok_or(CallError::NotSent)?;
        let session = match session.filter(|_| era == Era::Legacy) {
            Some(session) => Some(self.session(&session).ok_or(CallError::NotSent)?),
            None => None,
        };
        let is_tool_call = era == Era::Modern && message.method() == Some("tools/call");
        let parameters = if is_tool_call { self.parameters(&message, &client).await? } else { Arc::default() };
        let (sender, interim) = if takes_interim { Some(mpsc::channel(INTERIM)).unzip() } else { (None, None) };
        let (outcome, response) = oneshot::channel();
        let (messages, routed) = mpsc::channel(INTERIM);
        let (cancel, cancelled) = oneshot::channel();
        if let Some(session) = &session {
            session.touch(&client);
            session.begin(id.clone(), PendingCall { cancel, token: message.progress_token(), messages });
        }
        let (upstream, own) = (self.clone(), client.clone());
        let last_message = Arc::new(watch::Sender::new(Instant::now()));
        let mut exchange = Exchange {
            upstream,
            message,
            id: id.clone(),
            era,
            session: session.clone(),
            client: own,
            parameters,
            interim: sender,
            budget,
            routed,
            last_message: last_message.clone(),
        };
        let exchange_session = session.clone();
        let task = tokio::spawn(
            async move {
                let result = tokio::select! {
                    result = exchange.run() => result,
                    // The sender is dropped with the stream of the session, which the exchange sees for itself.
                    Ok(()) = cancelled => Err(CallError::Cancelled),
                    () = silence(timeout, exchange_session.as_ref(), &last_message) => Err(CallError::Timeout),
                };
                if matches!(result, Err(CallError::Timeout)) {
                    exchange.upstream.cancel_at_server(
                        &exchange.id,
                        exchange.era,
                        exchange.session.clone(),
                        &exchange.client,
                    );
                }
                if let Some(session) = &exchange.session {
                    session.end(&exchange.id);
                }
                // The client may have left.
                let _left = outcome.send(result.map(Box::new));
            }
            .in_current_span(),
        );
        let call = HttpCall { upstream: self, id, era, session, client, task: task.abort_handle() };
        Ok(Replies { interim, response: PendingResponse::new(response, Box::new(call)) })
    }

    /// Sends a legacy server the notification that a request is cancelled. For a modern one, its connection is closed.
    fn cancel_at_server(
        self: &Arc<Self>,
        id: &Id,
        era: Era,
        session: Option<Arc<ClientSession>>,
        client: &ClientContext,
    ) {
        let runtime = tokio::runtime::Handle::try_current();
        let (Era::Legacy, Ok(runtime)) = (era, runtime) else { return };
        let body =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{}}}}}"#, id.raw());
        let Ok(message) = Message::parse(body.into()) else { return };
        let (upstream, client, of_session) = (self.clone(), client.clone(), session.clone());
        let cancellation = runtime.spawn(async move {
            if let Err(error) = upstream.post_message(session.as_ref(), &message, Some(&client)).await {
                tracing::debug!(%error, "cancellation not sent");
            }
        });
        if let Some(session) = of_session {
            session.leaves(cancellation);
        }
    }

    /// Which arguments of a tool call headers repeat.
    pub(super) async fn parameters(
        self: &Arc<Self>,
        call: &Message,
        client: &ClientContext,
    ) -> Result<Arc<[Parameter]>, CallError> {
        let Some(tool) = method::resource(call) else { return Ok(Arc::default()) };
        if let Some(found) = self.catalogue.find(&tool, false) {
            return Ok(found);
        }
        let _one_at_a_time = self.catalogue.turn().await;
        if let Some(found) = self.catalogue.find(&tool, false) {
            return Ok(found);
        }
        let mut listing = self.catalogue.begin();
        while let Some(request) = listing.request(Era::Modern, call) {
            let list = Call { client: client.clone(), ..Call::new(request, Era::Modern) };
            let mut listed = Upstream::call(self.clone(), list).await?;
            listing.take(&listed.response.response().await?);
        }
        self.catalogue.complete(&listing);
        Ok(self.catalogue.find(&tool, false).unwrap_or_default())
    }
}

/// Waits until the server has been silent for too long. Each message begins its time anew, and it has time while it waits for the client.
async fn silence(timeout: Option<Duration>, session: Option<&Arc<ClientSession>>, last: &watch::Sender<Instant>) {
    let Some(timeout) = timeout else { return std::future::pending().await };
    loop {
        let until = *last.borrow() + timeout;
        tokio::time::sleep_until(until).await;
        let extended = session.and_then(|session| session.extended_deadline(timeout));
        match extended.filter(|extended| *extended > Instant::now()) {
            Some(extended) => tokio::time::sleep_until(extended).await,
            None if *last.borrow() + timeout <= Instant::now() => return,
            None => {}
        }
    }
}

// === impl Exchange ===

impl Exchange {
    /// Sends the request, and waits for its response.
    async fn run(&mut self) -> Result<Message, CallError> {
        let link = match &self.session {
            Some(session) => Some(session.link(&self.upstream).await?),
            None => None,
        };
        let (link, response) = self.send(link).await?;
        let response = match link.as_deref().filter(|link| link.stream.is_some()) {
            Some(_) => {
                accepted(response).await?;
                self.read_routed().await
            }
            None => self.read(response, link.as_deref()).await,
        }?;
        if let Some(session) = &self.session {
            session.note(&self.message, &response);
        }
        if self.message.method() == Some("tools/list") {
            self.upstream.catalogue.learn(&response);
        }
        if is_header_mismatch(&response) {
            self.upstream.catalogue.forget();
        }
        Ok(response)
    }

    /// Sends the request, once more if the server forgot the session.
    async fn send(&self, link: Option<Arc<Link>>) -> Result<(Option<Arc<Link>>, Response<Body>), CallError> {
        let response = self.post(link.as_deref()).await?;
        let (Some(session), Some(forgotten)) = (&self.session, &link) else { return Ok((link, response)) };
        let is_known = forgotten.session.is_some() || forgotten.stream.is_some();
        if response.status() != StatusCode::NOT_FOUND || !is_known {
            return Ok((link, response));
        }
        let renewed = session.relink(&self.upstream, Some(forgotten)).await?;
        let response = self.post(Some(&renewed)).await?;
        Ok((Some(renewed), response))
    }

    async fn post(&self, link: Option<&Link>) -> Result<Response<Body>, CallError> {
        let mut request = self.upstream.request_of(Method::POST, link)?;
        request.body = self.message.body().clone();
        request.is_message = true;
        let client = self.upstream.client_of(self.session.as_deref(), Some(&self.client));
        request.headers = protocol_headers::of_message(client.headers, self.era, &self.message, link, &self.parameters);
        // Of this request, and not of the session.
        for (name, value) in &self.client.trace {
            request.headers.insert(name, value.clone());
        }
        request.caller = client.caller;
        self.upstream.send_message(&request).await
    }

    /// Reads the messages of an HTTP response up to the one that answers the request. A stream that breaks before is resumed.
    async fn read(&self, response: Response<Body>, link: Option<&Link>) -> Result<Message, CallError> {
        let status = response.status();
        let mut messages = Messages::of(response, &self.budget);
        let mut left = RESUMPTIONS;
        loop {
            match messages.next().await {
                Ok(Some(message)) => {
                    left = RESUMPTIONS;
                    if let Some(response) = self.take(message, messages.is_stream()).await? {
                        return Ok(response);
                    }
                }
                Ok(None) | Err(CallError::Disconnected) if status.is_success() && left > 0 => {
                    left -= 1;
                    let (last, retry) = (messages.last_event.take(), messages.retry);
                    messages = self.resume(last, retry, link).await.ok_or(CallError::Disconnected)?;
                }
                Ok(None) => {
                    return Err(if status.is_success() {
                        CallError::Disconnected
                    } else {
                        CallError::Rejected(status)
                    });
                }
                Err(CallError::Malformed) if !status.is_success() => return Err(CallError::Rejected(status)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Resumes a stream that ended before the response, after the last event that came. Nothing if the server cannot.
    async fn resume(
        &self,
        last: Option<HeaderValue>,
        retry: Option<Duration>,
        link: Option<&Link>,
    ) -> Option<Messages> {
        // 2026-07-28 has no resumption.
        let last = last.filter(|_| self.era == Era::Legacy)?;
        tokio::time::sleep(retry.unwrap_or(RECONNECT).min(LONGEST_RETRY)).await;
        let mut request = self.upstream.request_of(Method::GET, link).ok()?;
        let client = self.upstream.client_of(self.session.as_deref(), Some(&self.client));
        request.headers = protocol_headers::of_stream(client.headers, link);
        request.caller = client.caller;
        request.headers.insert(LAST_EVENT_ID, last.clone());
        let response = self.upstream.send_message(&request).await.ok()?;
        if !response.status().is_success() || !is_events(response.headers()) {
            return None;
        }
        let mut messages = Messages::of(response, &self.budget);
        (messages.last_event, messages.retry) = (Some(last), retry);
        Some(messages)
    }

    /// Reads the messages of the call from the stream of its session.
    async fn read_routed(&mut self) -> Result<Message, CallError> {
        loop {
            let message = self.routed.recv().await.ok_or(CallError::Disconnected)?;
            if let Some(response) = self.take(message, true).await? {
                return Ok(response);
            }
        }
    }

    /// Takes a message. Returns the response of the call, under the client's id.
    async fn take(&self, message: Message, is_stream: bool) -> Result<Option<Message>, CallError> {
        self.last_message.send_replace(Instant::now());
        match message.kind() {
            Kind::Request | Kind::Notification => {
                let (session, interim) = (self.session.as_ref(), self.interim.as_ref());
                self.upstream.deliver(session, message, Source::Call(interim), Some(&self.client)).await;
                Ok(None)
            }
            Kind::Response | Kind::Error if message.id().as_ref() == Some(&self.id) => Ok(Some(message)),
            // The server could not read the request, and says so.
            Kind::Error if message.id().is_none() && !is_stream => {
                let named = splice::apply(&message, &[Edit::set(&["id"], &self.id)]);
                named.map(Some).map_err(|_malformed| CallError::Malformed)
            }
            Kind::Response | Kind::Error if is_stream => {
                tracing::warn!("dropping a response with the id of another request");
                Ok(None)
            }
            Kind::Response | Kind::Error => Err(CallError::Malformed),
        }
    }
}

// === impl HttpCall ===

impl InFlight for HttpCall {
    /// Closes the connection, which cancels the request for a modern server. A legacy one is sent a notification.
    fn cancel(&self) {
        self.task.abort();
        if let Some(session) = &self.session {
            session.end(&self.id);
        }
        self.upstream.cancel_at_server(&self.id, self.era, self.session.clone(), &self.client);
    }

    fn is_sent(&self) -> bool {
        true
    }

    fn extended_deadline(&self, timeout: Duration) -> Option<Instant> {
        self.session.as_ref()?.extended_deadline(timeout)
    }
}
