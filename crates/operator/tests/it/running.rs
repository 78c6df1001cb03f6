//! An operator that runs inside a test, on the shared API server, and watches one namespace only.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_operator::metrics::Metrics;
use skep_operator::readiness::Readiness;
use skep_operator::run::{Options, RECHECK, RECONCILE_TIMEOUT, run};
use skep_operator::settings::Environment;
use skep_operator::write::{api_resource, child_resource};
use skep_plan::child::ChildKind;
use skep_plan::world::{Feature, Policies, PolicyError};
use skep_testkit::{ControlPlane, Seen, eventually};
use tokio::sync::{OnceCell, oneshot};
use tokio::task::JoinHandle;

static DEFINED: OnceCell<()> = OnceCell::const_new();

/// How long anything may take to come about.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// An operator and the namespace that it watches.
pub(crate) struct Running {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) readiness: Readiness,
    metrics: Metrics,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<()>>,
}

/// Accepts what resembles a policy. The engines are tested where they are.
#[derive(Debug)]
struct Engines;

impl Policies for Engines {
    fn check(&self, engine: &str, config: &Value) -> Result<(), PolicyError> {
        assert!(!config.to_string().contains("panic for the test"), "a bug in an engine");
        match engine {
            "cedarv1" if config.to_string().contains("permit(") => Ok(()),
            "httpv1" => Ok(()),
            _ => Err(PolicyError("no policy in it".to_owned())),
        }
    }
}

/// Starts an operator for a new namespace.
pub(crate) async fn operator(prefix: &str) -> Result<Running> {
    let plane = plane().await?;
    let namespace = plane.namespace(prefix).await?;
    start(plane, namespace)
}

/// Starts an operator for a namespace.
pub(crate) fn start(plane: &ControlPlane, namespace: String) -> Result<Running> {
    start_as(plane.client()?, plane, namespace)
}

/// Starts an operator that talks to the API server with a client of its own.
pub(crate) fn start_as(operator: Client, plane: &ControlPlane, namespace: String) -> Result<Running> {
    start_with(operator, plane, namespace, false)
}

/// Starts an operator that rechecks nothing for an hour, so that whatever comes about does so because of a watch or a retry with backoff;
/// a reconcile may take no longer than the timeout, if there is one.
pub(crate) fn start_without_recheck_as(
    operator: Client,
    plane: &ControlPlane,
    namespace: String,
    reconcile_timeout: Option<Duration>,
) -> Result<Running> {
    let environment = environment(&namespace, &[])?;
    let reconcile_timeout = reconcile_timeout.unwrap_or(RECONCILE_TIMEOUT);
    let setup = Setup { reconcile_timeout, recheck: Duration::from_hours(1), ..Setup::new(environment) };
    start_in(operator, plane, namespace, setup)
}

/// Starts an operator for several namespaces, of which the first is its own.
pub(crate) fn start_watching(operator: Client, plane: &ControlPlane, namespaces: &[&str]) -> Result<Running> {
    let home = namespaces[0];
    let environment = environment(home, &[("WATCH_NAMESPACE", &namespaces.join(","))])?;
    start_in(operator, plane, home.to_owned(), Setup::new(environment))
}

/// Starts an operator that competes for a lease in its namespace.
pub(crate) fn start_leading(plane: &ControlPlane, namespace: String) -> Result<Running> {
    start_leading_as(plane.client()?, plane, namespace)
}

/// The same with a client of its own.
pub(crate) fn start_leading_as(operator: Client, plane: &ControlPlane, namespace: String) -> Result<Running> {
    start_with(operator, plane, namespace, true)
}

/// Starts an operator whose data plane, of our own image, lacks these features.
pub(crate) fn start_lacking(plane: &ControlPlane, namespace: String, lacking: &[Feature]) -> Result<Running> {
    let own = [("TOOLHIVE_RUNNER_IMAGE", "localhost/skep:1"), ("VMCP_IMAGE", "localhost/skep:1")];
    let environment = environment(&namespace, &own)?.without(lacking);
    start_in(plane.client()?, plane, namespace, Setup::new(environment))
}

/// Starts an operator that checks blocked deletions again at short intervals.
pub(crate) fn start_rechecking(plane: &ControlPlane, namespace: String, recheck: Duration) -> Result<Running> {
    start_rechecking_as(plane.client()?, plane, namespace, recheck)
}

