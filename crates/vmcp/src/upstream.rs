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
mod kept;
mod observed;
mod recorded;
mod relay;
mod server_requests;
mod session;
mod steps;
mod subscriptions;
mod uris;
mod viewer_streams;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::headers::parameters::{self, Parameter};
use skep_mcp::list::{Element, List};
use skep_mcp::{Era, Eras, Kind, Message, Raw, answer, method, value};
use skep_net::Budget;
use skep_proxy::is_reserved_tool;
use skep_proxy::tool_search::ToolSearch;
use skep_upstream::{
    BackendNames, BoxFuture, Call, CallError, ClientContext, Replies, SessionId, SessionKeeper, Upstream, UpstreamState,
};
use tokio::sync::{mpsc, watch};
use tracing::Instrument as _;

use self::answers::respond;
use self::session::Sessions;
use self::viewer_streams::ViewerStreams;
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
    /// What keeps sessions for other replicas.
    keeper: OnceLock<Arc<dyn SessionKeeper>>,
    viewer_streams: ViewerStreams,
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
            keeper: OnceLock::new(),
            viewer_streams: ViewerStreams::default(),
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

    /// What a client may list.
    pub async fn view(&self, client: &ClientContext) -> Arc<ClientView> {
        self.views.of(&self.backends, client).await
    }

    /// The view in which a name of a client has its meaning.
    async fn naming(&self, client: &ClientContext, list: List, name: &str) -> Arc<ClientView> {
        self.views.naming(&self.backends, client, list, name).await
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
            "logging/setLevel" if call.era == Era::Legacy => self.set_level(&call).await,
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
        let name = method::resource(&call.message).unwrap_or_default().into_owned();
        let view = self.naming(&call.client, List::Prompts, &name).await;
        let Some(route) = view.view.prompt(&name) else {
            let text = format!("prompt `{}` not found", value::clipped(&name));
            return answers::refuse(&call, answer::INVALID_PARAMS, &text);
        };
        let (backend, original) = (route.backend.clone(), route.original.clone());
        self.forward_as(call, &view, &backend, &["params", "name"], &original).await
    }

    async fn read_resource(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        let uri = method::resource(&call.message).unwrap_or_default().into_owned();
        let view = self.naming(&call.client, List::Resources, &uri).await;
        let Some((backend, original)) = view.view.resource(&uri) else {
            return answers::unknown_resource(&call, &uri);
        };
        self.forward_as(call, &view, &backend, &["params", "uri"], &original).await
    }

    /// Completes an argument. What refers to nothing has no completions.
    async fn complete(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
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
        let (list, name, path): (_, _, &[&str]) = match kind.as_deref() {
            Some("ref/prompt") => (List::Prompts, name, &["params", "ref", "name"]),
            Some("ref/resource") => (List::Resources, uri, &["params", "ref", "uri"]),
            _ => (List::Resources, None, &[]),
        };
        let Some(name) = name else { return respond(&call, &answers::nothing_completed(&self.info, call.era)) };
        let view = self.naming(&call.client, list, &name).await;
        let found = match list {
            List::Prompts => view.view.prompt(&name).map(|route| (route.backend.clone(), route.original.clone())),
            _ => view.view.resource(&name),
        };
        match found.filter(|(backend, _)| view.abilities_of(backend).completions) {
            Some((backend, original)) => self.forward_as(call, &view, &backend, path, &original).await,
            None => respond(&call, &answers::nothing_completed(&self.info, call.era)),
        }
    }

    async fn call_tool(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        let name = method::resource(&call.message).unwrap_or_default().into_owned();
        let view = self.naming(&call.client, List::Tools, &name).await;
        let is_reserved = self.optimizer.is_some() && is_reserved_tool(&name);
        let tool = self.views.composite().get(&name).filter(|_| !is_reserved).cloned();
        if let Some(tool) = tool.filter(|_| view.has_composed(&name)) {
            // It would end in the middle.
            if let Some(backend) = view.missing_for(&name) {
                let why = format!("backend `{backend}`: {}", forward::UNHEALTHY);
                return Err(CallError::Unavailable(why.into()));
            }
            return self.run_composite(&call, tool, view);
        }
        let Some(route) = view.view.tool(&name).filter(|_| !is_reserved) else {
            return match &self.optimizer {
                Some(_) => answers::refuse(&call, answer::INVALID_PARAMS, &skep_proxy::not_found(&name)),
                None => answers::unknown_tool(&call, &name),
            };
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

    fn keep_sessions_by(&self, keeper: Arc<dyn SessionKeeper>) {
        // One is enough: all endpoints share a store.
        let _first = self.keeper.set(keeper);
    }

    fn restore_kept(&self, session: &SessionId, kept: &str) {
        self.take_kept(session, kept);
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
                (_, Some("notifications/progress")) => self.report_progress(session, message).await,
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
            let name = method::resource(&call).unwrap_or_default();
            let view = self.naming(&ClientContext::default(), List::Tools, &name).await;
            let route = view.view.tool(&name);
            let element = route.and_then(|route| Element::parse(List::Tools, &route.shown).ok());
            Ok(element.map(|tool| parameters::of(&tool)).unwrap_or_default().into())
        })
    }

    fn is_composed(&self) -> bool {
        true
    }

    fn backend_names<'a>(
        &'a self,
        client: &'a ClientContext,
        named: Option<(List, &'a str)>,
    ) -> BoxFuture<'a, Option<Arc<dyn BackendNames>>> {
        Box::pin(async move {
            let view = match named {
                Some((list, name)) => self.naming(client, list, name).await,
                None => self.view(client).await,
            };
            Some(view as Arc<dyn BackendNames>)
        })
    }

    fn drain(&self) {}
}
