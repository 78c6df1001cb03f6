//! The yardstick: a client that only writes. The very bodies of the plan, by server-side apply, a finalizer and a
//! status for each object, with as many requests in flight as the operator has.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};
use skep_operator::settings::Environment;
use skep_operator::write::{api_resource, child_resource};
use skep_plan::child::ChildKind;
use skep_plan::key::Key;
use skep_plan::plan::{Verdict, plan};
use skep_plan::world::{Found, Live, Policies, PolicyError, World};

use crate::process::Usage;

/// How many requests the plain client has in flight.
const AT_ONCE: usize = 8;
/// The initial value of the shared configuration.
const OLD_TOOL: &str = "old";
/// How many fan-out edits there are, of the operator and of the plain client. The processor time of one is too short for the kernel's
/// clock, which counts in hundredths of a second.
pub(super) const FAN_OUTS: u32 = 3;

/// What the plain client took. Times are in seconds.
pub(super) struct Plain {
    /// For all objects.
    pub(super) create: f64,
    /// The processor time of that, which is ours: this process does nothing else meanwhile.
    pub(super) create_cpu: f64,
    /// For the fan-out: the median.
    pub(super) fan_out: f64,
    /// The processor time of that: the mean.
    pub(super) fan_out_cpu: f64,
    /// Writes per object.
    pub(super) writes: f64,
}

/// Policies play no part here.
#[derive(Debug)]
struct NoPolicies;

impl Policies for NoPolicies {
    fn check(&self, _: &str, _: &Value) -> Result<(), PolicyError> {
        Ok(())
    }
}

/// The same writes by a client that only writes.
pub(super) async fn run(client: &Client, namespace: &str, servers: u32) -> Result<Plain> {
    let cpu = || Ok::<_, anyhow::Error>(Usage::of(std::process::id())?.cpu);
    let before = cpu()?;
    let started = Instant::now();
    let created = create(client, namespace, servers).await?;
    let writes = write_all(client, namespace, &created, OLD_TOOL, true).await?;
    let first = started.elapsed();
    let between = cpu()?;
    let mut fanned = Vec::new();
    for number in 1..=FAN_OUTS {
        let tool = new_tool(number);
        let started = Instant::now();
        fan_out(client, namespace, &tool).await?;
        write_all(client, namespace, &created, &tool, false).await?;
        fanned.push(started.elapsed().as_secs_f64());
    }
    Ok(Plain {
        create: first.as_secs_f64(),
        create_cpu: between - before,
        fan_out: median(fanned)?,
        fan_out_cpu: (cpu()? - between) / f64::from(FAN_OUTS),
        writes: f64::from(u32::try_from(writes)?) / f64::from(servers),
    })
}

/// What a fan-out edit makes of the shared configuration.
pub(super) fn new_tool(number: u32) -> String {
    format!("new-{number}")
}

/// The one in the middle.
pub(super) fn median(mut times: Vec<f64>) -> Result<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().context("nothing was measured")
}

async fn write_all(client: &Client, namespace: &str, servers: &[Value], tool: &str, first: bool) -> Result<usize> {
    let sent =
        stream::iter(servers).map(|server| write_one(client, namespace, server, tool, first)).buffer_unordered(AT_ONCE);
    Ok(sent.try_collect::<Vec<usize>>().await?.into_iter().sum())
}

/// The writes for one server: all of them at first, and afterwards what a changed configuration changes.
async fn write_one(client: &Client, namespace: &str, server: &Value, tool: &str, first: bool) -> Result<usize> {
    let me = Resource::from_value(KindName::MCPServer, server.clone())?;
    let config = Resource::from_value(
        KindName::MCPToolConfig,
        object(KindName::MCPToolConfig, namespace, "tools", &filter(tool)),
    )?;
    let found = BTreeMap::from([(Key::of(&config), Found::Resource(config.into()))]);
    let environment = Environment::read(&BTreeMap::new())?;
    let (live, users) = (Live::default(), std::collections::BTreeSet::new());
    let world =
        World { settings: &environment.settings, found: &found, users: &users, live: &live, policies: &NoPolicies };
    let plan = plan(&me, &world);
    ensure!(
        plan.verdict == Verdict::Apply,
        "the operator would not apply the plan of {}: {:?}",
        me.name(),
        plan.verdict
    );
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

fn filter(tool: &str) -> Value {
    json!({ "toolsFilter": [tool] })
}

fn server() -> Value {
    json!({ "image": "registry.example/a:1", "transport": "streamable-http", "toolConfigRef": { "name": "tools" } })
}

fn object(kind: KindName, namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": kind.as_str(),
        "metadata": { "name": name, "namespace": namespace }, "spec": spec,
    })
}

/// Makes the shared configuration and the servers that use it.
pub(super) async fn create(client: &Client, namespace: &str, servers: u32) -> Result<Vec<Value>> {
    let configs: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &api_resource(KindName::MCPToolConfig));
    let config = object(KindName::MCPToolConfig, namespace, "tools", &filter(OLD_TOOL));
    configs.create(&PostParams::default(), &serde_json::from_value(config)?).await?;
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

/// Edits the shared configuration.
pub(super) async fn fan_out(client: &Client, namespace: &str, tool: &str) -> Result<()> {
    let configs: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &api_resource(KindName::MCPToolConfig));
    let patch = Patch::Merge(json!({ "spec": filter(tool) }));
    configs.patch("tools", &PatchParams::default(), &patch).await?;
    Ok(())
}
