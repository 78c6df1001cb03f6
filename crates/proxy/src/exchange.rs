//! One request on its way: its head, its message, and what must see its replies.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Method, Response, Uri, Version, header};
use skep_mcp::headers::{LAST_EVENT_ID, PROTOCOL_VERSION};
use skep_mcp::list::List;
use skep_mcp::{Era, Id, Kind, Message, MessageError, RequestError, era};
use skep_net::{Body, Budget, Peer};
use skep_upstream::{BackendNames, ItemOwner};

use crate::caller::{Caller, Identity};
use crate::chain::reply::{ReplyChain, ReplyMiddleware};
use crate::observe::{Observation, Observations, Observer};
use crate::router::McpPath;

/// All of a request but its body, which may still have to be read.
#[derive(Debug)]
pub struct Head {
    /// The HTTP method.
    pub method: Method,
    /// The URI that was requested.
    pub uri: Uri,
    /// What its path names, as the router says.
    pub(crate) path: McpPath,
    /// The version of HTTP.
    pub version: Version,
    /// Headers, which middleware may change on the way to the server.
    pub headers: HeaderMap,
    /// The other end of the connection.
    pub peer: Peer,
    /// The address of the client, which is that of the peer unless a trusted proxy named another one.
    pub address: IpAddr,
    /// The network of the client, which is that of the peer unless a trusted proxy named another one.
    pub client: IpAddr,
    /// The client's share of the memory budget.
    pub budget: Budget,
    /// Who sends it, once a middleware has established that.
    pub caller: Option<Caller>,
    /// Whether it has an `Origin` that was found to be allowed.
    pub origin_allowed: bool,
    /// What sees the replies to this request, outermost first.
    replies: ReplyChain,
    /// What sees replies to other requests, if this one opens a stream for them.
    other_replies: ReplyChain,
    /// What observes it.
    observations: Vec<Box<dyn Observation>>,
}

/// A request whose body was read.
#[derive(Debug)]
pub struct Exchange {
    /// All but the body.
    pub head: Head,
    /// The message in the body, if it is one. Nothing once the body was released.
    pub content: Content,
    /// What is kept of a body that was released.
    released: Option<Box<Released>>,
    /// Whether the response is that of the server, passed through, and not the proxy's own.
    pub is_passed_through: bool,
    /// What middleware keeps from its first pass for the second, by its own types.
    pub(crate) notes: Extensions,
    /// Which of several servers each thing belongs to that the client sees, where a middleware must know.
    pub(crate) backends: Option<Arc<dyn BackendNames>>,
    /// Whether a middleware replaced the message since that was last asked.
    mutated: bool,
    /// The era, once it is decided.
    era: OnceLock<Classified>,
    /// How often a middleware replaced the message. By it, middleware knows in its second pass whether it has seen this message.
    revision: u32,
}

/// What a classification says: nothing about what is no request, and why a request contradicts itself.
type Classified = Option<Result<Era, Box<RequestError>>>;

/// The body of a request. It is read once and parsed once.
#[derive(Clone, Debug)]
pub enum Content {
    /// Nothing, or nothing that claims to be a message.
    Opaque(Bytes),
    /// A message.
    Message(Message),
    /// A malformed message.
    Malformed(Bytes, MessageError),
}

/// What is still needed of a request when its bytes were given back.
#[derive(Debug)]
struct Released {
    id: Option<Id>,
    method: Option<String>,
    resource: Option<String>,
}

/// How much is kept of a name that a client chose, in bytes.
const NAME: usize = 1024;

// === impl Head ===

impl Head {
    /// The head of a request as it arrived.
    pub fn new(parts: Parts, peer: Peer) -> Self {
        Self {
            method: parts.method,
            path: McpPath::of(parts.uri.path()),
            uri: parts.uri,
            version: parts.version,
            headers: parts.headers,
            peer,
            address: peer.address.ip(),
            client: Peer::network(peer.address.ip()),
            budget: Budget::default(),
            caller: None,
            origin_allowed: false,
            replies: ReplyChain::default(),
            other_replies: ReplyChain::default(),
            observations: Vec::new(),
        }
    }

