//! A legacy client in front of a modern server.

use super::{
    CAPABILITIES, Filter, INFO, LEVEL, RESOURCE_NOT_FOUND, RequestKind, SERVER_INFO, SUBSCRIPTION, TASKS, VERSION,
    code, instead_of, member, owned, said, unambiguous, with_error,
};
use crate::era::MODERN;
use crate::id::Id;
use crate::message::{Kind, Message};
use crate::message_error::MessageError;
use crate::raw::Raw;
use crate::splice::{Edit, SpliceError};
use crate::{answer, json, splice, value};

/// What a client said of itself in `initialize`, which a modern server is told with each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyClient {
    info: Option<Raw<'static>>,
    /// Without what is not relayed: the server must not ask for it.
    relayed: Raw<'static>,
    /// What the client declared of that.
    declared: Vec<&'static str>,
}

/// The capabilities that a server would use by asking the client during a call.
const ASKED: [&str; 3] = ["elicitation", "roots", "sampling"];

// === impl LegacyClient ===

impl Default for LegacyClient {
    /// A client of which nothing is known.
    fn default() -> Self {
        Self { info: None, relayed: Raw::value(&serde_json::json!({})), declared: Vec::new() }
    }
}

impl LegacyClient {
    /// The client that sent this `initialize`.
    pub fn of(initialize: &Message) -> Self {
        let Some(params) = initialize.params() else { return Self::default() };
        let info = member(Some(params), "clientInfo").filter(|info| info.starts_with('{')).and_then(owned);
        let declared = member(Some(params), "capabilities").unwrap_or("{}");
        let has = |name: &&str| value::has(declared.as_bytes(), &[name]);
        let declared = ASKED.into_iter().filter(has).collect();
        Self { info, relayed: relayed(initialize).unwrap_or_else(|| Self::default().relayed), declared }
    }

    /// A request as the server gets it. `level` is the log level of the session, if its client set one.
    pub fn request(&self, request: &Message, level: Option<&str>) -> Result<Message, SpliceError> {
        let info = match &self.info {
            Some(info) => Edit::set(&["params", "_meta", INFO], info.clone()),
            None => Edit::remove(&["params", "_meta", INFO]),
        };
        let level = match level {
            Some(level) => Edit::set(&["params", "_meta", LEVEL], Raw::string(level)),
            None => Edit::remove(&["params", "_meta", LEVEL]),
        };
        let edits = [
            Edit::set(&["params", "_meta", VERSION], Raw::string(MODERN)),
            Edit::set(&["params", "_meta", CAPABILITIES], self.relayed.clone()),
            info,
            level,
        ];
        splice::apply(request, &edits)
    }

    /// `server/discover` in the name of the client.
    pub fn discover(&self, id: &Id) -> Result<Message, SpliceError> {
        self.request(&Message::parse(bare(id, "server/discover").into())?, None)
    }

    /// The request for the notifications that the client should get.
    pub fn listen(&self, id: &Id, filter: &Filter) -> Result<Message, SpliceError> {
        let request = self.request(&Message::parse(bare(id, "subscriptions/listen").into())?, None)?;
        splice::apply(&request, &[Edit::set(&["params", "notifications"], filter.to_json())])
    }

    /// A response as the client gets it.
    pub fn response(&self, kind: RequestKind, response: &Message) -> Result<Message, SpliceError> {
        unambiguous(response)?;
        match response.kind() {
            Kind::Error => self.error(kind, response),
            Kind::Response => self.result(response),
            Kind::Request | Kind::Notification => Err(MessageError::NoKind.into()),
        }
    }

