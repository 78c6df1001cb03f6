//! The virtual server: an [`Upstream`] composed of the upstreams of its backends.
//!
//! ```text
//!   Upstream::call ─▶ method ─┬─ lists ─────────────▶ the pages of the client's view
//!                             ├─ a tool of steps ───▶ composite ─▶ forward, for each step
//!                             ├─ find_tool ─────────▶ optimizer
//!                             └─ all else ──────────▶ forward ─▶ Upstream of one backend
//! ```
//!
//! A legacy client has one session here, and one at each backend that it used, opened when it is first used, under the same id. What a
//! backend requests of the client gets an id that no other backend uses for it; ids of the client's own requests are unique already, and stay.

mod answers;
mod events;
mod forward;
mod observed;
mod recorded;
mod server_requests;
mod session;
mod steps;
mod subscriptions;
mod uris;

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use skep_mcp::headers::parameters::{self, Parameter};
use skep_mcp::list::{Element, List};
use skep_mcp::{Era, Eras, Kind, Message, Raw, answer, method, value};
use skep_net::Budget;
use skep_proxy::is_reserved_tool;
use skep_proxy::tool_search::ToolSearch;
use skep_upstream::{
    BackendNames, BoxFuture, Call, CallError, ClientContext, Replies, SessionId, Upstream, UpstreamState,
};
use tokio::sync::{mpsc, watch};
use tracing::Instrument as _;

use self::answers::respond;
use self::session::Sessions;
use crate::backend::Backend;
use crate::backends::{BackendSet, Backends};
use crate::instruments::VirtualInstruments;
use crate::optimizer::Optimizer;
use crate::view::{ClientView, Cursors, Views};

/// What a virtual server says of itself.
#[derive(Clone, Debug, Default)]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A virtual server.
#[derive(Debug)]
pub struct VirtualUpstream {
    me: Weak<Self>,
    info: ServerInfo,
    backends: Arc<Backends>,
    views: Views,
    cursors: Cursors,
    sessions: Sessions,
    instruments: Arc<VirtualInstruments>,
    /// What searches the tools, where clients see a search instead of them.
    optimizer: Option<Arc<Optimizer>>,
    state: watch::Sender<UpstreamState>,
}

/// What a virtual server has beside its backends.
#[derive(Debug, Default)]
pub struct Extras {
    /// What it counts and records.
    pub instruments: Arc<VirtualInstruments>,
    /// What searches its tools.
    pub optimizer: Option<Arc<Optimizer>>,
}

// === impl VirtualUpstream ===

impl VirtualUpstream {
    /// A virtual server over these backends. It serves from the start: what no backend offers is not listed.
    pub fn new(info: ServerInfo, backends: Arc<Backends>, views: Views, cursors: Cursors) -> Arc<Self> {
        Self::with(info, backends, views, cursors, Extras::default())
    }

    /// The same with what it has beside them.
    pub fn with(
        info: ServerInfo,
        backends: Arc<Backends>,
        views: Views,
        cursors: Cursors,
        extras: Extras,
    ) -> Arc<Self> {
        let Extras { instruments, optimizer } = extras;
        let state = watch::Sender::new(UpstreamState::ready(Eras::Both));
        let changes = backends.changes();
        let made = Arc::new_cyclic(|me: &Weak<Self>| Self {
            me: me.clone(),
            info,
            backends,
            views,
            cursors,
            sessions: Sessions::default(),
            instruments,
            optimizer,
            state,
        });
        tokio::spawn(forget_backends(made.me.clone(), changes).in_current_span());
        made
    }