    /// The head of a request that the proxy sends itself in the name of the same client. Nothing observes it.
    pub(crate) fn of_own_request(&self) -> Self {
        let mut headers = self.headers.clone();
        let about_the_call: Vec<_> =
            headers.keys().filter(|name| name.as_str().starts_with("mcp-param-")).cloned().collect();
        for name in about_the_call.into_iter().chain([header::CONTENT_LENGTH, LAST_EVENT_ID]) {
            headers.remove(name);
        }
        let own = [
            (header::CONTENT_TYPE, "application/json"),
            (header::ACCEPT, "application/json, text/event-stream"),
            (header::ACCEPT_ENCODING, "identity"),
        ];
        for (name, value) in own {
            headers.insert(name, HeaderValue::from_static(value));
        }
        Self {
            method: Method::POST,
            uri: self.uri.clone(),
            path: self.path,
            version: self.version,
            headers,
            peer: self.peer,
            address: self.address,
            client: self.client,
            budget: self.budget.clone(),
            caller: self.caller.clone(),
            origin_allowed: self.origin_allowed,
            replies: ReplyChain::default(),
            other_replies: ReplyChain::default(),
            observations: Vec::new(),
        }
    }

    /// The identity of the caller, if it is known.
    pub fn identity(&self) -> Option<&Identity> {
        self.caller.as_ref().map(|caller| &caller.identity)
    }

    /// Puts every reply to this request through a middleware, before those that were added earlier.
    pub fn watch_replies(&mut self, middleware: Arc<dyn ReplyMiddleware>) {
        self.replies.push(middleware);
    }

    /// The same for replies to other requests, should this one open a stream that they come on.
    pub fn watch_other_replies(&mut self, middleware: Arc<dyn ReplyMiddleware>) {
        self.other_replies.push(middleware);
    }

    /// Lets an observer see this request from here on.
    pub(crate) fn observe(&mut self, observer: Arc<dyn Observer>) {
        let observation = observer.begin(self);
        self.observe_with(observation);
    }

    /// The same for an observation that has begun.
    pub(crate) fn observe_with(&mut self, observation: Box<dyn Observation>) {
        self.observations.push(observation);
    }
}

// === impl Content ===

impl Content {
    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Opaque(bytes) | Self::Malformed(bytes, _) => bytes,
            Self::Message(message) => message.body(),
        }
    }

    /// The message.
    pub fn message(&self) -> Option<&Message> {
        match self {
            Self::Message(message) => Some(message),
            Self::Opaque(_) | Self::Malformed(..) => None,
        }
    }
}

// === impl Exchange ===

impl Exchange {
    /// A request as it arrived.
    pub fn new(head: Head, content: Content) -> Self {
        Self {
            head,
            content,
            released: None,
            is_passed_through: false,
            notes: Extensions::new(),
            backends: None,
            mutated: false,
            revision: 0,
            era: OnceLock::new(),
        }
    }

    /// The message, if the request carries one.
    pub fn message(&self) -> Option<&Message> {
        self.content.message()
    }

    /// The era of the request in it, or why it contradicts itself. Nothing if it carries no request.
    ///
    /// Decided once, when the endpoint first asks: middleware cannot change the message any more.
    pub(crate) fn era(&self) -> Option<Result<Era, &RequestError>> {
        let era = self.era.get_or_init(|| self.classify().map(|era| era.map_err(Box::new)));
        era.as_ref().map(|era| era.as_ref().copied().map_err(|error| &**error))
    }

    /// The same of a message that middleware may still change. With [`era_without_message`], the only place that classifies what a client
    /// sends.
    pub(crate) fn classify(&self) -> Option<Result<Era, RequestError>> {
        let request = self.message().filter(|message| message.kind() == Kind::Request)?;
        Some(era::classify(version(&self.head.headers), request))
    }

    /// Gives the bytes of the request back, once it was sent and only its response is waited for: both count in the share of one client,
    /// and a request must not wait for itself. What errors and observers need of it is kept.
    pub(crate) fn release_body(&mut self) {
        if self.released.is_some() {
            return;
        }
        let kept = |text: &str| text.get(..text.floor_char_boundary(NAME)).unwrap_or_default().to_owned();
        let (method, resource) = (self.mcp_method().map(kept), self.resource().as_deref().map(kept));
        self.released = Some(Box::new(Released { id: self.id(), method, resource }));
        self.content = Content::Opaque(Bytes::new());
    }

