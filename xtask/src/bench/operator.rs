//! The operator's cost: time to all children, writes per object, memory, processor time, writes at rest, a fan-out edit; and
//! with several numbers of servers, how much each of it grows.
//!
//! The yardstick is a plain client that sends the same writes ([`plain`]), on the same API server. It runs once to warm that up,
//! then before the operator and after it, because an API server gets slower when it holds more: most of all its garbage
//! collector, which takes longer for each byte the more there are.
//!
//! Results are observed by watches. Lists would cost the API server more the more objects there are.

mod plain;

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use futures_util::TryStreamExt as _;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::Value;
use skep_api::resource::KindName;
use skep_operator::write::{api_resource, child_resource};
use skep_plan::child::ChildKind;
use skep_testkit::ControlPlane;

use self::plain::{FAN_OUTS, Plain, create, median, new_tool};
use crate::image::archive::ALLOCATOR;
use crate::process::{Process, get, wait_for};
use crate::{skep, ui};

/// For how many objects the plain client writes before anything is measured.
const WARM_UP: u32 = 200;
/// How often to check whether the operator is idle.
const LOOK: Duration = Duration::from_millis(200);
/// The timeout of every wait.
const PATIENCE: Duration = Duration::from_mins(10);

/// How to measure.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How many MCPServers. Several numbers are measured one after the other, each on an API server of its own. A number that is given
    /// more than once is measured as often, and the growth of everything is that of the medians.
    #[arg(long, default_value = "200", value_delimiter = ',', value_name = "N")]
    servers: Vec<u32>,
    /// For how many seconds to watch the operator at rest.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// The `skep` to measure. Left out, the one of the image is built.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// What came out for one number of servers. Times are in seconds, memory is in MiB.
struct Measured {
    servers: u32,
    /// From the first object to all children and statuses, and how long creating the objects took of it.
    all: f64,
    created: f64,
    all_cpu: f64,
    /// From an edit of the shared configuration to the last ConfigMap: the median, and the processor time of the mean.
    fan_out: f64,
    fan_out_cpu: f64,
    /// The plain client before the operator, and after it.
    before: Plain,
    after: Plain,
    writes: BTreeMap<String, u64>,
    reads: BTreeMap<String, u64>,
    idle_writes: u64,
    idle_cpu: f64,
    memory_empty: f64,
    memory: f64,
    memory_peak: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if cfg!(debug_assertions) {
        // A plain client that is not optimized would flatter the operator.
        return super::run_optimized();
    }
    let binary = skep::shipped(arguments.binary.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut all = Vec::new();
    for &servers in &arguments.servers {
        let measured = runtime.block_on(measure(servers, arguments.idle, &binary))?;
        ui::result(&measured.report(arguments.idle));
        all.push(measured);
    }
    if let [first, .., last] = &arguments.servers[..]
        && first != last
    {
        ui::result(&growth(&all, *first, *last)?);
    }
    Ok(())
}

/// How much everything grew from one number of servers to another.
fn growth(all: &[Measured], first: u32, last: u32) -> Result<String> {
    let middle = |servers: u32, of: &dyn Fn(&Measured) -> f64| {
        median(all.iter().filter(|one| one.servers == servers).map(of).collect())
    };
    let times = |of: &dyn Fn(&Measured) -> f64| anyhow::Ok(middle(last, of)? / middle(first, of)?);
    let line = |what: &str, ours: fn(&Measured) -> f64, plain: Option<fn(&Plain) -> f64>| {
        let beside = plain.map(|plain| times(&|one| one.plain(plain))).transpose()?;
        let beside = beside.map(|times| format!("{times:>14.1}")).unwrap_or_default();
        anyhow::Ok(format!("{what:<22}{:>8.1}{beside}\n", times(&ours)?))
    };
    Ok([
        format!(
            "from {first} servers to {last}, {} times as many, times as much of\n\n                          skep  plain client\n",
            f64::from(last) / f64::from(first),
        ),
        line("CPU, all children", |one| one.all_cpu, Some(|plain| plain.create_cpu))?,
        line("CPU, fan-out edit", |one| one.fan_out_cpu, Some(|plain| plain.fan_out_cpu))?,
        line("requests", |one| per_object(&one.writes, 1) + per_object(&one.reads, 1), None)?,
        line("memory", |one| one.memory, None)?,
        line("memory at its highest", |one| one.memory_peak, None)?,
        line("all children", |one| one.all, Some(|plain| plain.create))?,
        line("fan-out edit", |one| one.fan_out, Some(|plain| plain.fan_out))?,
    ]
    .concat())
}

async fn measure(servers: u32, idle: u64, binary: &Path) -> Result<Measured> {
    let plane = ControlPlane::start().await?;
    let documents = skep_api::crd::all()?.iter().map(skep_api::manifest::document).collect::<Result<Vec<_>, _>>()?;
    plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &documents.concat()).await?.success()?;
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?.success()?;
    let client = plane.client()?;