    /// Tells of every change of the backends.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.backends.changes()
    }

    /// Takes into the index what clients see whose credentials no backend needs.
    pub(crate) async fn index_anyone(&self) {
        if let Some(optimizer) = &self.optimizer {
            let view = self.view(&ClientContext::default()).await;
            let _indexed = optimizer.indexed(&view);
        }
    }

    /// What a client sees.
    pub async fn view(&self, client: &ClientContext) -> Arc<ClientView> {
        self.views.of(&self.backends, client).await
    }

    async fn start_call(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        if let Some(session) = &call.session {
            self.sessions.touch(session, &call.client);
        }
        let method = call.message.method().unwrap_or_default();
        if let Some(list) = List::of(method) {
            return self.list(&call, list).await;
        }
        match method {
            "ping" if call.era == Era::Legacy => respond(&call, &Raw::trusted("{}".to_owned())),
            "server/discover" if call.era == Era::Modern => {
                let view = self.view(&call.client).await;
                let mut abilities = view.abilities;
                abilities.tools |= self.optimizer.is_some();
                respond(&call, &answers::discovered(&self.info, abilities))
            }
            "tools/call" => self.call_tool(call).await,
            "prompts/get" => self.get_prompt(call).await,
            "resources/read" => self.read_resource(call).await,
            "completion/complete" => self.complete(call).await,
            "resources/subscribe" | "resources/unsubscribe" if call.era == Era::Legacy => {
                self.change_subscription(call).await
            }
            "logging/setLevel" if call.era == Era::Legacy => self.set_level(&call),
            "subscriptions/listen" if call.era == Era::Modern => self.subscribe(call).await,
            _ => answers::refuse(&call, answer::METHOD_NOT_FOUND, "method not found"),
        }
    }

    /// A page of a list.
    async fn list(&self, call: &Call, list: List) -> Result<Replies, CallError> {
        let cursor = call.message.params().and_then(|params| value::find_text(params, &["cursor"]));
        let Ok(after) = cursor.map(|cursor| self.cursors.open(list, &cursor)).transpose() else {
            return answers::refuse(call, answer::INVALID_PARAMS, "invalid cursor");
        };
        let view = self.view(&call.client).await;
        let members = answers::list_members(&self.info, call.era);
        if let (Some(optimizer), Some(search)) = (&self.optimizer, ToolSearch::of(&call.message)) {
            return respond(call, &optimizer.find(&view, &search, &members).await);
        }
        let seal = |last: &str| self.cursors.seal(list, last);
        let page = view.pages.list(list).page(list, after.as_deref(), seal, &members);
        respond(call, &page.ok_or(CallError::NotSent)?)
    }

    async fn get_prompt(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        let view = self.view(&call.client).await;
        let name = method::resource(&call.message).unwrap_or_default().into_owned();
        let Some(route) = view.view.prompt(&name) else {
            let text = format!("prompt `{}` not found", value::clipped(&name));
            return answers::refuse(&call, answer::INVALID_PARAMS, &text);
        };
        let (backend, original) = (route.backend.clone(), route.original.clone());
        self.forward_as(call, &view, &backend, &["params", "name"], &original).await
    }

    async fn read_resource(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        let view = self.view(&call.client).await;
        let uri = method::resource(&call.message).unwrap_or_default().into_owned();
        let Some((backend, original)) = view.view.resource(&uri) else {
            return answers::unknown_resource(&call, &uri);
        };
        self.forward_as(call, &view, &backend, &["params", "uri"], &original).await
    }

    /// Completes an argument. What refers to nothing has no completions.
    async fn complete(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        let view = self.view(&call.client).await;
        let text = |path: &[&str]| {
            let found = call.message.params().and_then(|params| value::find_text(params, path));
            found.map(std::borrow::Cow::into_owned)
        };
        let (kind, name, uri) = (text(&["ref", "type"]), text(&["ref", "name"]), text(&["ref", "uri"]));
        if kind.is_none() {
            return answers::refuse(&call, answer::INVALID_PARAMS, "invalid completion/complete params: missing ref");
        }
        if text(&["argument", "name"]).is_none() {
            let problem = "invalid completion/complete params: missing argument.name";
            return answers::refuse(&call, answer::INVALID_PARAMS, problem);
        }
        let (found, path): (_, &[&str]) = match kind.as_deref() {
            Some("ref/prompt") => {
                let route = name.as_deref().and_then(|name| view.view.prompt(name));
                (route.map(|route| (route.backend.clone(), route.original.clone())), &["params", "ref", "name"])
            }
            Some("ref/resource") => (uri.and_then(|uri| view.view.resource(&uri)), &["params", "ref", "uri"]),
            _ => (None, &[]),
        };
        match found.filter(|(backend, _)| view.abilities_of(backend).completions) {
            Some((backend, original)) => self.forward_as(call, &view, &backend, path, &original).await,
            None => respond(&call, &answers::nothing_completed(&self.info, call.era)),
        }
    }

    async fn call_tool(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        let view = self.view(&call.client).await;
        let name = method::resource(&call.message).unwrap_or_default().into_owned();
        let composite = self.views.composite().usable(&name, &view.view);
        let composite = composite.filter(|_| self.optimizer.is_none() || !is_reserved_tool(&name));
        if let Some(tool) = composite.cloned() {
            return self.run_composite(&call, tool, view);
        }
        if self.optimizer.is_some() && (is_reserved_tool(&name) || view.view.tool(&name).is_none()) {
            return answers::refuse(&call, answer::INVALID_PARAMS, &skep_proxy::not_found(&name));
        }
        let Some(route) = view.view.tool(&name) else {
            return answers::unknown_tool(&call, &name);
        };
        let (backend, original) = (route.backend.clone(), route.original.clone());
        self.forward_as(call, &view, &backend, &["params", "name"], &original).await
    }
}

