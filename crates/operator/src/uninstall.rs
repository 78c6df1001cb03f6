//! Leaving a cluster: what the operator holds on to is let go, so that objects, namespaces and definitions can be deleted when it
//! is not there any more.
//!
//! ```text
//!   scale the Deployment to zero ─▶ wait until its pods are gone ─▶ wait until the Lease is not renewed
//!        ─▶ remove our finalizers from every object ─▶ delete the Lease
//! ```
//!
//! The order matters: an operator that still runs adds its finalizers again. Once it is stopped, one object that cannot be released
//! stops none of the others: all failures are reported together, and the Lease stays for the next attempt. Finalizers are removed by merge patches that carry the
//! resource version, so those of other controllers stay; nothing else of an object changes, and what runs goes on running. Every
//! step may be repeated: what is done already is passed over.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::ApiResource;
use serde::Serialize;
use skep_api::crd::GROUP;
use skep_api::resource::KindName;

use crate::failure::describe;
use crate::object::Object;
use crate::run::LEASE;
use crate::served::{discover, resource_in};
use crate::watch::PAGE;
use crate::write::{cluster, resources};

/// How long the operator's pods may take to end, and the Lease of one that was killed to expire.
const PATIENCE: Duration = Duration::from_mins(2);
/// How often the API server is asked meanwhile.
const INTERVAL: Duration = Duration::from_millis(500);
/// How many objects are patched at the same time.
const CONCURRENCY: usize = 8;
/// How often an object is patched that others change at the same time.
const ATTEMPTS: u32 = 8;
/// How long to wait before an object is patched again; twice as long before each further attempt.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
/// How long a Lease lasts that does not say it.
const LEASE_SECONDS: i32 = 15;

/// What is to be left.
#[derive(Clone, Debug)]
pub struct Uninstall {
    /// The namespace of the operator, with its Deployment and its Lease.
    pub home: String,
    /// The name of its Deployment.
    pub deployment: String,
    /// The namespaces that it watches; empty for all.
    pub namespaces: Vec<String>,
    /// Whether to say only what would be done.
    pub dry_run: bool,
    /// Whether the operator is known to be gone, with its Deployment and its Lease. Else one of the two must be found: they are the only
    /// evidence that the right operator is stopped.
    pub is_gone: bool,
}

/// One step that was done, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "step")]
pub enum Step {
    /// The operator's Deployment runs no pods any more.
    Scaled {
        /// Its name.
        deployment: String,
        /// The replicas that it had.
        from: i32,
    },
    /// A finalizer was removed.
    Released {
        /// The kind of the object.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A kind is not defined in this cluster.
    NotDefined {
        /// The kind.
        kind: &'static str,
    },
    /// The Lease was deleted.
    LeaseDeleted {
        /// Its name.
        lease: &'static str,
    },
}

/// Why the cluster cannot be left.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// The operator's pods do not end.
    #[error("pods of Deployment `{deployment}` still run after {seconds} s: {pods}; delete them and try again")]
    PodsRemain {
        /// The Deployment.
        deployment: String,
        /// How long they were waited for.
        seconds: u64,
        /// Their names.
        pods: String,
    },
    /// There is no sign of an operator in its namespace.
    #[error(
        "neither Deployment `{deployment}` nor Lease `{LEASE}` found in namespace `{home}`; name the namespace and the Deployment of the \
         operator, or pass --operator-gone if it was removed before"
    )]
    NoOperator {
        /// The Deployment that was looked for.
        deployment: String,
        /// The namespace in which it was looked for.
        home: String,
    },
    /// Some objects were not released.
    #[error("{} of the steps failed: {}", failures.len(), listed(failures))]
    Incomplete {
        /// Why, each.
        failures: Vec<UninstallError>,
    },
    /// Another operator runs.
    #[error("Lease `{lease}` is held by `{holder}`, which still renews it; stop that operator first")]
    StillLed {
        /// The Lease.
        lease: &'static str,
        /// The identity of its holder.
        holder: String,
    },
    /// Others change an object again and again.
    #[error("{kind} `{object}` is changed by others all the time; stop them and try again")]
    Contended {
        /// Its kind.
        kind: &'static str,
        /// Its namespace and name.
        object: String,
    },
    /// The API server refused, or could not be reached.
    #[error("cannot {action}")]
    Api {
        /// What was tried.
        action: String,
        /// What came back.
        source: Box<kube::Error>,
    },
}

// === impl Uninstall ===

