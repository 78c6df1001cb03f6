//! An identity provider with a configurable response per path, which records the requests that it receives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};
use skep_auth::{Expectations, Options, Validator};
use skep_net::body::{Limit, collect};
use skep_net::drain::Grace;
use skep_net::{Body, Drain, Listener, serve, tls};
use skep_testkit::pki::Authority;
use tokio::sync::Semaphore;

/// The time in all tests.
pub(crate) const NOW: i64 = 1_800_000_000;

/// A signing key.
pub(crate) struct SigningKey {
    pub(crate) id: String,
    pair: EcdsaKeyPair,
}

/// An issuer on loopback.
pub(crate) struct Issuer {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
    _drain: Drain,
}

#[derive(Default)]
struct State {
    /// Responses by path; none is 503.
    pages: BTreeMap<String, (StatusCode, Value)>,
    /// Responses of these paths wait for a permit.
    held: BTreeMap<String, Arc<Semaphore>>,
    requests: Vec<Received>,
}

/// A request that the issuer received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl SigningKey {
    pub(crate) fn new(id: &str) -> Self {
        Self { id: id.to_owned(), pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap() }
    }

    /// The public key as a JWK.
    pub(crate) fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "x": encode(x), "y": encode(y)})
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_as(&json!({"alg": "ES256", "kid": self.id}), claims)
    }

    pub(crate) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

impl Issuer {
    /// An issuer with these keys.
    pub(crate) async fn start(keys: &[&SigningKey]) -> Self {
        Self::start_with(keys, serve::Options::default()).await
    }

    /// The same with a certificate of an authority.
    pub(crate) async fn start_over_tls(keys: &[&SigningKey], authority: &Authority) -> Self {
        let identity = authority.issue("issuer", None, &["127.0.0.1"]).unwrap();
        let identity = tls::Identity::from_pem(identity.certificate.as_bytes(), identity.key.as_bytes()).unwrap();
        let tls = Some(tls::server(identity, None).unwrap());
        Self::start_with(keys, serve::Options { tls, ..serve::Options::default() }).await
    }

    async fn start_with(keys: &[&SigningKey], options: serve::Options) -> Self {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.address());
        let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
        let state = Arc::new(Mutex::new(State::default()));
        let handler = {
            let state = state.clone();
            move |request: http::Request<hyper::body::Incoming>, _peer| {
                let state = state.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let limit = Limit { bytes: 1 << 20, idle: Duration::from_secs(10), pace: 1 };
                    let body = String::from_utf8(collect(body, limit).await.unwrap().to_vec()).unwrap();
                    let path = parts.uri.path().to_owned();
                    let held = {
                        let mut state = state.lock().unwrap();
                        state.requests.push(Received { path: path.clone(), headers: parts.headers, body });
                        state.held.get(&path).cloned()
                    };
                    if let Some(held) = held {
                        held.acquire().await.unwrap().forget();
                    }
                    let state = state.lock().unwrap();
                    let (status, page) =
                        state.pages.get(&path).cloned().unwrap_or((StatusCode::SERVICE_UNAVAILABLE, json!({})));
                    let text = page.as_str().map_or_else(|| page.to_string(), str::to_owned);
                    let mut response = Response::new(Body::full(text));
                    *response.status_mut() = status;
                    response
                }
            }
        };
        tokio::spawn(skep_net::serve(listener, options, drain.clone(), handler));
        let issuer = Self { url, state, _drain: drain };
        issuer.say_discovery(&issuer.url);
        issuer.rotate(keys);
        issuer
    }

    /// Publishes a discovery document in the name of an issuer.
    pub(crate) fn say_discovery(&self, issuer: &str) {
        let document = json!({"issuer": issuer, "jwks_uri": format!("{}/keys", self.url)});
        self.say("/.well-known/openid-configuration", 200, document);
    }

    /// Publishes these keys and no others.
    pub(crate) fn rotate(&self, keys: &[&SigningKey]) {
        let keys: Vec<_> = keys.iter().map(|key| key.public()).collect();
        self.say("/keys", 200, json!({ "keys": keys }));
    }

    pub(crate) fn say(&self, path: &str, status: u16, page: Value) {
        let status = StatusCode::from_u16(status).unwrap();
        self.state.lock().unwrap().pages.insert(path.to_owned(), (status, page));
    }

    /// Holds responses of a path back until there are permits.
    pub(crate) fn hold(&self, path: &str) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.state.lock().unwrap().held.insert(path.to_owned(), gate.clone());
        gate
    }

    /// Waits for so many requests for a path.
    pub(crate) async fn received(&self, path: &str, count: usize) {
        let all = async {
            while self.requests(path).len() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), all).await.expect("requests");
    }

    /// Forgets the requests so far.
    pub(crate) fn forget(&self) {
        self.state.lock().unwrap().requests.clear();
    }

    /// The requests for a path so far.
    pub(crate) fn requests(&self, path: &str) -> Vec<Received> {
        self.state.lock().unwrap().requests.iter().filter(|request| request.path == path).cloned().collect()
    }

    /// Options for tokens of this issuer.
    pub(crate) fn options(&self) -> Options {
        Options {
            expected: Expectations { issuer: self.url.clone(), audience: "mcp".to_owned(), ..Expectations::default() },
            insecure_http: true,
            ..Options::default()
        }
    }

    pub(crate) fn validator(&self) -> Validator {
        Validator::new(self.options()).unwrap()
    }

    /// Claims that are valid.
    pub(crate) fn claims(&self, subject: &str) -> Value {
        json!({"iss": self.url, "aud": "mcp", "sub": subject, "exp": NOW + 600, "iat": NOW})
    }
}
