//! A modern client in front of a legacy server.

use bytes::Bytes;

use super::legacy_client::unsupported;
use super::{
    OF_CLIENT, RESOURCE_NOT_FOUND, RequestKind, RequiredCapability, SERVER_INFO, URL_ELICITATION_REQUIRED, code,
    instead_of, unambiguous, with_error,
};
use crate::id::Id;
use crate::message::{Kind, Message};
use crate::message_error::MessageError;
use crate::raw::Raw;
use crate::splice::{Edit, SpliceError};
use crate::{answer, splice, value};

/// The longest `clientInfo` that servers get, in bytes: they get it in a session, for which it is kept. Of a longer one they get the name
/// and the version, if these are no longer than that.
const LONGEST_INFO: usize = 1024;

/// What a modern client said of itself in one request, and what the answer to it needs.
#[derive(Clone, Debug)]
pub struct ModernClient {
    /// The client's id of the request.
    id: Id,
    /// By what the client knows reports of progress.
    token: Option<Id>,
    kind: RequestKind,
    capabilities: Bytes,
    info: Option<Raw<'static>>,
}

// === impl ModernClient ===

impl ModernClient {
    /// The client of a request. Nothing for what is no request.
    pub fn of(request: &Message) -> Option<Self> {
        Some(Self {
            id: request.id()?,
            token: request.progress_token(),
            kind: RequestKind::of(request),
            capabilities: request.shared_capabilities().unwrap_or(Bytes::from_static(b"{}")),
            info: request.client_info().and_then(short_info),
        })
    }

    /// The client's id of the request.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// The capabilities that it declared, as JSON.
    pub fn capabilities(&self) -> &[u8] {
        &self.capabilities
    }

    /// Who it is, as it says, as JSON. Nothing if that is too long.
    pub fn info(&self) -> Option<&Raw<'static>> {
        self.info.as_ref()
    }

    /// The request as the server gets it, under an id that is unique there. Progress is reported by the same.
    pub fn request(&self, request: &Message, id: &Id) -> Result<Message, SpliceError> {
        let mut edits = vec![Edit::set(&["id"], id)];
        if request.meta().is_some() {
            edits.extend(OF_CLIENT.map(Edit::remove));
        }
        if self.token.is_some() {
            edits.push(Edit::set(&["params", "_meta", "progressToken"], id));
        }
        splice::apply(request, &edits)
    }

    /// A report of progress as the client gets it. Nothing if it has not asked for any.
    pub fn progress(&self, report: &Message) -> Option<Message> {
        let token = self.token.as_ref()?;
        splice::apply(report, &[Edit::set(&["params", "progressToken"], token)]).ok()
    }

    /// A response as the client gets it. `server` is who the server is, as it said in `initialize`.
    pub fn response(&self, response: &Message, server: Option<&Raw<'_>>) -> Result<Message, SpliceError> {
        unambiguous(response)?;
        match response.kind() {
            Kind::Error => self.error(response),
            Kind::Response => self.result(response, server),
            Kind::Request | Kind::Notification => Err(MessageError::NoKind.into()),
        }
    }

    /// The error of a call during which the server asked the client for something.
    pub fn refusal(&self, required: &RequiredCapability) -> Refused {
        let (is_declared, declaration) = (required.is_in(&self.capabilities), required.declaration());
        Refused { is_declared, name: required.name, declaration }
    }

    fn result(&self, response: &Message, server: Option<&Raw<'_>>) -> Result<Message, SpliceError> {
        let mut edits =
            vec![Edit::set(&["id"], &self.id), Edit::set(&["result", "resultType"], Raw::string("complete"))];
        if self.kind.is_cacheable() {
            // The server does not say for how long it may be kept, nor by whom.
            edits.push(Edit::set(&["result", "ttlMs"], Raw::value(&0.into())));
            edits.push(Edit::set(&["result", "cacheScope"], Raw::string("private")));
        }
        edits.extend(server.map(|server| Edit::set(&["result", "_meta", SERVER_INFO], server.clone())));
        splice::apply(response, &edits)
    }

    fn error(&self, response: &Message) -> Result<Message, SpliceError> {
        let named = splice::apply(response, &[Edit::set(&["id"], &self.id)])?;
        match code(&named) {
            Some(RESOURCE_NOT_FOUND) if self.kind == RequestKind::Read => {
                with_error(&named, answer::INVALID_PARAMS, None)
            }
            Some(URL_ELICITATION_REQUIRED) => self.refusal(&RequiredCapability::URL).instead_of(&named),
            _ => Ok(named),
        }
    }
}

/// Who a client says it is, short enough to be kept.
fn short_info(info: &[u8]) -> Option<Raw<'static>> {
    let info = std::str::from_utf8(info).ok().filter(|info| info.starts_with('{'))?;
    if info.len() <= LONGEST_INFO {
        return super::owned(info);
    }
    let text = |name: &str| value::find(info.as_bytes(), &[name]).filter(|text| text.starts_with('"'));
    let (name, version) = (text("name")?, text("version")?);
    let is_short = name.len() + version.len() <= LONGEST_INFO;
    is_short.then(|| super::owned(&format!(r#"{{"name":{name},"version":{version}}}"#)))?
}

/// Why a call ends during which the server asked the client for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Whether the client declared that it can be asked.
    pub is_declared: bool,
    /// The capability.
    pub name: &'static str,
    /// As a client would declare it.
    pub declaration: Raw<'static>,
}

// === impl Refused ===

impl Refused {
    /// The code of the error.
    pub fn code(&self) -> i64 {
        if self.is_declared { answer::INTERNAL_ERROR } else { answer::MISSING_CAPABILITY }
    }

    /// What the error says.
    pub fn text(&self) -> String {
        if self.is_declared {
            return unsupported(self.name);
        }
        format!("the server needs the client capability `{}`, which the request does not declare", self.name)
    }

    /// The data of the error.
    pub fn data(&self) -> Option<Raw<'static>> {
        let data = format!(r#"{{"requiredCapabilities":{}}}"#, self.declaration.as_str());
        Raw::parse(&data).ok().map(Raw::into_owned).filter(|_| !self.is_declared)
    }

    fn instead_of(&self, response: &Message) -> Result<Message, SpliceError> {
        instead_of(response, self.code(), &self.text(), self.data().as_ref())
    }
}
