//! The operator's cost: time to all children, writes per object, memory, processor time, writes at rest, a fan-out edit.
//!
//! The yardstick is a plain client that sends the same writes: the very bodies of the plan, by server-side apply, a finalizer and
//! a status for each object, with as many requests under way as the operator has. It runs before the operator and after it, because
//! an API server gets faster when it is warm and slower when it holds more.
//!
//! What came about is seen by watches. Lists would cost the API server more the more objects there are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};
use skep_operator::settings::Environment;
use skep_operator::write::{api_resource, child_resource};
use skep_plan::child::ChildKind;
use skep_plan::key::Key;
use skep_plan::plan::plan;
use skep_plan::world::{Found, Live, Policies, World};
use skep_testkit::ControlPlane;

use crate::image::archive::ALLOCATOR;
use crate::process::{Process, get, wait_for};
use crate::{skep, ui};

/// How many requests the plain client has under way.
const AT_ONCE: usize = 8;
/// How often to look whether the operator has come to rest.
const LOOK: Duration = Duration::from_millis(200);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(10);

/// How to measure.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How many MCPServers.
    #[arg(long, default_value_t = 200)]
    servers: u32,
    /// For how many seconds to watch the operator at rest.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// The `skep` to measure. Left out, the one of the image is built.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Policies play no part here.
#[derive(Debug)]
struct NoPolicies;

impl Policies for NoPolicies {
    fn check(&self, _: &str, _: &Value) -> Result<(), String> {
        Ok(())
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let binary = skep::shipped(arguments.binary.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(arguments, &binary))
}

async fn measure(arguments: &Arguments, binary: &Path) -> Result<()> {
    let servers = arguments.servers;
    let plane = ControlPlane::start().await?;
    let documents = skep_api::crd::all()?.iter().map(skep_api::manifest::document).collect::<Result<Vec<_>, _>>()?;
    plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &documents.concat()).await?.success()?;
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?.success()?;
    let client = plane.client()?;

    ui::progress("the plain client…");
    let before = plain(&client, &plane.namespace("raw").await?, servers).await?;

    ui::progress("the operator…");
    let namespace = plane.namespace("operator").await?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let operator = Process::start(
        Command::new(binary)
            .args([
                "operator",
                "--health-probe-bind-address",
                "0",
                "--metrics-bind-address",
                &format!("127.0.0.1:{port}"),
            ])
            .env("KUBECONFIG", plane.kubeconfig())
            .env("WATCH_NAMESPACE", &namespace)
            .env("OPERATOR_OPENSHIFT", "false")
            .env("SKEP_LOG", "warn")
            .env(ALLOCATOR.0, ALLOCATOR.1),
    )?;
    wait_for(port, "/readyz", PATIENCE)?;
    let empty = operator.usage()?;
    let (resources, deployments) = (api_resource(KindName::MCPServer), child_resource(ChildKind::Deployment));
    let started = Instant::now();
    let ((), created, ()) = tokio::try_join!(
        until(&client, &namespace, &deployments, servers, |_| true),
        async {
            create(&client, &namespace, servers).await?;
            anyhow::Ok(started.elapsed())
        },
        until(&client, &namespace, &resources, servers, |server| server.pointer("/status/phase").is_some()),
    )?;
    let all = started.elapsed();
    calm(port).await?;
    let (writes, reads) = requests(port)?;
    let busy = operator.usage()?;

    ui::progress(&format!("{} s at rest…", arguments.idle));
    tokio::time::sleep(Duration::from_secs(arguments.idle)).await;
    let idle_writes = requests(port)?.0.values().sum::<u64>() - writes.values().sum::<u64>();
    let rest = operator.usage()?;

    ui::progress("a fan-out edit…");
    let started = Instant::now();
    let maps = child_resource(ChildKind::ConfigMap);
    tokio::try_join!(
        until(&client, &namespace, &maps, servers, |map| run_config(map).contains("https://new.example")),
        fan_out(&client, &namespace),
    )?;
    let fanned = started.elapsed();
    let end = operator.usage()?;
    drop(operator);

    ui::progress("the plain client again…");
    let after = plain(&client, &plane.namespace("raw").await?, servers).await?;

