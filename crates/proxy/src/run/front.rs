//! The endpoint that clients speak to, and what it forwards to, as the RunConfig has it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use skep_mcp::Eras;
use skep_net::proxies::Proxies;
use skep_net::{Addresses, Client, Drain};
use skep_upstream::http::{HttpOptions, HttpUpstream, Pods, Target, Transport};
use skep_upstream::stdio::{Limits, StdioUpstream, Supervision};
use skep_upstream::{BridgedUpstream, Upstream};
use skep_workload::cluster::State;
use skep_workload::server::Server;
use tokio::sync::{mpsc, watch};

use super::backend::{connect, run_server, watch_link};
use super::health_check::check_health;
use super::machine;
use super::reaper::{close_ended, reap};
use super::{Error, Place, Tasks};
use crate::downstream::{Endpoint, EraBridge, Forward, ForwardOptions, Sse, Streamable};
use crate::health::{Health, ServerHealth};
use crate::metrics::LimitCounters;
use crate::proxy::Front;
use crate::router::{ENDPOINT, STREAM};
use crate::secrets::Secrets;
use crate::sessions::{Kind, Sessions, Store};
use crate::settings::{Backend, Mode, Settings, UpstreamBackend};

/// How long an idle connection of a client is kept: in front of a stdio server, and in front of others.
const IDLE_STDIO: Duration = Duration::from_secs(30);
const IDLE_HTTP: Duration = Duration::from_mins(2);
/// How many events of the connection to a stdio server may wait to be handled. They are handled at once.
const EVENTS: usize = 16;
/// For how long the proxy before this one may still speak with the same server: as long as its pod may take to end.
const TAKING_OVER: Duration = Duration::from_secs(30);

/// What the parts of a proxy are made of.
pub(super) struct Wiring<'a> {
    pub(super) settings: &'a Settings,
    pub(super) environment: &'a BTreeMap<String, String>,
    pub(super) secrets: &'a Secrets,
    pub(super) health: &'a Arc<Health>,
    pub(super) drain: &'a Drain,
    pub(super) limits: &'a LimitCounters,
    /// Whether middleware signs the bytes of requests.
    pub(super) signs_requests: bool,
}

/// A server that speaks HTTP: where it is, which addresses may be dialled, its pods, and how they are.
struct HttpBackend {
    target: Target,
    addresses: Addresses,
    /// The name and the port of the headless Service.
    pods: Option<(String, u16)>,
    state: Option<watch::Receiver<State>>,
}

// === impl Wiring ===

