//! A server in a cluster: its objects are applied, and applied again when its StatefulSet or one of its Services is
//! deleted. All of them are watched.

mod pods;
mod services;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, DynamicResourceScope, GroupVersionKind, Object, Resource};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Client, ResourceExt as _};
use serde::Deserialize;
use serde_json::Value;
use skep_api::annotation::GENERATION;
use tokio::sync::{OnceCell, watch as signal};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::gate::{Gate, gate};
use crate::objects::{ObjectError, Platform, live_generation, services, stateful_set};
use crate::server::Server;

/// The field manager of the objects: that of earlier proxies, or both would own the same fields.
pub const MANAGER: &str = "toolhive-container-manager";
/// The first backoff after a failed apply.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// How long after an apply the watch may take to show a StatefulSet.
const SHOWN: Duration = Duration::from_secs(5);
/// The timeout of one attempt. An admission webhook has 30 s at most.
const SLOWEST: Duration = Duration::from_secs(45);
/// How often in a row the objects are read again after a conflict.
const LOOKS: usize = 5;
/// How much of an API server's message is reported, in characters.
const REASON: usize = 1000;

/// A StatefulSet, with the fields that say how the server is. Code that decodes all of it would be pages that each
/// proxy holds for nothing.
pub type StatefulSet = Object<StatefulSetSpec, StatefulSetStatus>;

/// The replicas and the pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StatefulSetSpec {
    replicas: Option<i32>,
    template: Template,
}

/// The pod template, with the fields that say which proxy applied it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Option<Described>,
}

/// The metadata of the pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Described {
    annotations: Option<BTreeMap<String, String>>,
}

/// The status: how many pods there are.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    observed_generation: i64,
    ready_replicas: i32,
    updated_replicas: i32,
}

/// A server in a namespace of a cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    namespace: String,
    /// Detected before anything is applied, unless it was configured.
    platform: Arc<OnceCell<Platform>>,
    server: Server,
}

/// The outcome of an apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The objects are applied. Pods follow once this generation of the StatefulSet is observed.
    Ours {
        /// The StatefulSet's uid. Generations of another one of that name are unrelated.
        uid: Option<String>,
        /// The StatefulSet's generation.
        generation: i64,
    },
    /// A proxy of a newer generation owns the objects; they were left unchanged.
    Newer,
}

/// The state of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is known yet, or there is no StatefulSet.
    Missing,
    /// It was scaled to zero.
    Stopped,
    /// Its pods are starting.
    Starting {
        /// How many are ready.
        ready: i32,
        /// How many are desired.
        wanted: i32,
    },
    /// None of its pods can run, and why.
    Failing(String),
    /// All its pods are ready.
    Ready,
}

/// Why objects could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The spec is invalid. A retry cannot succeed.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The API server returned an error.
    #[error("cannot {verb} {object}: {}", reason(.error))]
    Api {
        /// The attempted verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// The error of the API server.
        error: Box<kube::Error>,
    },
    /// The attempt timed out.
    #[error("the API server did not answer within {SLOWEST:?}")]
    Slow,
}

// === impl State ===

impl State {
    /// The state that a StatefulSet reports. `since` is the generation that must have been observed.
    pub fn of(set: &StatefulSet, since: i64) -> Self {
        let Some(wanted) = set.spec.replicas else { return Self::Missing };
        let StatefulSetStatus { observed_generation: observed, ready_replicas: ready, updated_replicas: updated } =
            set.status.clone().unwrap_or_default();
        if wanted == 0 {
            return Self::Stopped;
        }
        if observed >= since && updated == wanted && ready == wanted {
            return Self::Ready;
        }
        Self::Starting { ready, wanted }
    }