    let count = f64::from(servers);
    let per_object = f64::from(u32::try_from(writes.values().sum::<u64>())?) / count;
    let (create, fan_out) = (f64::midpoint(before.create, after.create), f64::midpoint(before.fan_out, after.fan_out));
    ui::result(&format!(
        "{servers} MCPServers that share one MCPOIDCConfig\n\
         \n                          skep      plain client (before, after)   ratio to the mean\n\
         CPU of the operator   {:>7.2} s\n\
         all children          {:>7.2} s   {:>7.2} s {:>7.2} s   {:>6.2}   (creating the objects took {:.2} s of it)\n\
         fan-out edit          {:>7.2} s   {:>7.2} s {:>7.2} s   {:>6.2}\n\
         writes per object     {:>7.2}     {:>7.2}               {:>6.2}\n\
         writes at rest        {idle_writes:>7}     in {} s\n\
         memory                {:>7.1} MiB, {:.1} at its highest, {:.1} before the first object\n\
         CPU at rest           {:>7.3} s\n\
         \nwrites: {writes:?}\nreads: {reads:?}",
        busy.cpu,
        all.as_secs_f64(),
        before.create,
        after.create,
        all.as_secs_f64() / create,
        created.as_secs_f64(),
        fanned.as_secs_f64(),
        before.fan_out,
        after.fan_out,
        fanned.as_secs_f64() / fan_out,
        per_object,
        before.writes,
        per_object / before.writes,
        arguments.idle,
        rest.resident,
        end.peak,
        empty.resident,
        rest.cpu - busy.cpu,
    ));
    plane.stop();
    Ok(())
}

fn oidc(issuer: &str) -> Value {
    json!({ "type": "inline", "inline": { "issuer": issuer, "clientId": "c" } })
}

fn server() -> Value {
    json!({ "image": "registry.example/a:1", "transport": "streamable-http", "oidcConfigRef": { "name": "idp", "audience": "a" } })
}

fn object(kind: KindName, namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": kind.as_str(),
        "metadata": { "name": name, "namespace": namespace }, "spec": spec,
    })
}