/// The same at other intervals, with a client of its own.
pub(crate) fn start_rechecking_as(
    operator: Client,
    plane: &ControlPlane,
    namespace: String,
    recheck: Duration,
) -> Result<Running> {
    let environment = environment(&namespace, &[])?;
    start_in(operator, plane, namespace, Setup { recheck, ..Setup::new(environment) })
}

fn start_with(operator: Client, plane: &ControlPlane, namespace: String, leader_elect: bool) -> Result<Running> {
    let environment = environment(&namespace, &[])?;
    start_in(operator, plane, namespace, Setup { leader_elect, ..Setup::new(environment) })
}

/// How an operator of a test differs from others.
struct Setup {
    leader_elect: bool,
    recheck: Duration,
    reconcile_timeout: Duration,
    environment: Environment,
}

impl Setup {
    fn new(environment: Environment) -> Self {
        Self { leader_elect: false, recheck: RECHECK, reconcile_timeout: RECONCILE_TIMEOUT, environment }
    }
}

/// The environment of an operator for a namespace, or for all of them.
fn environment(namespace: &str, more: &[(&str, &str)]) -> Result<Environment> {
    let mut variables = BTreeMap::from([
        ("TOOLHIVE_RUNNER_IMAGE".to_owned(), "registry.example/proxyrunner:1".to_owned()),
        ("VMCP_IMAGE".to_owned(), "registry.example/vmcp:1".to_owned()),
        ("TOOLHIVE_REGISTRY_API_IMAGE".to_owned(), "registry.example/registry-api:1".to_owned()),
    ]);
    if !namespace.is_empty() {
        variables.insert("WATCH_NAMESPACE".to_owned(), namespace.to_owned());
        variables.insert("POD_NAMESPACE".to_owned(), namespace.to_owned());
    }
    variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Environment::read(&variables)
}

fn start_in(operator: Client, plane: &ControlPlane, namespace: String, setup: Setup) -> Result<Running> {
    let Setup { leader_elect, recheck, reconcile_timeout, environment } = setup;
    let (metrics, readiness) = (Metrics::new(), Readiness::default());
    let options = Options {
        metrics_address: "0".into(),
        health_address: "0".into(),
        leader_elect,
        identity: "test".into(),
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        recheck,
        reconcile_timeout,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let client = plane.client()?;
    let until = async {
        let _sender_gone = stopped.await;
    };
    let task = tokio::spawn(run(operator, options, environment, Box::new(Engines), until));
    Ok(Running { client, namespace, readiness, metrics, stop: Some(stop), task })
}

/// The shared API server with the definitions in it.
pub(crate) async fn plane() -> Result<&'static ControlPlane> {
    let plane = ControlPlane::shared().await?;
    DEFINED.get_or_try_init(|| define(plane)).await?;
    Ok(plane)
}

/// Puts the definitions into an API server.
pub(crate) async fn define(plane: &ControlPlane) -> Result<()> {
    let documents = skep_api::crd::all()?.iter().map(skep_api::manifest::document).collect::<Result<Vec<_>, _>>()?;
    plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &documents.concat()).await?.success()?;
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=180s"]).await?.success()?;
    Ok(())
}