    fn result(&self, response: &Message) -> Result<Message, SpliceError> {
        match member(response.result(), "resultType").and_then(json::string).as_deref() {
            None | Some("complete") => {}
            Some("input_required") => return self.needs_input(response),
            Some(other) => {
                let text = format!(
                    "the server's result is of the type `{}`, which the protocol version of the client does not have",
                    value::clipped(other)
                );
                return instead_of(response, answer::INTERNAL_ERROR, &text, None);
            }
        }
        let mut edits = vec![
            Edit::remove(&["result", "resultType"]),
            Edit::remove(&["result", "ttlMs"]),
            Edit::remove(&["result", "cacheScope"]),
        ];
        // What is no object has no members to remove.
        if member(response.result(), "_meta").is_some_and(|meta| meta.starts_with('{')) {
            edits.push(Edit::remove(&["result", "_meta", SERVER_INFO]));
            edits.push(Edit::remove(&["result", "_meta", SUBSCRIPTION]));
        }
        splice::apply(response, &edits)
    }

    /// The error in the place of a result by which the server asks the client for something.
    fn needs_input(&self, response: &Message) -> Result<Message, SpliceError> {
        let requests = member(response.result(), "inputRequests").unwrap_or_default();
        let asked = ASKED.into_iter().find(|name| requests.contains(&format!("\"{name}/")));
        self.unsupported(response, asked, None)
    }

    fn error(&self, kind: RequestKind, response: &Message) -> Result<Message, SpliceError> {
        match code(response) {
            // All that can be wrong with a URI is that there is no such resource.
            Some(answer::INVALID_PARAMS) if kind == RequestKind::Read => with_error(response, RESOURCE_NOT_FOUND, None),
            Some(answer::MISSING_CAPABILITY) => {
                let required = value::find(response.error().unwrap_or_default(), &["data", "requiredCapabilities"]);
                let is_required = |name: &&str| value::has(required.unwrap_or_default().as_bytes(), &[name]);
                self.unsupported(response, ASKED.into_iter().find(is_required), Some(response))
            }
            Some(answer::HEADER_MISMATCH | answer::UNSUPPORTED_VERSION) => {
                let text = format!("the server does not take the request as it was translated: {}", said(response));
                with_error(response, answer::INTERNAL_ERROR, Some(&text))
            }
            _ => Ok(response.clone()),
        }
    }

    /// The error of a call during which the server needs something of the client. `error` is what the server said, if it is an
    /// error already.
    fn unsupported(
        &self,
        response: &Message,
        asked: Option<&'static str>,
        error: Option<&Message>,
    ) -> Result<Message, SpliceError> {
        let (code, text) = match asked {
            Some(name) if !self.declared.contains(&name) => (
                answer::INVALID_REQUEST,
                format!("the request needs the capability `{name}`, which the client did not declare in `initialize`"),
            ),
            Some(name) => (answer::INTERNAL_ERROR, unsupported(name)),
            None => (answer::INTERNAL_ERROR, unsupported("a capability of the client")),
        };
        match error {
            Some(error) => with_error(error, code, Some(&text)),
            None => instead_of(response, code, &text, None),
        }
    }
}

/// Why a call ends during which the server asked for something that is not relayed between the eras.
pub(super) fn unsupported(name: &str) -> String {
    format!(
        "the server needs `{name}` during the call, which is not supported across protocol versions: the client and the \
         server speak different ones"
    )
}

/// The client's capabilities without those that are not relayed.
fn relayed(initialize: &Message) -> Option<Raw<'static>> {
    let paths: [&[&str]; 5] = [
        &["params", "capabilities", "elicitation"],
        &["params", "capabilities", "roots"],
        &["params", "capabilities", "sampling"],
        &["params", "capabilities", "tasks"],
        &["params", "capabilities", "extensions", TASKS],
    ];
    let edits = paths.map(Edit::remove);
    let relayed = splice::apply(initialize, &edits).ok()?;
    let capabilities = member(relayed.params(), "capabilities").filter(|value| value.starts_with('{'))?;
    // Of two members of one name, one is left.
    let is_left = ASKED.into_iter().any(|name| value::has(capabilities.as_bytes(), &[name]));
    if is_left { None } else { owned(capabilities) }
}

fn bare(id: &Id, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
}