    ui::progress("warming up the API server…");
    plain::run(&client, &plane.namespace("warm").await?, servers.min(WARM_UP)).await?;
    ui::progress(&format!("{servers} servers: the plain client…"));
    let before = plain::run(&client, &plane.namespace("raw").await?, servers).await?;

    ui::progress("the operator…");
    let namespace = plane.namespace("operator").await?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut operator = Process::start(
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
            .env("SKEP_LOG", "error")
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

    ui::progress(&format!("{idle} s at rest…"));
    tokio::time::sleep(Duration::from_secs(idle)).await;
    let idle_writes = requests(port)?.0.values().sum::<u64>() - writes.values().sum::<u64>();
    let rest = operator.usage()?;

    let maps = child_resource(ChildKind::ConfigMap);
    let mut fanned = Vec::new();
    for number in 1..=FAN_OUTS {
        ui::progress(&format!("a fan-out edit, {number} of {FAN_OUTS}…"));
        let tool = new_tool(number);
        let started = Instant::now();
        tokio::try_join!(
            until(&client, &namespace, &maps, servers, |map| run_config(map).contains(&tool)),
            plain::fan_out(&client, &namespace, &tool),
        )?;
        fanned.push(started.elapsed().as_secs_f64());
        calm(port).await?;
    }
    let fan_out = median(fanned)?;
    let end = operator.usage()?;
    operator.ask_to_end(PATIENCE);
    drop(operator);

    ui::progress("the plain client again…");
    let after = plain::run(&client, &plane.namespace("raw").await?, servers).await?;
    plane.stop();
    Ok(Measured {
        servers,
        all: all.as_secs_f64(),
        created: created.as_secs_f64(),
        all_cpu: busy.cpu - empty.cpu,
        fan_out,
        fan_out_cpu: (end.cpu - rest.cpu) / f64::from(FAN_OUTS),
        before,
        after,
        writes,
        reads,
        idle_writes,
        idle_cpu: rest.cpu - busy.cpu,
        memory_empty: empty.resident,
        memory: rest.resident,
        memory_peak: end.peak,
    })
}

// === impl Measured ===

impl Measured {
    /// What the plain client took of something: the mean of before the operator and after it.
    fn plain(&self, of: fn(&Plain) -> f64) -> f64 {
        f64::midpoint(of(&self.before), of(&self.after))
    }

    fn writes_per_object(&self) -> f64 {
        per_object(&self.writes, self.servers)
    }

    fn report(&self, idle: u64) -> String {
        let Self { servers, before, after, .. } = self;
        format!(
            "{servers} MCPServers that share one MCPToolConfig\n\
             \n                          skep      plain client (before, after)   ratio to the mean\n\
             CPU, all children     {:>7.2} s   {:>7.2} s {:>7.2} s   {:>6.2}\n\
             CPU, fan-out edit     {:>7.3} s   {:>7.3} s {:>7.3} s   {:>6.2}\n\
             all children          {:>7.2} s   {:>7.2} s {:>7.2} s   {:>6.2}   (creating the objects took {:.2} s of it)\n\
             fan-out edit          {:>7.2} s   {:>7.2} s {:>7.2} s   {:>6.2}\n\
             writes per object     {:>7.2}     {:>7.2}               {:>6.2}\n\
             writes at rest        {:>7}     in {idle} s\n\
             memory                {:>7.1} MiB, {:.1} at its highest, {:.1} before the first object\n\
             CPU at rest           {:>7.3} s\n\
             \nwrites: {:?}\nreads: {:?}\n",
            self.all_cpu,
            before.create_cpu,
            after.create_cpu,
            self.all_cpu / self.plain(|plain| plain.create_cpu),
            self.fan_out_cpu,
            before.fan_out_cpu,
            after.fan_out_cpu,
            self.fan_out_cpu / self.plain(|plain| plain.fan_out_cpu),
            self.all,
            before.create,
            after.create,
            self.all / self.plain(|plain| plain.create),
            self.created,
            self.fan_out,
            before.fan_out,
            after.fan_out,
            self.fan_out / self.plain(|plain| plain.fan_out),
            self.writes_per_object(),
            before.writes,
            self.writes_per_object() / before.writes,
            self.idle_writes,
            self.memory,
            self.memory_peak,
            self.memory_empty,
            self.idle_cpu,
            self.writes,
            self.reads,
        )
    }
}

/// The requests of all kinds, for each object.
fn per_object(requests: &BTreeMap<String, u64>, objects: u32) -> f64 {
    let all = u32::try_from(requests.values().sum::<u64>()).unwrap_or(u32::MAX);
    f64::from(all) / f64::from(objects)
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