impl Running {
    /// The objects of one of our kinds.
    pub(crate) fn resources(&self, kind: KindName) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &api_resource(kind))
    }

    /// The objects of a kind of child.
    pub(crate) fn children(&self, kind: ChildKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &child_resource(kind))
    }

    /// Makes an object of one of our kinds.
    pub(crate) async fn create(&self, kind: KindName, name: &str, spec: Value) -> Result<DynamicObject> {
        let object = json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": kind.as_str(),
            "metadata": { "name": name, "namespace": self.namespace }, "spec": spec,
        });
        Ok(self.resources(kind).create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    /// Changes a spec by a merge patch.
    pub(crate) async fn edit(&self, kind: KindName, name: &str, spec: Value) -> Result<DynamicObject> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        Ok(self.resources(kind).patch(name, &PatchParams::default(), &patch).await?)
    }

    /// Waits until an object of ours is as wanted.
    pub(crate) async fn until(
        &self,
        kind: KindName,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        wait(&self.resources(kind), name, what, wanted).await
    }

    /// Waits until a child is there and as wanted.
    pub(crate) async fn child(
        &self,
        kind: ChildKind,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        wait(&self.children(kind), name, what, wanted).await
    }

    /// The RunConfig of a server, once it is as wanted.
    pub(crate) async fn run_config(&self, server: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let map = self
            .child(ChildKind::ConfigMap, &format!("{server}-runconfig"), what, |map| wanted(&run_config(map)))
            .await?;
        Ok(run_config(&map))
    }

    /// Waits until the operator has nothing to do: no object of ours or of its children changes for a while.
    pub(crate) async fn settled(&self) -> Result<BTreeMap<String, String>> {
        at_rest(|| self.versions()).await
    }

    /// The version of every object of ours and of every child.
    pub(crate) async fn versions(&self) -> Result<BTreeMap<String, String>> {
        let mut versions = BTreeMap::new();
        let ours = KindName::ALL.iter().map(|kind| (kind.as_str(), self.resources(*kind)));
        let children = ChildKind::ALL.iter().map(|kind| (kind.as_str(), self.children(*kind)));
        for (kind, objects) in ours.chain(children) {
            for object in objects.list(&kube::api::ListParams::default()).await? {
                let name = object.metadata.name.unwrap_or_default();
                versions.insert(format!("{kind}/{name}"), object.metadata.resource_version.unwrap_or_default());
            }
        }
        Ok(versions)
    }

    /// What the operator has counted under a name that starts so: reconciles (`reconciles`), requests (`api_requests`).
    pub(crate) fn counted(&self, name: &str, labels: &[&str]) -> u64 {
        counted_in(&self.metrics.page(), name, labels)
    }

    /// What the operator counts, also while it runs elsewhere.
    pub(crate) fn counters(&self) -> Metrics {
        self.metrics.clone()
    }

    /// What the operator shows to Prometheus.
    pub(crate) fn metrics(&self) -> String {
        self.metrics.page()
    }

    /// Waits until the report of `/readyz?verbose` has such a line.
    pub(crate) async fn reported(&self, line: &str) -> Result<String> {
        eventually(&format!("`{line}` is reported"), Duration::from_mins(1), || async {
            let report = self.readiness.report();
            Ok(if report.contains(line) { Seen::Yes(report) } else { Seen::NotYet(report) })
        })
        .await
    }

    /// Waits until an object of ours is gone.
    pub(crate) async fn gone(&self, kind: KindName, name: &str) -> Result<()> {
        let objects = self.resources(kind);
        eventually(&format!("{kind} {name} is gone"), PATIENCE, || async {
            Ok(match objects.get_opt(name).await? {
                None => Seen::Yes(()),
                Some(object) => Seen::NotYet(serde_json::to_string(&object)?),
            })
        })
        .await
    }

    /// Ends the operator in the middle of whatever it does.
    pub(crate) async fn abort(self) {
        self.task.abort();
        let _cancelled = self.task.await;
    }

    /// Stops the operator and says how it ended.
    pub(crate) async fn stop(mut self) -> Result<()> {
        if let Some(stop) = self.stop.take() {
            let _already_ended = stop.send(());
        }
        self.task.await.context("the operator panicked")?
    }
}

/// What a page for Prometheus counts under a name that starts so.
pub(crate) fn counted_in(page: &str, name: &str, labels: &[&str]) -> u64 {
    let lines = page.lines().filter(|line| line.starts_with(&format!("skep_operator_{name}_total{{")));
    let wanted = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
    wanted.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// The status of a condition, or nothing.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
    Some((condition["status"].as_str()?, condition["reason"].as_str()?))
}

async fn wait(objects: &Api<DynamicObject>, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let wanted = &wanted;
    eventually(&format!("{name}: {what}"), PATIENCE, || async move {
        let Some(object) = objects.get_opt(name).await? else {
            return Ok(Seen::NotYet("it does not exist".to_owned()));
        };
        let value = serde_json::to_value(object)?;
        Ok(if wanted(&value) { Seen::Yes(value) } else { Seen::NotYet(format!("it is {value}")) })
    })
    .await
}

fn run_config(map: &Value) -> Value {
    let text = map.pointer("/data/runconfig.json").and_then(Value::as_str).unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

/// Waits until what is observed stays the same for a second, and returns it.
pub(crate) async fn at_rest<Observe, Found, Versions>(mut observe: Observe) -> Result<Versions>
where
    Observe: FnMut() -> Found,
    Found: Future<Output = Result<Versions>>,
    Versions: PartialEq,
{
    let mut before = observe().await?;
    let mut calm = 0;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while calm < 5 {
        if tokio::time::Instant::now() > deadline {
            bail!("the operator does not come to rest");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = observe().await?;
        calm = if now == before { calm + 1 } else { 0 };
        before = now;
    }
    Ok(before)
}
