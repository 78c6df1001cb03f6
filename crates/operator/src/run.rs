//! The operator as a whole: lease, watches, workers, pages. Fail-stop: whatever ends that should not end, ends the process.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use kube::Client;
use skep_plan::world::Policies;
use tokio::task::JoinSet;

use crate::events::Events;
use crate::failure::describe;
use crate::lease::{Election, Leadership};
use crate::metrics::Metrics;
use crate::policy_cache::PolicyCache;
use crate::queue::Queue;
use crate::readiness::Readiness;
use crate::reconcile::{Applier, Failures, Reconciler};
use crate::serve;
use crate::served::Served;
use crate::session_key::SessionKeys;
use crate::settings::Environment;
use crate::store::Store;
use crate::watch::{Context, Watches};
use crate::write::Writer;

/// The leader lease of the operators of one cluster; the name is that of the system we replace, so that the two never act at once.
pub const LEASE: &str = "toolhive-operator-leader-election";
/// How long releasing the lease may take when the process ends.
const RELEASE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);
/// How often a blocked deletion is checked again, beside the watches, which show when its last user goes.
pub const RECHECK: std::time::Duration = std::time::Duration::from_secs(30);
/// How long one reconcile may take. The API server may be slow, or never answer: no resource may hold a worker for ever.
pub const RECONCILE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);
/// How many resources are reconciled at the same time.
const WORKERS: usize = 8;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where metrics are served.
    pub metrics_address: String,
    /// Where health is served.
    pub health_address: String,
    /// Whether the operator needs the leader lease to write.
    pub leader_elect: bool,
    /// The identity of this replica in the lease.
    pub identity: String,
    /// Where everything is counted.
    pub metrics: Metrics,
    /// Where the checks of `/readyz` are kept.
    pub readiness: Readiness,
    /// How often a blocked deletion is checked again; [`RECHECK`] but in tests.
    pub recheck: std::time::Duration,
    /// How long one reconcile may take; [`RECONCILE_TIMEOUT`] but in tests.
    pub reconcile_timeout: std::time::Duration,
}

/// Runs until `stop` ends, or until something fails that must not.
pub async fn run(
    client: Client,
    options: Options,
    environment: Environment,
    policies: Box<dyn Policies>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let metrics = options.metrics.clone();
    let readiness = options.readiness.clone();
    let mut pages = JoinSet::new();
    for address in [&options.metrics_address, &options.health_address] {
        // Tests and people who do not want a page say `0`.
        if address != "0" {
            let listener = serve::listen(serve::address(address)?).await?;
            pages.spawn(serve::serve(listener, readiness.clone(), metrics.clone()));
        }
    }
    let election =
        options.leader_elect.then(|| Election::new(client.clone(), &environment.home, LEASE, options.identity.clone()));
    let work = lead(client, options, environment, policies, election.clone());
    tokio::select! {
        result = work => return result,
        () = stop => tracing::info!("stopping"),
    }
    // No request of ours is in flight any more: the next leader may act at once.
    if let Some(election) = election {
        match tokio::time::timeout(RELEASE_TIMEOUT, election.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = describe(&error), "lease not released; it expires"),
            Err(_slow) => tracing::warn!("lease not released in time; it expires"),
        }
    }
    Ok(())
}

/// The work queue. Where several namespaces are watched, none of them holds more than half of the workers.
fn queue(namespaces: &[String]) -> Queue {
    if namespaces.len() == 1 { Queue::default() } else { Queue::with_namespace_limit(WORKERS / 2) }
}

async fn lead(
    client: Client,
    options: Options,
    mut environment: Environment,
    policies: Box<dyn Policies>,
    election: Option<Election>,
) -> Result<()> {
    let (metrics, readiness) = (options.metrics.clone(), options.readiness.clone());
    if !environment.platform_named {
        environment.settings.openshift = is_openshift(&client).await.context("cannot ask the API server what it is")?;
    }
    let mut leadership = None;
    if let Some(election) = election {
        leadership = Some(election.acquire_reporting(&readiness).await);
        tracing::info!(lease = LEASE, "acquired leader lease");
    }
    metrics.leading(true);
    let mut lost = std::pin::pin!(async {
        match leadership {
            Some(leadership) => Leadership::lost(leadership).await,
            None => std::future::pending().await,
        }
    });

    let context = Context {
        store: Arc::new(Store::new(environment.settings.default_redis.clone())),
        queue: Arc::new(queue(&environment.namespaces)),
        readiness,
        metrics,
        served: Arc::new(Served::new()),
    };
    let mut watches = Watches::start(&client, &environment.namespaces, &context);
    // The lists may take longer than a lease lasts: it is renewed meanwhile.
    tokio::select! {
        why = &mut lost => bail!("leadership lost: {why}"),
        () = watches.ready() => {}
    }
    tracing::info!("caches synced");

    let Environment { settings, migrate, .. } = environment;
    let Context { store, queue, metrics, served, .. } = context;
    let writer = Writer::serving(client.clone(), metrics.clone(), served);
    let reconciler = Arc::new(Reconciler {
        settings,
        policies: Box::new(PolicyCache::new(policies)),
        applier: Applier::new(queue.clone(), store.clone(), writer.clone(), metrics.clone()),
        store,
        queue,
        metrics,
        writer,
        session_keys: SessionKeys::default(),
        failures: Failures::default(),
        events: Events::new(client.clone(), "skep-operator", Some(options.identity)),
        client,
        recheck: options.recheck,
        timeout: options.reconcile_timeout,
    });
    let mut workers = start_workers(&reconciler, migrate);
    tokio::select! {
        why = lost => bail!("leadership lost: {why}"),
        () = watches.failed() => bail!("a watch ended; this is a bug"),
        ended = workers.join_next() => bail!("a worker ended: {ended:?}; this is a bug"),
    }
}

/// Starts the workers, and the storage version migrator if it is wanted. None of them ever ends.
fn start_workers(reconciler: &Arc<Reconciler>, migrate: bool) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    if migrate {
        workers.spawn(crate::migrate::keep_migrated(reconciler.client.clone(), reconciler.events.clone()));
    }
    for _ in 0..WORKERS {
        let reconciler = reconciler.clone();
        workers.spawn(async move { reconciler.work().await });
    }
    workers
}

/// OpenShift assigns user ids by itself; it is known by its routes.
async fn is_openshift(client: &Client) -> Result<bool, kube::Error> {
    match client.list_api_group_resources("route.openshift.io/v1").await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == "routes")),
        // The API server answers in plain text here, so there is a code and no reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}