impl Wiring<'_> {
    /// The endpoint, and how long idle connections to it are kept.
    pub(super) fn front(&self, place: Place, store: Store, tasks: &mut Tasks) -> Result<(Front, Duration), Error> {
        match &self.settings.backend {
            Backend::Stdio(server, mode) => {
                let upstream = self.stdio(self.with_secrets(server), place, tasks);
                Ok((self.downstream(upstream, *mode, store, tasks), IDLE_STDIO))
            }
            Backend::Http(server) => {
                let backend = self.http(self.with_secrets(server), place, tasks)?;
                Ok((self.forward(backend, store, tasks)?, IDLE_HTTP))
            }
            Backend::Upstream(backend) => {
                self.health.set(ServerHealth::Unwatched);
                Ok((self.virtual_server(backend, store, tasks), IDLE_HTTP))
            }
            Backend::Remote(_) => {
                self.health.set(ServerHealth::Unwatched);
                let (url, addresses) = place.remote(&self.settings.config);
                let backend = HttpBackend { target: Target::remote(&url)?, addresses, pods: None, state: None };
                Ok((self.forward(backend, store, tasks)?, IDLE_HTTP))
            }
        }
    }

    fn with_secrets(&self, server: &Server) -> Server {
        let mut server = server.clone();
        server.env.extend(self.secrets.variables.clone());
        server
    }

    /// A stdio server, connected to for as long as the proxy runs.
    fn stdio(&self, server: Server, place: Place, tasks: &mut Tasks) -> Arc<dyn Upstream> {
        let (sender, events) = mpsc::channel(EVENTS);
        let shared = matches!(place, Place::Cluster { .. }).then_some(TAKING_OVER);
        let (connect, outage) = connect(server, place, self.health, tasks);
        let supervision = Supervision { events: sender, ending: tasks.ending.subscribe(), shared, outage };
        let limits = Limits { message: self.settings.capacity.longest_line() };
        let (upstream, connection) = StdioUpstream::start_for(connect, limits, supervision);
        tasks.keep(connection);
        let (stopping, draining) = (self.drain.stopping(), upstream.clone());
        tasks.spawn(async move {
            stopping.await;
            draining.drain();
        });
        tasks.spawn(watch_link(events, self.health.clone()));
        BridgedUpstream::new(upstream)
    }

    /// The endpoint in front of an upstream.
    fn downstream(&self, upstream: Arc<dyn Upstream>, mode: Mode, store: Store, tasks: &mut Tasks) -> Front {
        let (config, timeout, drain) = (&self.settings.config, self.settings.request_timeout, self.drain.clone());
        match mode {
            Mode::StreamableHttp => {
                let sessions = Sessions::new(store, Kind::Streamable);
                self.limits.watch(&sessions);
                let strict = config.strict_protocol_validation;
                let front = Streamable::new(Endpoint::new(upstream, sessions.clone(), timeout, drain), strict);
                tasks.spawn(reap(sessions, Some((front.clone(), self.settings.session_ttl))));
                Front::Streamable(front)
            }
            Mode::Sse => {
                let sessions = Sessions::new(store, Kind::Sse);
                self.limits.watch(&sessions);
                tasks.spawn(reap(sessions.clone(), None));
                Front::Sse(Sse::new(Endpoint::new(upstream, sessions, timeout, drain), config.trust_proxy_headers))
            }
        }
    }

    /// The endpoint in front of an upstream that is there already.
    fn virtual_server(&self, backend: &UpstreamBackend, store: Store, tasks: &mut Tasks) -> Front {
        let (timeout, drain) = (self.settings.request_timeout, self.drain.clone());
        let sessions = Sessions::new(store, Kind::Streamable);
        self.limits.watch(&sessions);
        let endpoint = Endpoint::new(backend.upstream.clone(), sessions.clone(), timeout, drain);
        let endpoint = endpoint.passing(backend.passthrough.clone());
        let front = Streamable::at(&[ENDPOINT, "/"], endpoint, self.settings.config.strict_protocol_validation);
        tasks.spawn(reap(sessions, Some((front.clone(), self.settings.session_ttl))));
        Front::Streamable(front)
    }

    /// A server that speaks HTTP, started or applied, and watched.
    fn http(&self, mut server: Server, place: Place, tasks: &mut Tasks) -> Result<HttpBackend, Error> {
        let url = match &place {
            Place::Cluster { .. } | Place::Pod { .. } => server.url().unwrap_or_default(),
            Place::Machine(ports) => machine::listen(&mut server, ports),
        };
        let target = Target::local(&url)?;
        let pods = match &place {
            Place::Cluster { .. } => server.speaks.port().map(|port| (server.headless_name(), port)),
            Place::Machine(_) | Place::Pod { .. } => None,
        };
        let addresses = place.addresses();
        let is_checked = self.settings.health.enabled && target.base().is_some();
        let state = run_server(server, place, is_checked, self.health, tasks);
        Ok(HttpBackend { target, addresses, pods, state })
    }

    /// The endpoint in front of a server that speaks HTTP.
    fn forward(&self, backend: HttpBackend, store: Store, tasks: &mut Tasks) -> Result<Front, Error> {
        let HttpBackend { target, addresses, pods, state } = backend;
        let proxies = Proxies::from_variables(self.environment).map_err(|error| Error::Client(error.to_string()))?;
        let options = skep_net::client::Options { proxies, addresses, ..skep_net::client::Options::default() };
        let (client, config) = (Client::new(options), &self.settings.config);
        if self.settings.health.enabled
            && let Some(base) = target.base()
        {
            let (how, health) = (self.settings.health, self.health.clone());
            tasks.spawn(check_health(client.clone(), base, how, config.stateless, state, health));
        }
        let options = ForwardOptions {
            stateless: config.stateless,
            trust_proxy_headers: config.trust_proxy_headers,
            endpoint_prefix: config.endpoint_prefix.clone(),
            health: Some(self.health.clone()),
        };
        let sessions = Sessions::new(store, Kind::Mcp);
        self.limits.watch(&sessions);
        let transport = if config.transport == "sse" { Transport::Sse } else { Transport::StreamableHttp };
        let behind = || pods.clone().map(|(host, port)| Pods::behind(host, port));
        let http = HttpOptions {
            transport: Some(transport),
            pods: behind(),
            store: Some(sessions.store().clone()),
            ..HttpOptions::default()
        };
        let of_eras = |eras| HttpOptions {
            transport: Some(transport),
            pods: behind(),
            eras: Some(eras),
            ..HttpOptions::default()
        };
        let bridge = self.era_bridge(&target, &client, of_eras, &sessions);
        let upstream = HttpUpstream::new(target, client, http);
        let bridged = bridge.as_ref().map(|bridge| (bridge.of_session().clone(), self.settings.session_ttl));
        tasks.spawn(close_ended(sessions.clone(), upstream.clone(), bridged));
        Ok(Front::Forward(Forward::bridged(upstream, sessions, options, self.drain.clone(), bridge)))
    }

    /// The endpoints for clients of the era that the server does not serve. Nothing if requests are signed: a signature is one of the
    /// bytes of the client's request.
    fn era_bridge(
        &self,
        target: &Target,
        client: &Client,
        options: impl Fn(Eras) -> HttpOptions,
        sessions: &Sessions,
    ) -> Option<EraBridge> {
        let config = &self.settings.config;
        let (drain, timeout) = (self.drain, self.settings.request_timeout);
        if self.signs_requests {
            return None;
        }
        let is_sse = config.transport == "sse";
        let target = target.clone().with_path(if is_sse { STREAM } else { ENDPOINT });
        let endpoint = |eras: Eras| {
            let upstream = BridgedUpstream::new(HttpUpstream::new(target.clone(), client.clone(), options(eras)));
            let sessions = sessions.of_kind(Kind::Streamable);
            let endpoint = Endpoint::new(upstream, sessions, timeout, drain.clone()).forwarding();
            Streamable::new(endpoint, config.strict_protocol_validation)
        };
        let has_other_paths = !is_sse && !target.keeps_to_a_path();
        Some(EraBridge::new(endpoint(Eras::Modern), endpoint(Eras::Legacy), has_other_paths))
    }
}