impl Uninstall {
    /// Does everything in order, and reports each step as it is done.
    pub async fn run(&self, client: &Client, report: impl Fn(&Step)) -> Result<(), UninstallError> {
        self.find_operator(client).await?;
        self.stop(client, &report).await?;
        self.wait_for_lease(client).await?;
        let found = discover(client).await.map_err(failed(|| format!("discover the kinds of {GROUP}")))?;
        let mut failures = Vec::new();
        for kind in KindName::ALL.iter().copied().filter(|kind| kind.finalizer().is_some()) {
            // Metadata is the same in every version, also in one that this release does not know.
            let known = found.versions.get(&kind).copied();
            match known.or_else(|| found.unknown.get(&kind).map(String::as_str)) {
                Some(version) => failures.extend(self.release(client, kind, version, &report).await),
                None => report(&Step::NotDefined { kind: kind.as_str() }),
            }
        }
        if !failures.is_empty() {
            return Err(UninstallError::Incomplete { failures });
        }
        self.delete_lease(client, &report).await
    }

    /// Refuses to release the objects of an operator of which there is no sign: in another namespace it may well be running.
    async fn find_operator(&self, client: &Client) -> Result<(), UninstallError> {
        if self.is_gone {
            return Ok(());
        }
        let name = &self.deployment;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &self.home);
        let leases: Api<Lease> = Api::namespaced(client.clone(), &self.home);
        let deployment = deployments.get_opt(name).await.map_err(failed(|| format!("read Deployment `{name}`")))?;
        let lease = leases.get_opt(LEASE).await.map_err(failed(|| format!("read Lease `{LEASE}`")))?;
        if deployment.is_none() && lease.is_none() {
            return Err(UninstallError::NoOperator { deployment: name.clone(), home: self.home.clone() });
        }
        Ok(())
    }

    /// Stops the operator, and waits until none of its pods can write any more.
    async fn stop(&self, client: &Client, report: &impl Fn(&Step)) -> Result<(), UninstallError> {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &self.home);
        let name = &self.deployment;
        let found = deployments.get_opt(name).await.map_err(failed(|| format!("read Deployment `{name}`")))?;
        let Some(spec) = found.and_then(|deployment| deployment.spec) else { return Ok(()) };
        let from = spec.replicas.unwrap_or(1);
        if from > 0 {
            if !self.dry_run {
                let scaled = cluster::scale_to_zero(&deployments, name).await;
                scaled.map_err(failed(|| format!("scale Deployment `{name}` to zero")))?;
            }
            report(&Step::Scaled { deployment: name.clone(), from });
        }
        if self.dry_run {
            return Ok(());
        }
        let labels = spec.selector.match_labels.unwrap_or_default();
        let selector: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.wait_for_pods(&Api::namespaced(client.clone(), &self.home), &selector.join(",")).await
    }

    async fn wait_for_pods(&self, pods: &Api<Pod>, selector: &str) -> Result<(), UninstallError> {
        // Evicted pods stay when a Deployment is scaled to zero, and run nothing.
        let selected = ListParams::default().labels(selector).fields("status.phase!=Failed,status.phase!=Succeeded");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let left = pods.list_metadata(&selected).await.map_err(failed(|| "list the operator's pods".to_owned()))?;
            if left.items.is_empty() {
                return Ok(());
            }
            if tokio::time::Instant::now() >= deadline {
                let names: Vec<_> = left.items.into_iter().filter_map(|pod| pod.metadata.name).collect();
                let (deployment, seconds) = (self.deployment.clone(), PATIENCE.as_secs());
                return Err(UninstallError::PodsRemain { deployment, seconds, pods: names.join(", ") });
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Waits until no operator renews the Lease. One that shut down gracefully has released it; that of one that was killed expires, as measured
    /// by our own clock.
    async fn wait_for_lease(&self, client: &Client) -> Result<(), UninstallError> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), &self.home);
        let read = async || {
            let lease = leases.get_opt(LEASE).await.map_err(failed(|| format!("read Lease `{LEASE}`")))?;
            let held = |spec: &LeaseSpec| spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
            Ok(lease.and_then(|lease| lease.spec).filter(held))
        };
        let Some(first) = read().await? else { return Ok(()) };
        let seconds = u64::try_from(first.lease_duration_seconds.unwrap_or(LEASE_SECONDS)).unwrap_or_default();
        let expires = tokio::time::Instant::now() + Duration::from_secs(seconds);
        while !self.dry_run && tokio::time::Instant::now() < expires {
            tokio::time::sleep(INTERVAL).await;
            let Some(now) = read().await? else { return Ok(()) };
            if now.renew_time != first.renew_time || now.holder_identity != first.holder_identity {
                let holder = now.holder_identity.unwrap_or_default();
                return Err(UninstallError::StillLed { lease: LEASE, holder });
            }
        }
        Ok(())
    }

    /// Removes the finalizer of a kind from all its objects. Returns what failed.
    async fn release(
        &self,
        client: &Client,
        kind: KindName,
        version: &str,
        report: &impl Fn(&Step),
    ) -> Vec<UninstallError> {
        let resource = &resource_in(kind, version);
        let mut failures = Vec::new();
        for objects in self.objects(client, resource) {
            let mut page = ListParams::default().limit(PAGE);
            loop {
                let listed = match objects.list(&page).await {
                    Ok(listed) => listed,
                    Err(error) => {
                        failures.push(failed(|| format!("list objects of kind {kind}"))(error));
                        break;
                    }
                };
                let all = listed.items.into_iter().map(|object| object.into_parts().0);
                let held = all.filter(|metadata| is_held(kind, metadata));
                let mut released =
                    stream::iter(held.map(|metadata| self.release_one(client, kind, resource, metadata)))
                        .buffer_unordered(CONCURRENCY);
                while let Some(released) = released.next().await {
                    match released {
                        Ok(step) => step.iter().for_each(report),
                        Err(failure) => failures.push(failure),
                    }
                }
                match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => page = page.continue_token(&token),
                    None => break,
                }
            }
        }
        failures
    }

    /// Removes the finalizer from one object. Nothing if it is gone, or was released by others.
    async fn release_one(
        &self,
        client: &Client,
        kind: KindName,
        resource: &ApiResource,
        mut metadata: ObjectMeta,
    ) -> Result<Option<Step>, UninstallError> {
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let name = metadata.name.clone().unwrap_or_default();
        let objects: Api<Object> = Api::namespaced_with(client.clone(), &namespace, resource);
        let action = || format!("release {kind} `{namespace}/{name}`");
        for attempt in 0..ATTEMPTS {
            // Another client that changes it at the same time may need a moment to settle.
            tokio::time::sleep(FIRST_BACKOFF * ((1 << attempt) - 1)).await;
            if !is_held(kind, &metadata) {
                return Ok(None);
            }
            let done = Step::Released { kind: kind.as_str(), namespace: namespace.clone(), name: name.clone() };
            if self.dry_run {
                return Ok(Some(done));
            }
            match resources::release_finalizer(&objects, kind, &metadata).await {
                Ok(()) => return Ok(Some(done)),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(None),
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(error) => return Err(failed(action)(error)),
            }
            let Some(again) = objects.get_opt(&name).await.map_err(failed(action))? else { return Ok(None) };
            metadata = again.into_parts().0;
        }
        Err(UninstallError::Contended { kind: kind.as_str(), object: format!("{namespace}/{name}") })
    }

    /// Deletes the Lease.
    async fn delete_lease(&self, client: &Client, report: &impl Fn(&Step)) -> Result<(), UninstallError> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), &self.home);
        let action = |verb: &str| format!("{verb} Lease `{LEASE}`");
        let Some(lease) = leases.get_opt(LEASE).await.map_err(failed(|| action("read")))? else { return Ok(()) };
        if !self.dry_run {
            cluster::delete_lease(&leases, LEASE, lease.metadata).await.map_err(failed(|| action("delete")))?;
        }
        report(&Step::LeaseDeleted { lease: LEASE });
        Ok(())
    }

    /// The objects of a kind, in each namespace that was watched. Whole ones: their reader skips `managedFields`, which nest as deep as
    /// the object does, so that one that nests too deep fails no page.
    fn objects(&self, client: &Client, resource: &ApiResource) -> Vec<Api<Object>> {
        if self.namespaces.is_empty() {
            return vec![Api::all_with(client.clone(), resource)];
        }
        let one = |namespace: &String| Api::namespaced_with(client.clone(), namespace, resource);
        self.namespaces.iter().map(one).collect()
    }
}

/// Failures in one line.
fn listed(failures: &[UninstallError]) -> String {
    let line = |failure: &UninstallError| describe(failure);
    failures.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// Whether an object has the finalizer of its kind.
fn is_held(kind: KindName, metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|finalizer| Some(finalizer.as_str()) == kind.finalizer())
}

fn failed(action: impl FnOnce() -> String) -> impl FnOnce(kube::Error) -> UninstallError {
    |error| UninstallError::Api { action: action(), source: Box::new(error) }
}
