//! The operator's metrics, for Prometheus.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use skep_api::crd::{OLDER_VERSION, STORED_VERSION};

/// Bounds of the durations, in seconds.
const SECONDS: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0];

/// The operator's metrics. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    reconciles: Family<Outcome, Counter>,
    duration: Family<Kind, Histogram, fn() -> Histogram>,
    age: Histogram,
    depth: Gauge,
    requests: Family<Request, Counter>,
    skipped: Family<Kind, Counter>,
    leading: Gauge,
    panics: Family<Kind, Counter>,
    kinds: Family<ServedKind, Gauge>,
    caches: Family<Cache, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    kind: String,
    result: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Kind {
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServedKind {
    kind: String,
    namespace: String,
    version: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Cache {
    watch: String,
    namespace: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Request {
    verb: String,
    resource: String,
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

// === impl Metrics ===

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("skep_operator");
        let reconciles = Family::<Outcome, Counter>::default();
        let duration = Family::<Kind, Histogram, fn() -> Histogram>::new_with_constructor(histogram);
        let (age, depth, leading) = (histogram(), Gauge::default(), Gauge::default());
        let requests = Family::<Request, Counter>::default();
        let skipped = Family::<Kind, Counter>::default();
        registry.register("reconciles", "Reconciles of a resource, by kind and result", reconciles.clone());
        registry.register("reconcile_duration_seconds", "Duration of a reconcile", duration.clone());
        registry.register("queue_age_seconds", "How long a resource waited in the queue", age.clone());
        registry.register("queue_depth", "Resources in the queue", depth.clone());
        registry.register("api_requests", "Requests to the API server, by verb and resource", requests.clone());
        registry.register("writes_skipped", "Writes that were not sent because nothing had changed", skipped.clone());
        registry.register("leading", "Whether this process is the leader", leading.clone());
        let (panics, kinds) = (Family::<Kind, Counter>::default(), Family::<ServedKind, Gauge>::default());
        registry.register("reconcile_panics", "Reconciles that panicked, by kind", panics.clone());
        let help = "Whether a kind is watched, and in which version; 0 for one that cannot be listed";
        registry.register("kind_watched", help, kinds.clone());
        let caches = Family::<Cache, Gauge>::default();
        let help = "Whether what a watch caches is up to date; 0 for one that is refused or keeps failing";
        registry.register("cache_synced", help, caches.clone());
        let inner =
            Inner { registry, reconciles, duration, age, depth, requests, skipped, leading, panics, kinds, caches };
        Self(Arc::new(inner))
    }

    /// Counts a reconcile that ended.
    pub fn reconciled(&self, kind: &str, result: &str, took: Duration) {
        self.0.reconciles.get_or_create(&Outcome { kind: kind.into(), result: result.into() }).inc();
        self.0.duration.get_or_create(&Kind { kind: kind.into() }).observe(took.as_secs_f64());
    }

    /// A resource was taken from the queue.
    pub fn taken(&self, waited: Duration, depth: usize) {
        self.0.age.observe(waited.as_secs_f64());
        self.0.depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// A request is sent to the API server.
    pub fn request(&self, verb: &str, resource: &str) {
        self.0.requests.get_or_create(&Request { verb: verb.into(), resource: resource.into() }).inc();
    }

    /// A write was not sent, as nothing had changed.
    pub fn skipped(&self, kind: &str) {
        self.0.skipped.get_or_create(&Kind { kind: kind.into() }).inc();
    }

    /// Whether this process is the leader.
    pub fn leading(&self, leading: bool) {
        self.0.leading.set(i64::from(leading));
    }

    /// A reconcile panicked.
    pub fn panicked(&self, kind: &str) {
        self.0.panics.get_or_create(&Kind { kind: kind.into() }).inc();
    }

    /// In which version a kind is watched in a namespace, or in all; none for one that cannot be listed.
    pub fn kind_watched(&self, kind: &str, namespace: Option<&str>, version: Option<&str>) {
        let labels = |version: &str| ServedKind {
            kind: kind.into(),
            namespace: namespace.unwrap_or_default().into(),
            version: version.into(),
        };
        for other in ["", STORED_VERSION, OLDER_VERSION] {
            if other != version.unwrap_or_default() {
                self.0.kinds.remove(&labels(other));
            }
        }
        self.0.kinds.get_or_create(&labels(version.unwrap_or_default())).set(i64::from(version.is_some()));
    }

    /// Whether what a watch caches of a namespace, or of all, is up to date.
    pub fn cache_synced(&self, watch: &str, namespace: Option<&str>, is_synced: bool) {
        let labels = Cache { watch: watch.into(), namespace: namespace.unwrap_or_default().into() };
        self.0.caches.get_or_create(&labels).set(i64::from(is_synced));
    }

    /// The page that Prometheus fetches.
    pub fn page(&self) -> String {
        let mut page = String::new();
        if let Err(error) = encode(&mut page, &self.0.registry) {
            // Only a failing writer can cause it, and a String does not fail.
            let _infallible = write!(page, "# {error}");
        }
        page
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
