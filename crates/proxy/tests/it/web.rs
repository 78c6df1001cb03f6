//! A server that speaks HTTP and responds as a test says, and the proxy in front of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use skep_mcp::Eras;
use skep_net::drain::Grace;
use skep_net::{Body, Client, Drain, Listener, serve};
use skep_proxy::chain::{Chain, Context};
use skep_proxy::downstream::{Endpoint, EraBridge, Forward, ForwardOptions, Streamable};
use skep_proxy::health::Health;
use skep_proxy::metrics::RateLimitCounters;
use skep_proxy::sessions::{Kind, Sessions, Store};
use skep_proxy::{Front, Guards, Proxy};
use skep_runconfig::RunConfig;
use skep_store::Memory;
use skep_upstream::BridgedUpstream;
use skep_upstream::http::{HttpOptions, HttpUpstream, Pods, Target, Transport};

use crate::client::TestClient;

/// How long calls have to finish, unless a test says otherwise.
const FINISH: Duration = Duration::from_secs(1);

/// A request as the server got it.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// How the server answers.
pub(crate) type Answer = Arc<dyn Fn(&Got) -> Response<Body> + Send + Sync>;

/// The server and the proxy.
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) got: Arc<Mutex<Vec<Got>>>,
    /// The end of the proxy.
    pub(crate) drain: Drain,
    pub(crate) sessions: Sessions,
}

/// How the proxy is set up.
pub(crate) struct How {
    pub(crate) config: RunConfig,
    pub(crate) options: ForwardOptions,
    /// Whether the server speaks HTTP+SSE.
    pub(crate) sse: bool,
    /// The path and query of a remote URL; `None` for a server of our own.
    pub(crate) remote: Option<&'static str>,
    /// The pods behind it.
    pub(crate) pods: Option<Pods>,
    /// Whether the server runs from the start.
    pub(crate) lives: bool,
    /// How long an unused session lives.
    pub(crate) session_ttl: Duration,
    /// How long calls have to finish when the proxy ends.
    pub(crate) finish: Duration,
    /// What holds for every request.
    pub(crate) guards: Guards,
    /// Whether clients of the era that the server does not serve are translated for.
    pub(crate) bridged: bool,
    /// Variables of the process.
    pub(crate) environment: BTreeMap<String, String>,
    /// What rate limits count.
    pub(crate) rate_limits: RateLimitCounters,
}

impl Default for How {
    fn default() -> Self {
        Self {
            config: RunConfig::default(),
            options: ForwardOptions::default(),
            sse: false,
            remote: None,
            pods: None,
            lives: true,
            session_ttl: Duration::from_mins(10),
            finish: FINISH,
            guards: Guards::default(),
            bridged: false,
            environment: BTreeMap::new(),
            rate_limits: RateLimitCounters::default(),
        }
    }
}

impl Web {
    pub(crate) async fn new(answer: impl Fn(&Got) -> Response<Body> + Send + Sync + 'static) -> Result<Self> {
        Self::with(How::default(), answer).await
    }

    pub(crate) async fn with(
        how: How,
        answer: impl Fn(&Got) -> Response<Body> + Send + Sync + 'static,
    ) -> Result<Self> {
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let server = if how.lives {
            backend("127.0.0.1:0".parse()?, Arc::new(answer), got.clone()).await?
        } else {
            std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?
        };
        let target = match how.remote {
            None => Target::local(&format!("http://{server}"))?,
            Some(path) => Target::remote(&format!("http://{server}{path}"))?,
        };
        let drain = Drain::new(Grace { linger: Duration::ZERO, finish: how.finish });
        let client = Client::new(skep_net::client::Options::default());
        let sessions = Sessions::new(Store::Memory(Memory::new(how.session_ttl)), Kind::Mcp);
        let transport = if how.sse { Transport::Sse } else { Transport::StreamableHttp };
        let store = Some(sessions.store().clone());
        let bridge = how.bridged.then(|| {
            let target = target.clone().with_path(if how.sse { "/sse" } else { "/mcp" });
            let endpoint = |eras| {
                let options = HttpOptions { transport: Some(transport), eras: Some(eras), ..HttpOptions::default() };
                let upstream = BridgedUpstream::new(HttpUpstream::new(target.clone(), client.clone(), options));
                let sessions = sessions.of_kind(Kind::Streamable);
                let endpoint = Endpoint::new(upstream, sessions, Duration::from_secs(30), drain.clone());
                Streamable::new(endpoint.forwarding(), false)
            };
            EraBridge::new(endpoint(Eras::Modern), endpoint(Eras::Legacy), false)
        });
        let http = HttpOptions { transport: Some(transport), pods: how.pods, store, ..HttpOptions::default() };
        let upstream = HttpUpstream::new(target, client, http);
        let front = Front::Forward(Forward::bridged(upstream, sessions.clone(), how.options, drain.clone(), bridge));
        let listener = Listener::bind("127.0.0.1:0".parse()?).await?;
        let address = listener.address();
        let config = RunConfig { host: "0.0.0.0".to_owned(), ..how.config };
        let context = Context {
            port: address.port(),
            server: config.name.clone(),
            environment: how.environment,
            rate_limits: how.rate_limits,
            ..Context::default()
        };
        let chain = Chain::new(&config, &context)?;
        let health = Arc::new(Health::new("streamable-http", drain.clone()));
        let proxy = Proxy::guarded(chain, front, health, None, how.guards);
        let handler = move |request, peer| proxy.clone().answer(request, peer);
        tokio::spawn(serve(listener, skep_net::serve::Options::default(), drain.clone(), handler));
        Ok(Self { address, server, got, drain, sessions })
    }

    pub(crate) fn caller(&self) -> TestClient {
        TestClient::new(self.address)
    }

    /// Starts a server that did not run from the start.
    pub(crate) async fn start(&self, answer: impl Fn(&Got) -> Response<Body> + Send + Sync + 'static) -> Result<()> {
        backend(self.server, Arc::new(answer), self.got.clone()).await?;
        Ok(())
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
}

/// Starts a server.
pub(crate) async fn backend(at: SocketAddr, answer: Answer, got: Arc<Mutex<Vec<Got>>>) -> Result<SocketAddr> {
    backend_until(drain(), at, answer, got).await
}

/// Starts a server that ends on request.
pub(crate) async fn backend_until(
    drain: Drain,
    at: SocketAddr,
    answer: Answer,
    got: Arc<Mutex<Vec<Got>>>,
) -> Result<SocketAddr> {
    let listener = Listener::bind(at).await?;
    let address = listener.address();
    let handler = move |request: Request<Incoming>, _peer| {
        let (answer, got) = (answer.clone(), got.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let one = Got { method: parts.method, uri: parts.uri, headers: parts.headers, body };
            got.lock().unwrap().push(one.clone());
            answer(&one)
        }
    };
    tokio::spawn(serve(listener, skep_net::serve::Options::default(), drain, handler));
    Ok(address)
}

pub(crate) fn drain() -> Drain {
    Drain::new(Grace { linger: Duration::ZERO, finish: FINISH })
}