async fn create(client: &Client, namespace: &str, servers: u32) -> Result<Vec<Value>> {
    let idp: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &api_resource(KindName::MCPOIDCConfig));
    let config = object(KindName::MCPOIDCConfig, namespace, "idp", &oidc("https://old.example"));
    idp.create(&PostParams::default(), &serde_json::from_value(config)?).await?;
    let objects: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &api_resource(KindName::MCPServer));
    stream::iter(0..servers)
        .map(|index| {
            let objects = objects.clone();
            async move {
                let body = object(KindName::MCPServer, namespace, &format!("s{index}"), &server());
                let created = objects.create(&PostParams::default(), &serde_json::from_value(body)?).await?;
                anyhow::Ok(serde_json::to_value(created)?)
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

async fn fan_out(client: &Client, namespace: &str) -> Result<()> {
    let idp: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &api_resource(KindName::MCPOIDCConfig));
    let patch = Patch::Merge(json!({ "spec": oidc("https://new.example") }));
    idp.patch("idp", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// What the plain client took.
struct Plain {
    /// Seconds for all objects.
    create: f64,
    /// Seconds for the fan-out.
    fan_out: f64,
    /// Writes per object.
    writes: f64,
}

/// The same writes by a client that only writes.
async fn plain(client: &Client, namespace: &str, servers: u32) -> Result<Plain> {
    let started = Instant::now();
    let created = create(client, namespace, servers).await?;
    let writes = write_all(client, namespace, &created, "https://old.example", true).await?;
    let first = started.elapsed();
    let started = Instant::now();
    fan_out(client, namespace).await?;
    write_all(client, namespace, &created, "https://new.example", false).await?;
    Ok(Plain {
        create: first.as_secs_f64(),
        fan_out: started.elapsed().as_secs_f64(),
        writes: f64::from(u32::try_from(writes)?) / f64::from(servers),
    })
}

async fn write_all(client: &Client, namespace: &str, servers: &[Value], issuer: &str, first: bool) -> Result<usize> {
    let sent = stream::iter(servers)
        .map(|server| write_one(client, namespace, server, issuer, first))
        .buffer_unordered(AT_ONCE);
    Ok(sent.try_collect::<Vec<usize>>().await?.into_iter().sum())
}

/// The writes for one server: all of them at first, and afterwards what a changed configuration changes.
async fn write_one(client: &Client, namespace: &str, server: &Value, issuer: &str, first: bool) -> Result<usize> {
    let me = Resource::from_value(KindName::MCPServer, server.clone())?;
    let config = Resource::from_value(
        KindName::MCPOIDCConfig,
        object(KindName::MCPOIDCConfig, namespace, "idp", &oidc(issuer)),
    )?;
    let found = BTreeMap::from([(Key::of(&config), Found::Resource(config.into()))]);
    let environment = Environment::read(&BTreeMap::new())?;
    let (live, users) = (Live::default(), std::collections::BTreeSet::new());
    let world =
        World { settings: &environment.settings, found: &found, users: &users, live: &live, policies: &NoPolicies };
    let plan = plan(&me, &world);
    let mut sent = 0;
    let resources: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &api_resource(KindName::MCPServer));
    if first {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": [me.kind().finalizer()] } }));
        resources.patch(me.name(), &PatchParams::default(), &patch).await?;
        sent += 1;
    }
    for child in &plan.children {
        if first || matches!(child.kind(), ChildKind::ConfigMap | ChildKind::Deployment) {
            let children: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), namespace, &child_resource(child.kind()));
            children
                .patch_metadata(child.name(), &PatchParams::apply("plain").force(), &Patch::Apply(child.body()))
                .await?;
            sent += 1;
        }
    }
    let status = plan.status.onto(&json!({}), 1, "2026-01-01T00:00:00Z");
    resources.patch_status(me.name(), &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await?;
    Ok(sent + 1)
}

/// Waits until there are enough objects of a kind that are as wanted.
async fn until(
    client: &Client,
    namespace: &str,
    kind: &ApiResource,
    enough: u32,
    wanted: impl Fn(&Value) -> bool,
) -> Result<()> {
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, kind);
    let mut seen = BTreeSet::new();
    let watch = async {
        let mut changes = pin!(watcher(objects, watcher::Config::default().any_semantic()).applied_objects());
        while seen.len() < enough as usize {
            let object = changes.try_next().await?.context("the watch ended")?;
            if wanted(&object.data) {
                seen.extend(object.metadata.name);
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, watch).await.with_context(|| format!("{} {}s as wanted", enough, kind.kind))?
}

async fn poll<Look, Found>(what: &str, mut look: Look) -> Result<()>
where
    Look: FnMut() -> Found,
    Found: Future<Output = Result<bool>>,
{
    let deadline = Instant::now() + PATIENCE;
    while !look().await? {
        if Instant::now() > deadline {
            bail!("{what}: not within {PATIENCE:?}");
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Waits until the operator has sent nothing for a second.
async fn calm(port: u16) -> Result<()> {
    let mut before = requests(port)?;
    poll("the operator comes to rest", || {
        let now = requests(port);
        let known = before.clone();
        if let Ok(now) = &now {
            before.clone_from(now);
        }
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(now? == known)
        }
    })
    .await
}

/// Requests that the operator has sent, by verb and resource: writes, and reads.
fn requests(port: u16) -> Result<(BTreeMap<String, u64>, BTreeMap<String, u64>)> {
    let (mut writes, mut reads) = (BTreeMap::new(), BTreeMap::new());
    for line in get(port, "/metrics")?.lines().filter(|line| line.starts_with("skep_operator_api_requests_total{")) {
        let (labels, number) = line.rsplit_once(' ').context("not a metric")?;
        let label = |name: &str| {
            labels.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default()
        };
        let list = if label("verb") == "get" { &mut reads } else { &mut writes };
        list.insert(format!("{} {}", label("verb"), label("resource")), number.parse::<u64>()?);
    }
    Ok((writes, reads))
}

fn run_config(map: &Value) -> &str {
    map.pointer("/data/runconfig.json").and_then(Value::as_str).unwrap_or_default()
}