    /// Whether a request can be served: one pod is enough.
    pub fn serves(&self) -> bool {
        match self {
            Self::Ready => true,
            Self::Starting { ready, .. } => *ready > 0,
            Self::Missing | Self::Stopped | Self::Failing(_) => false,
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// A server in a namespace. Without a platform, it is detected from the API before anything is applied.
    pub fn new(
        client: Client,
        namespace: impl Into<String>,
        platform: impl Into<Option<Platform>>,
        server: Server,
    ) -> Self {
        let platform = Arc::new(OnceCell::new_with(platform.into()));
        Self { client, namespace: namespace.into(), platform, server }
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The cluster's client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Applies the objects once, unless a newer proxy owns them.
    pub async fn apply(&self) -> Result<Applied, ApplyError> {
        // Detected first: any delay between read and write makes a conflict more likely.
        let platform = self.platform().await?;
        let mut looks = 1;
        let applied = loop {
            match self.apply_set(platform).await {
                Err(ApplyError::Api { error, .. }) if is_conflict(&error) && looks < LOOKS => looks += 1,
                applied => break applied?,
            }
        };
        let Some(set) = applied else { return Ok(Applied::Newer) };
        let owner = set.metadata.uid.as_deref().unwrap_or_default();
        for (name, service) in services(&self.server, &self.namespace, owner)? {
            let services: Api<DynamicObject> = self.objects("", "Service");
            let answer = services.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&service)).await;
            answer.map_err(self.failed("apply", "Service", &name))?;
        }
        Ok(Applied::Ours { uid: set.metadata.uid, generation: set.metadata.generation.unwrap_or_default() })
    }

    /// Applies the StatefulSet on top of the version that was read, or nothing if a newer proxy owns it. A concurrent
    /// change since then is a conflict.
    async fn apply_set(&self, platform: Platform) -> Result<Option<DynamicObject>, ApplyError> {
        let name = &self.server.name;
        let sets: Api<DynamicObject> = self.objects("apps", "StatefulSet");
        let live = sets.get_opt(name).await.map_err(self.failed("read", "StatefulSet", name))?;
        let live = live.and_then(|live| serde_json::to_value(live).ok());
        let theirs = live.as_ref().and_then(live_generation);
        if live.is_some() && gate(theirs, self.server.generation) == Gate::Skip {
            tracing::info!(
                name,
                mine = self.server.generation,
                theirs,
                "newer proxy owns the server, leaving its objects unchanged"
            );
            return Ok(None);
        }
        if let Some(text) = theirs.filter(|text| text.parse::<i64>().is_err()) {
            tracing::warn!(name, generation = text, "replacing generation annotation that is not a number");
        }
        let mut set = stateful_set(&self.server, &self.namespace, platform, live.as_ref())?;
        let version = live.as_ref().and_then(|live| live.pointer("/metadata/resourceVersion"));
        if let (Some(version), Some(Value::Object(metadata))) = (version, set.get_mut("metadata")) {
            metadata.insert("resourceVersion".to_owned(), version.clone());
        }
        let applied = sets.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&set)).await;
        applied.map(Some).map_err(self.failed("apply", "StatefulSet", name))
    }

    /// Applies the objects, publishes the state of the server whenever it changes, and applies them again when one of
    /// them is deleted. Existing objects are watched from the beginning: a server that cannot be changed still serves
    /// as it was. `report` receives the error of a failed apply, and `None` after a successful one. Never ends, but for
    /// a server whose spec is invalid.
    pub async fn keep(
        &self,
        state: &signal::Sender<State>,
        report: impl Fn(Option<&ApplyError>) + Send + Sync,
    ) -> ObjectError {
        loop {
            let (done, since) = signal::channel(None);
            let applying = async {
                match self.apply_until_done(&report).await {
                    Ok(applied) => {
                        done.send_replace(Some(applied));
                        std::future::pending().await
                    }
                    Err(wrong) => wrong,
                }
            };
            tokio::select! {
                wrong = applying => return wrong,
                () = self.service_deleted(since.clone()) => {}
                () = self.follow(since, state) => {}
            }
        }
    }

    /// Publishes the state of the server whenever it changes, and writes nothing. Never ends.
    pub async fn watch(&self, state: &signal::Sender<State>) {
        let (_never, since) = signal::channel(None);
        self.follow(since, state).await;
    }

    async fn apply_until_done(
        &self,
        report: &(impl Fn(Option<&ApplyError>) + Send + Sync),
    ) -> Result<Applied, ObjectError> {
        let mut backoff = Backoff::new(FIRST_DELAY);
        loop {
            let failed = match tokio::time::timeout(SLOWEST, self.apply()).await {
                Ok(Ok(applied)) => {
                    report(None);
                    return Ok(applied);
                }
                Ok(Err(failed)) => failed,
                Err(_) => ApplyError::Slow,
            };
            report(Some(&failed));
            if let ApplyError::Object(wrong) = failed {
                return Err(wrong);
            }
            tracing::warn!(error = %failed, "failed to apply the server's objects, retrying with backoff");
            tokio::time::sleep(backoff.after(Duration::ZERO)).await;
        }
    }

    /// The platform of the cluster. Its API is queried until it has responded once.
    async fn platform(&self) -> Result<Platform, ApplyError> {
        let ask = async {
            let groups = self.client.list_api_groups().await?;
            let is_open_shift = groups.groups.iter().any(|group| group.name == "route.openshift.io");
            Ok(if is_open_shift { Platform::OpenShift } else { Platform::Kubernetes })
        };
        let failed =
            |error| ApplyError::Api { verb: "read", object: "the API's groups".to_owned(), error: Box::new(error) };
        self.platform.get_or_try_init(|| ask).await.copied().map_err(failed)
    }

    /// Watches the StatefulSet: forever until it was applied, from then on until it is deleted. Watches break; the list
    /// that follows shows what was missed.
    async fn follow(&self, mut since: signal::Receiver<Option<Applied>>, state: &signal::Sender<State>) {
        let sets: Api<StatefulSet> = self.objects("apps", "StatefulSet");
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.server.name));
        let mut changes = std::pin::pin!(watch(sets, config).default_backoff());
        let (mut is_listing, mut is_there) = (true, false);
        let mut overdue = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                Ok(()) = since.changed() => {
                    overdue.as_mut().reset(Instant::now() + SHOWN);
                    continue;
                }
                // It was deleted before all of it was applied, so no event will follow. A list in progress will show
                // it.
                () = &mut overdue, if !is_there && !is_listing => return,
            };
            let Some(change) = change else { return };
            let applied = since.borrow().clone();
            let set = match change {
                Ok(Event::Init) => {
                    (is_listing, is_there) = (true, false);
                    continue;
                }
                Ok(Event::InitApply(set) | Event::Apply(set)) => set,
                Ok(Event::InitDone) if is_there => {
                    is_listing = false;
                    continue;
                }
                Ok(Event::InitDone | Event::Delete(_)) if applied.is_none() => {
                    (is_listing, is_there) = (false, false);
                    state.send_replace(State::Missing);
                    continue;
                }
                Ok(Event::InitDone | Event::Delete(_)) => {
                    tracing::warn!(name = self.server.name, "StatefulSet of the server deleted, applying it again");
                    state.send_replace(State::Missing);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "StatefulSet watch interrupted");
                    continue;
                }
            };
            is_there = true;
            if set.metadata.deletion_timestamp.is_some() {
                state.send_replace(State::Missing);
                continue;
            }
            let since = match applied {
                // Ours was deleted while the watch was interrupted, and another manager, perhaps an older proxy,
                // created this one.
                Some(Applied::Ours { uid, .. }) if set.metadata.uid != uid => {
                    tracing::warn!(name = self.server.name, "StatefulSet of the server replaced, applying it again");
                    return;
                }
                // Neither proxy had found a StatefulSet, and the older one wrote last.
                Some(Applied::Ours { generation, .. }) if self.is_overwritten(&set, generation) => {
                    tracing::warn!(name = self.server.name, "older proxy overwrote the StatefulSet, applying it again");
                    return;
                }
                Some(Applied::Ours { generation, .. }) => generation,
                Some(Applied::Newer) => 0,
                None => set.metadata.generation.unwrap_or_default(),
            };
            let now = State::of(&set, since);
            state.send_if_modified(|known| {
                let is_news = *known != now;
                if is_news {
                    tracing::info!(name = set.name_any(), state = ?now, "server state changed");
                    *known = now;
                }
                is_news
            });
        }
    }

    /// Whether a proxy of a smaller generation overwrote a StatefulSet that was ours at this generation of its own. Our
    /// own writes are not checked: an admission webhook that changes them would cause endless writes.
    fn is_overwritten(&self, set: &StatefulSet, ours: i64) -> bool {
        let annotations = set.spec.template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
        let theirs = annotations.and_then(|annotations| annotations.get(GENERATION)?.parse::<i64>().ok());
        set.metadata.generation > Some(ours) && theirs.is_some_and(|theirs| theirs < self.server.generation)
    }

    /// The API for objects of a kind in the server's namespace.
    pub(crate) fn objects<K>(&self, group: &str, kind: &str) -> Api<K>
    where
        K: Resource<Scope = DynamicResourceScope, DynamicType = ApiResource>,
    {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn failed(&self, verb: &'static str, kind: &str, name: &str) -> impl FnOnce(kube::Error) -> ApplyError + use<> {
        let object = format!("{kind} {}/{name}", self.namespace);
        move |error| ApplyError::Api { verb, object, error: Box::new(error) }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("Cluster");
        debug.field("namespace", &self.namespace).field("server", &self.server.name).finish_non_exhaustive()
    }
}