/// Lets go of what sessions hold of backends that are none any more, whenever there are other ones. A call in flight ends by itself.
async fn forget_backends(me: Weak<VirtualUpstream>, mut changes: watch::Receiver<u64>) {
    let mut seen: Option<BackendSet> = None;
    loop {
        {
            let Some(me) = me.upgrade() else { return };
            let now = me.backends.all();
            if seen.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, &now)) {
                let is_gone = |backend: &Arc<Backend>| {
                    now.get(backend.name()).is_none_or(|current| !Arc::ptr_eq(current, backend))
                };
                for (session, backend) in me.sessions.forget(is_gone) {
                    backend.upstream.clone().close(&session);
                }
                seen = Some(now);
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

impl Upstream for VirtualUpstream {
    fn state(&self) -> watch::Receiver<UpstreamState> {
        self.state.subscribe()
    }

    /// No backend is called: none may delay the handshake.
    fn open<'a>(
        &'a self,
        session: &'a SessionId,
        initialize: &'a Message,
        client: &'a ClientContext,
    ) -> BoxFuture<'a, Result<Message, CallError>> {
        Box::pin(async move {
            self.sessions.open(session, initialize, client);
            let id = initialize.id().ok_or(CallError::NotSent)?;
            let requested = initialize.params().and_then(|params| value::find_text(params, &["protocolVersion"]));
            let result = answers::initialized(&self.info, requested.as_deref());
            Message::response(&id, &result).ok_or(CallError::NotSent)
        })
    }

    fn restore(&self, session: &SessionId, initialize: &[u8]) {
        if let Ok(initialize) = Message::parse(Bytes::copy_from_slice(initialize)) {
            self.sessions.restore(session, &initialize);
        }
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Replies, CallError>> {
        Box::pin(self.start_call(call))
    }

    fn send<'a>(
        &'a self,
        session: Option<&'a SessionId>,
        message: &'a Message,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            let Some(session) = session else { return Ok(()) };
            match (message.kind(), message.method()) {
                (Kind::Response | Kind::Error, _) => self.answer_backend(session, message).await,
                (_, Some("notifications/cancelled")) => self.cancel(session, message).await,
                (_, Some("notifications/initialized")) => Ok(()),
                _ => self.notify_backends(session, message).await,
            }
        })
    }

    fn events(&self, session: &SessionId, budget: Budget) -> mpsc::Receiver<Bytes> {
        self.listen(session, budget)
    }

    fn close(self: Arc<Self>, session: &SessionId) {
        for backend in self.sessions.close(session) {
            backend.upstream.clone().close(session);
        }
    }

    fn idle_sessions(&self, time: Duration) -> Vec<SessionId> {
        for backend in self.backends.all().values() {
            self.sessions.close_unknown(&backend.upstream, time);
        }
        self.sessions.idle(time)
    }

    fn tool_parameters(
        self: Arc<Self>,
        call: Message,
        _has_headers: bool,
    ) -> BoxFuture<'static, Result<Arc<[Parameter]>, CallError>> {
        Box::pin(async move {
            // Clients of the optimizer have no list of tools that would say which headers there are.
            if self.optimizer.is_some() {
                return Ok(Arc::default());
            }
            let view = self.view(&ClientContext::with_headers(HeaderMap::new())).await;
            let name = method::resource(&call).unwrap_or_default();
            let route = view.view.tool(&name);
            let element = route.and_then(|route| Element::parse(List::Tools, &route.shown).ok());
            Ok(element.map(|tool| parameters::of(&tool)).unwrap_or_default().into())
        })
    }

    fn is_composed(&self) -> bool {
        true
    }

    fn backend_names<'a>(&'a self, client: &'a ClientContext) -> BoxFuture<'a, Option<Arc<dyn BackendNames>>> {
        Box::pin(async move {
            let view = self.view(client).await;
            let names: Arc<dyn BackendNames> = view;
            Some(names)
        })
    }

    fn drain(&self) {}
}
