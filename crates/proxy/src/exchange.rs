//! One call on its way: what came in, what is known about it, and who wants to see what goes back.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response, Uri, Version};
use skep_mcp::{Id, Malformed, Message};
use skep_net::{Body, Budget, Peer};

use crate::observe::{Observation, Observer};

/// A call between its arrival and its answer.
#[derive(Debug)]
pub struct Exchange {
    /// The HTTP method.
    pub method: Method,
    /// What was asked for.
    pub uri: Uri,
    /// The version of HTTP that it came by.
    pub version: Version,
    /// Headers, which layers may change on the way to the server.
    pub headers: HeaderMap,
    /// Whose connection it is.
    pub peer: Peer,
    /// The network of the client, which is that of the peer unless a trusted proxy named another one.
    pub client: IpAddr,
    /// Where what is buffered for it is counted: the client's share.
    pub budget: Budget,
    /// The message in the body, if it is one. Nothing once the body was released.
    pub content: Content,
    /// What is kept of a body that was released.
    released: Option<Box<Released>>,
    /// Who calls.
    pub identity: Option<Identity>,
    /// Whether the page that calls, if one does, was found to be one that may.
    pub origin_allowed: bool,
    /// Whether the response is that of the server, passed through, and not the proxy's own.
    pub is_passed_through: bool,
    /// Who wants to see the answers, innermost last.
    rewrites: Vec<Arc<dyn Rewrite>>,
    /// Who wants to see what comes beside calls, if this opens a stream for that.
    beside: Vec<Arc<dyn Rewrite>>,
    /// Who sees it and changes nothing.
    observations: Vec<Box<dyn Observation>>,
    /// Whether a layer replaced the message after it was judged.
    mutated: bool,
}

/// The body of a call. It is read once and parsed once.
#[derive(Clone, Debug)]
pub enum Content {
    /// Nothing, or nothing that claims to be a message.
    Opaque(Bytes),
    /// A message.
    Message(Message),
    /// It should be a message, and is none.
    Malformed(Bytes, Malformed),
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

/// Who vouches for clients that do not authenticate. Every other issuer is a URL.
pub(crate) const LOCAL_ISSUER: &str = "toolhive-local";

/// Who calls. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Whoever vouches for the caller.
    pub issuer: Arc<str>,
    /// The caller, as the issuer knows them.
    pub subject: Arc<str>,
    /// A name for people.
    pub name: Arc<str>,
}

/// What a layer says to a call.
#[derive(Debug)]
pub enum Flow {
    /// It goes on.
    Next,
    /// It ends here.
    Answer(Response<Body>),
}

/// Changes answers on their way back. It sees messages, whatever framing they travel in.
pub trait Rewrite: std::fmt::Debug + Send + Sync {
    /// The answer to a call, as the caller should see it.
    fn answer(&self, answer: Message) -> Result<Message, Withheld>;
}

/// An answer that must not reach the caller, because it could not be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's answer could not be judged and was withheld: {0}")]
pub struct Withheld(pub Malformed);

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

// === impl Identity ===

impl Identity {
    /// Whether it tells one client from another. Where nobody authenticates, all clients have the same.
    pub fn is_authenticated(&self) -> bool {
        &*self.issuer != LOCAL_ISSUER
    }

    /// What a session is bound to.
    pub fn key(&self) -> String {
        format!("{} {}", self.issuer, self.subject)
    }

    /// Whether something is bound to this caller by that key.
    pub fn has_key(&self, key: &str) -> bool {
        let subject = key.strip_prefix(&*self.issuer).and_then(|rest| rest.strip_prefix(' '));
        subject == Some(&*self.subject)
    }
}

// === impl Exchange ===

impl Exchange {
    /// A call as it arrived.
    pub fn new(parts: Parts, peer: Peer, content: Content) -> Self {
        Self {
            method: parts.method,
            uri: parts.uri,
            version: parts.version,
            headers: parts.headers,
            peer,
            client: Peer::network(peer.address.ip()),
            budget: Budget::default(),
            content,
            released: None,
            identity: None,
            origin_allowed: false,
            is_passed_through: false,
            rewrites: Vec::new(),
            beside: Vec::new(),
            observations: Vec::new(),
            mutated: false,
        }
    }

    /// The message, if the call carries one.
    pub fn message(&self) -> Option<&Message> {
        self.content.message()
    }

    /// Gives the bytes of the request back, once it was sent and only its response is waited for: both count in the share of one client,
    /// and a call must not wait for itself. What errors and observers need of it is kept.
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

    /// Puts another message in the place of the one that came.
    pub fn replace(&mut self, message: Message) {
        skep_mcp::headers::renew(&mut self.headers, &message);
        self.content = Content::Message(message);
        self.mutated = true;
    }

    /// Whether a layer replaced the message.
    pub fn is_mutated(&self) -> bool {
        self.mutated
    }

    /// Asks to see the answers of this call.
    pub fn watch(&mut self, rewrite: Arc<dyn Rewrite>) {
        self.rewrites.push(rewrite);
    }

    /// Asks to see the answers to other calls, should this one open a stream that they come on.
    pub fn watch_beside(&mut self, rewrite: Arc<dyn Rewrite>) {
        self.beside.push(rewrite);
    }

    /// Lets somebody see this call from here on.
    pub(crate) fn observe(&mut self, observer: Arc<dyn Observer>) {
        let observation = observer.begin(self);
        self.observations.push(observation);
    }

    /// Tells who sees this call how it is answered, innermost first. They stay with the answer until it has ended.
    pub(crate) fn observed(&mut self, answer: Response<Body>) -> Response<Body> {
        if self.observations.is_empty() {
            return answer;
        }
        let mut observations = std::mem::take(&mut self.observations);
        for observation in observations.iter_mut().rev() {
            observation.answered(self, &answer);
        }
        answer.map(|body| body.holding(observations))
    }

    /// Whether anybody wants to see the answers: if not, they need not be read.
    pub fn is_watched(&self) -> bool {
        !self.rewrites.is_empty()
    }

    /// The answers of this call as their watchers want them, for as long as the call lives.
    pub fn watchers(&mut self) -> Watchers {
        Watchers { rewrites: std::mem::take(&mut self.rewrites) }
    }

    /// The answers to other calls as their watchers want them.
    pub fn watchers_beside(&self) -> Watchers {
        Watchers { rewrites: self.beside.clone() }
    }
}

/// Everybody who wants to see the answers of one call.
#[derive(Clone, Debug, Default)]
pub struct Watchers {
    rewrites: Vec<Arc<dyn Rewrite>>,
}

// === impl Watchers ===

impl Watchers {
    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.rewrites.is_empty()
    }

    /// An answer as the caller should see it.
    pub fn answer(&self, mut answer: Message) -> Result<Message, Withheld> {
        for rewrite in self.rewrites.iter().rev() {
            answer = rewrite.answer(answer)?;
        }
        Ok(answer)
    }
}
