//! Leader election by a Lease: one operator acts, the others wait.
//!
//! A process that may have lost its lease must not go on: [`Leadership::lost`] returns, and the process ends. Whether a
//! lease has expired is measured by our own clock from the moment we saw it last renewed, never by comparing clocks of two machines.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::Api;
use serde_json::json;

use crate::failure::describe;
use crate::readiness::{Check, Readiness};
use crate::write::cluster;

/// What the check of the lease is called.
const CHECK: &str = "leader-election";
/// How long a lease lasts without being renewed.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A leader that could not renew for this long gives up, well before another candidate may take over.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How long one attempt to get or to renew it may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// How often a lease is renewed or checked.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// The lease, and the identity of this process.
#[derive(Clone, Debug)]
pub struct Election {
    leases: Api<Lease>,
    name: String,
    identity: String,
}

/// The lease, while this process holds it.
#[derive(Debug)]
pub struct Leadership {
    election: Election,
    renewed: Instant,
}

/// The lease of another holder, and when we first saw it in this state.
#[derive(Debug, PartialEq, Eq)]
struct Observed {
    holder: Option<String>,
    renewed: Option<MicroTime>,
    at: Instant,
}

// === impl Election ===

impl Election {
    /// An election for the lease `name` in `namespace`.
    pub fn new(client: Client, namespace: &str, name: &str, identity: String) -> Self {
        Self { leases: Api::namespaced(client, namespace), name: name.to_owned(), identity }
    }

    /// Waits until this process holds the lease.
    pub async fn acquire(self) -> Leadership {
        self.acquire_reporting(&Readiness::default()).await
    }

    /// The same, and reports whether this process can take over: whether it reaches the API server and the lease.
    pub async fn acquire_reporting(self, readiness: &Readiness) -> Leadership {
        readiness.set(CHECK, Check::Failed("lease not read yet".to_owned()));
        let mut seen: Option<Observed> = None;
        loop {
            // It lasts from before the request: the time at which the API server wrote it is unknown.
            let began = Instant::now();
            match within(REQUEST_TIMEOUT, self.attempt(&mut seen)).await {
                Ok(true) => {
                    readiness.set(CHECK, Check::Passed("leader".to_owned()));
                    return Leadership { election: self, renewed: began };
                }
                Ok(false) => {
                    readiness.set(CHECK, Check::Passed("standby".to_owned()));
                }
                Err(error) => {
                    let error = describe(&error);
                    tracing::warn!(error, lease = self.name, "leader lease unreachable");
                    readiness.set(CHECK, Check::Failed(error));
                }
            }
            tokio::time::sleep(RETRY_PERIOD).await;
        }
    }

    /// Releases the lease if it is ours, so that the next leader need not wait until it expires.
    pub async fn release(&self) -> Result<(), kube::Error> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else { return Ok(()) };
        if lease.spec.and_then(|spec| spec.holder_identity).as_deref() != Some(&self.identity) {
            return Ok(());
        }
        let version = lease.metadata.resource_version.as_deref();
        cluster::patch_lease(&self.leases, &self.name, version, json!({ "holderIdentity": "" })).await.map(drop)
    }

    async fn attempt(&self, seen: &mut Option<Observed>) -> Result<bool, kube::Error> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            return cluster::create_lease(&self.leases, &self.name, self.spec(0)).await;
        };
        let spec = lease.spec.unwrap_or_default();
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty());
        let known = seen.as_ref().filter(|seen| seen.holder == holder && seen.renewed == spec.renew_time);
        let since = known.map_or_else(Instant::now, |known| known.at);
        *seen = Some(Observed { holder: holder.clone(), renewed: spec.renew_time.clone(), at: since });
        let ours = holder.as_deref() == Some(&self.identity);
        let lasts = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(LEASE_DURATION, Duration::from_secs);
        if holder.is_some() && !ours && since.elapsed() < lasts {
            return Ok(false);
        }
        let transitions = spec.lease_transitions.unwrap_or_default() + i32::from(!ours);
        let version = lease.metadata.resource_version.as_deref();
        cluster::patch_lease(&self.leases, &self.name, version, json!(self.spec(transitions))).await
    }

    fn spec(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

// === impl Leadership ===

impl Leadership {
    /// Renews the lease for as long as that goes well, and ends when another candidate may hold it.
    pub async fn lost(mut self) -> String {
        loop {
            tokio::time::sleep(RETRY_PERIOD).await;
            let began = Instant::now();
            // However the tries before went, the last one ends before the lease does.
            let left = RENEW_DEADLINE.saturating_sub(self.renewed.elapsed());
            let why = match within(REQUEST_TIMEOUT.min(left), self.renew()).await {
                Ok(true) => {
                    self.renewed = began;
                    continue;
                }
                Ok(false) => return "another process acquired the lease".to_owned(),
                Err(error) => describe(&error),
            };
            if self.renewed.elapsed() > RENEW_DEADLINE {
                return format!("the lease could not be renewed for {} s: {why}", RENEW_DEADLINE.as_secs());
            }
            tracing::warn!(error = why, "leader lease not renewed");
        }
    }

    async fn renew(&self) -> Result<bool, kube::Error> {
        let election = &self.election;
        let lease = election.leases.get(&election.name).await?;
        let spec = lease.spec.unwrap_or_default();
        if spec.holder_identity.as_deref() != Some(&election.identity) {
            return Ok(false);
        }
        let version = lease.metadata.resource_version.as_deref();
        let renewed = json!({ "renewTime": MicroTime(Timestamp::now()) });
        cluster::patch_lease(&election.leases, &election.name, version, renewed).await
    }
}

/// An attempt, and no longer than it may take: a request without an end would keep a lost lease from being noticed.
async fn within(
    limit: Duration,
    attempt: impl Future<Output = Result<bool, kube::Error>>,
) -> Result<bool, kube::Error> {
    let attempt = tokio::time::timeout(limit, attempt).await;
    attempt.unwrap_or_else(|_slow| Err(kube::Error::Service("the API server is too slow".into())))
}