/// The platform that `OPERATOR_OPENSHIFT` configures. Otherwise it is detected from the API.
pub fn platform(variable: Option<&str>) -> Option<Platform> {
    let is_open_shift = variable?.eq_ignore_ascii_case("true");
    Some(if is_open_shift { Platform::OpenShift } else { Platform::Kubernetes })
}

/// Whether the write conflicted with another one.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// The API server's own message.
fn reason(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    };
    text.chars().take(REASON).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A StatefulSet with these counts: wanted, observed generation, updated, ready.
    type Counts = (Option<i32>, Option<i64>, i32, i32);

    /// That StatefulSet, of generation 5.
    fn set((wanted, observed, updated, ready): Counts) -> StatefulSet {
        let spec = json!({ "replicas": wanted, "selector": {}, "serviceName": "s", "template": { "spec": {} } });
        let status = observed.map(|observed| {
            json!({ "replicas": ready, "observedGeneration": observed, "updatedReplicas": updated, "readyReplicas": ready })
        });
        serde_json::from_value(json!({ "metadata": { "name": "s", "generation": 5 }, "spec": spec, "status": status }))
            .unwrap()
    }

    #[test]
    fn a_server_is_ready_when_all_its_pods_are_of_this_make_and_ready() {
        let starting = |ready, wanted| State::Starting { ready, wanted };
        for (what, counts, state, serves) in [
            ("all are ready", (Some(1), Some(5), 1, 1), State::Ready, true),
            ("several are ready", (Some(3), Some(5), 3, 3), State::Ready, true),
            ("it was seen again since", (Some(1), Some(6), 1, 1), State::Ready, true),
            ("the controller has not looked", (Some(1), Some(4), 1, 1), starting(1, 1), true),
            ("the controller never looked", (Some(1), None, 0, 0), starting(0, 1), false),
            ("old pods are still ready", (Some(2), Some(5), 0, 2), starting(2, 2), true),
            ("some pods are old", (Some(3), Some(5), 2, 3), starting(3, 3), true),
            ("some pods are not ready", (Some(3), Some(5), 3, 2), starting(2, 3), true),
            ("none is ready", (Some(3), Some(5), 3, 0), starting(0, 3), false),
            ("more are ready than wanted", (Some(1), Some(5), 1, 2), starting(2, 1), true),
            ("replicas are not set", (None, Some(5), 1, 1), State::Missing, false),
            ("none should be there", (Some(0), Some(5), 0, 0), State::Stopped, false),
        ] {
            let now = State::of(&set(counts), 5);
            assert_eq!((&now, now.serves()), (&state, serves), "{what}");
        }
    }
}