    /// The id of the message.
    pub fn id(&self) -> Option<Id> {
        match &self.released {
            Some(released) => released.id.clone(),
            None => self.message().and_then(Message::id),
        }
    }

    /// The method of the message.
    pub fn mcp_method(&self) -> Option<&str> {
        match &self.released {
            Some(released) => released.method.as_deref(),
            None => self.message().and_then(Message::method),
        }
    }

    /// What the message is about, see [`skep_mcp::method::resource`].
    pub fn resource(&self) -> Option<Cow<'_, str>> {
        match &self.released {
            Some(released) => released.resource.as_deref().map(Cow::Borrowed),
            None => self.message().and_then(skep_mcp::method::resource),
        }
    }

    /// Replaces the message. Enforcing middleware runs again on the new one, see [`crate::chain`].
    pub fn replace(&mut self, message: Message) {
        skep_mcp::headers::renew(&mut self.head.headers, &message);
        self.content = Content::Message(message);
        self.mutated = true;
        self.era = OnceLock::new();
        self.revision += 1;
    }

    /// How often the message was replaced.
    pub(crate) fn revision(&self) -> u32 {
        self.revision
    }

    /// Whether a middleware replaced the message since this was last asked.
    pub(crate) fn take_mutated(&mut self) -> bool {
        std::mem::take(&mut self.mutated)
    }

    /// Which of several servers the message is for. Nothing if there is one server, or that is not known.
    pub(crate) fn owner(&self) -> Option<ItemOwner> {
        let names = self.backends.as_ref()?;
        let Some(list) = self.named_in() else { return Some(ItemOwner::Composed) };
        Some(names.owner(list, &self.resource()?))
    }

    /// The list that has what the message names, if it names something that is listed.
    pub(crate) fn named_in(&self) -> Option<List> {
        match self.mcp_method()? {
            "tools/call" => Some(List::Tools),
            "prompts/get" => Some(List::Prompts),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => Some(List::Resources),
            _ => None,
        }
    }

    /// Tells observers how the request is answered, innermost first. They stay with the response until it has ended.
    pub(crate) fn observed(&mut self, response: Response<Body>) -> Response<Body> {
        if self.head.observations.is_empty() {
            return response;
        }
        let mut observations = std::mem::take(&mut self.head.observations);
        for observation in observations.iter_mut().rev() {
            observation.answered(self, &response);
        }
        if observations.iter().any(|one| one.sees_response()) {
            return response.map(|body| body.watched(Observations(observations)));
        }
        response.map(|body| body.holding(observations))
    }

    /// Tells observers that the request goes to the server.
    pub(crate) fn forwarded(&mut self) {
        let mut observations = std::mem::take(&mut self.head.observations);
        for observation in &mut observations {
            observation.forwarded(self);
        }
        self.head.observations = observations;
    }

    /// Takes the observations that see the reply, if it goes to another stream than the response. They have seen that response.
    pub(crate) fn take_late_observations(&mut self, response: &Response<Body>) -> Observations {
        let (mut late, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.head.observations).into_iter().partition(|one| one.sees_response());
        for observation in &mut late {
            observation.answered(self, response);
        }
        self.head.observations = others;
        Observations(late)
    }

    /// Whether an observer sees the response, which must not be compressed then.
    pub(crate) fn is_response_observed(&self) -> bool {
        self.head.observations.iter().any(|one| one.sees_response())
    }

    /// Whether a middleware must see the replies: if not, they need not be parsed.
    pub fn is_watched(&self) -> bool {
        !self.head.replies.is_empty()
    }

    /// What the replies go through.
    pub fn reply_chain(&mut self) -> ReplyChain {
        std::mem::take(&mut self.head.replies)
    }

    /// What replies to other requests go through.
    pub fn other_reply_chain(&self) -> ReplyChain {
        self.head.other_replies.clone()
    }
}

/// The era of a request that carries no message, by its headers.
pub(crate) fn era_without_message(headers: &HeaderMap) -> Era {
    era::of_header(version(headers))
}

fn version(headers: &HeaderMap) -> Option<&str> {
    headers.get(PROTOCOL_VERSION)?.to_str().ok()
}
