//! Opening a session at the server in the name of a client: `initialize`, and what follows it.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use skep_mcp::headers::SESSION_ID;
use skep_mcp::{Era, Kind, Message};
use skep_net::{Body, Budget};

use super::client_session::{ClientSession, Link};
use super::credentials::SendError;
use super::messages::Messages;
use super::{HttpUpstream, ServerRequest, Transport, protocol_headers};
use crate::era;
use crate::error::CallError;
use crate::initialize::INITIALIZED;
use crate::upstream::{BoxFuture, ClientContext};

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Opens a session at the server. Returns the response to `initialize`, and no session if that is an error. A server that does not
    /// take the request by POST may be one of HTTP+SSE. Boxed: what reads the stream of a session may have to open it again.
    pub(super) fn handshake<'a>(
        self: &'a Arc<Self>,
        session: &'a Arc<ClientSession>,
    ) -> BoxFuture<'a, Result<(Message, Option<Link>), CallError>> {
        Box::pin(self.open_session(session))
    }

    async fn open_session(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
    ) -> Result<(Message, Option<Link>), CallError> {
        let known = self.transport.get().copied();
        if known == Some(Transport::Sse) {
            return self.open_stream(session).await;
        }
        let initialized = Box::pin(self.initialize(session)).await;
        let is_refused = |status: StatusCode| matches!(status.as_u16(), 400 | 404 | 405);
        let transport = match &initialized {
            Err(CallError::Rejected(status)) if known.is_none() && is_refused(*status) => Transport::Sse,
            Err(_) => return initialized,
            Ok(_) => Transport::StreamableHttp,
        };
        if transport == Transport::StreamableHttp {
            let _known = self.transport.set(transport);
            return initialized;
        }
        match self.open_stream(session).await {
            Ok(opened) => {
                let _known = self.transport.set(transport);
                Ok(opened)
            }
            // It is neither: what it said first says more.
            Err(_) => initialized,
        }
    }

    /// The handshake by streamable HTTP.
    async fn initialize(&self, session: &ClientSession) -> Result<(Message, Option<Link>), CallError> {
        let initialize = session.initialize();
        let mut request = self.post(initialize.body().clone())?;
        let client = self.client_of(Some(session), None);
        request.headers = protocol_headers::of_message(client.headers, Era::Legacy, &initialize, None, &[]);
        request.caller = client.caller;
        if let Some(pods) = &self.options.pods {
            self.route_to(pods.next().await, &mut request);
        }
        let response = self.send_message(&request).await?;
        let id = response.headers().get(SESSION_ID).cloned();
        let message = only_response(response, &initialize).await?;
        if message.kind() == Kind::Error {
            return Ok((message, None));
        }
        let link = Link { session: id, version: version(&message), pod: request.pod, stream: None };
        self.send_initialized(session, &link).await?;
        Ok((message, Some(link)))
    }

    /// Sends the notification that completes the handshake.
    pub(super) async fn send_initialized(&self, session: &ClientSession, link: &Link) -> Result<(), CallError> {
        let mut request = self.request_of(Method::POST, Some(link))?;
        request.body = Bytes::from_static(INITIALIZED);
        request.is_message = true;
        let client = self.client_of(Some(session), None);
        request.headers =
            protocol_headers::of_message(client.headers, Era::Legacy, &session.initialize(), Some(link), &[]);
        request.caller = client.caller;
        accepted(self.send_message(&request).await?).await
    }

    /// A message for the server, without headers.
    pub(super) fn post(&self, body: Bytes) -> Result<ServerRequest, CallError> {
        let mut request = self.request_of(Method::POST, None)?;
        request.body = body;
        request.is_message = true;
        Ok(request)
    }

    /// A request to where the messages of a session go.
    pub(super) fn request_of(&self, method: Method, link: Option<&Link>) -> Result<ServerRequest, CallError> {
        let endpoint = link.and_then(|link| link.stream.as_ref()).map(|stream| stream.endpoint.clone());
        let uri = endpoint.or_else(|| self.target.own_uri()).ok_or(CallError::NotSent)?;
        let mut request = ServerRequest::new(method, uri);
        self.route_to(link.and_then(|link| link.pod), &mut request);
        Ok(request)
    }

    /// Sends a request. A server that cannot be reached is probed until it can.
    pub(super) async fn send_message(&self, request: &ServerRequest) -> Result<Response<Body>, CallError> {
        self.send_with_credentials(request).await.map_err(|error| match error {
            SendError::Server(error) => self.lost(&error),
            SendError::Credentials(error) => error.into(),
        })
    }

    /// Whom a request is sent for: what every request gets, what the client's session has, and what a call has of its own.
    pub(super) fn client_of(&self, session: Option<&ClientSession>, own: Option<&ClientContext>) -> ClientContext {
        let mut client = ClientContext::with_headers(self.options.headers.clone());
        for one in session.map(ClientSession::client).iter().chain(own) {
            for (name, value) in &one.headers {
                client.headers.insert(name, value.clone());
            }
            client.caller = one.caller.clone().or(client.caller);
        }
        client
    }
}

/// The protocol version that the server agreed to.
pub(super) fn version(initialized: &Message) -> Option<HeaderValue> {
    era::protocol_version(initialized).and_then(|version| HeaderValue::from_str(&version).ok())
}

/// The response to a request that the proxy sends itself, with nothing before it.
pub(super) async fn only_response(response: Response<Body>, request: &Message) -> Result<Message, CallError> {
    let status = response.status();
    let mut messages = Messages::of(response, &Budget::default());
    let rejected = |error| if status.is_success() { error } else { CallError::Rejected(status) };
    loop {
        let message = messages.next().await.map_err(rejected)?;
        let message = message.ok_or_else(|| rejected(CallError::Disconnected))?;
        let is_response = matches!(message.kind(), Kind::Response | Kind::Error);
        // An error of a server that could not read the request has no id.
        if is_response && (message.id() == request.id() || message.id().is_none()) {
            return Ok(message);
        }
    }
}

/// Whether the server took a message that has no response.
pub(super) async fn accepted(response: Response<Body>) -> Result<(), CallError> {
    let status = response.status();
    let mut messages = Messages::of(response, &Budget::default());
    if !messages.is_stream() {
        // Read, so that the connection can be used again. Most servers send nothing.
        let _ignored = messages.next().await;
    }
    if status.is_success() { Ok(()) } else { Err(CallError::Rejected(status)) }
}
