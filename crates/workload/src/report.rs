//! A proxy's report about its upstream: an annotation of the server's StatefulSet, outside the pod template, so that no
//! pod restarts because of it. While there is no StatefulSet, for example because admission denied it, it is an
//! annotation of the proxy's own Service. The operator watches both and shows it in the status.
//!
//! The annotation exists only while the server cannot be used, so a healthy server costs no write at all. It holds one
//! report: several proxies with the same problem do not overwrite each other's, and the next one reports when the first
//! has recovered or is gone.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
pub use skep_api::annotation::UpstreamState;
use skep_api::annotation::{UPSTREAM, UpstreamReport, proxy_service};

use crate::cluster::Cluster;

/// The field manager of the annotation.
const MANAGER: &str = "skep-proxy";
/// The variable with a pod's name, if its token does not have it.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Why a proxy cannot use its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The state of the server.
    pub state: UpstreamState,
    /// Whether it ever responded to this proxy.
    pub answered: bool,
    /// The reason, for people.
    pub message: String,
}

/// The outcome of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// The annotation was written or removed.
    Written,
    /// The annotation is up to date. Nothing was sent.
    Unchanged,
    /// The annotation holds the report of another running proxy.
    ByAnother,
    /// There is no object to annotate yet.
    NoObject,
}

impl Cluster {
    /// Reports why the proxy in `pod` cannot use the server, or that it can. Sends nothing that is already there.
    pub async fn report(&self, pod: &str, problem: Option<&Problem>) -> Result<Reported, kube::Error> {
        let (set, service) = (&self.server().name, proxy_service(&self.server().name));
        let services: Api<DynamicObject> = self.objects("", "Service");
        let on_set = self.report_on(&self.objects("apps", "StatefulSet"), set, pod, problem).await?;
        match (on_set, problem) {
            (None, Some(_)) => {
                Ok(self.report_on(&services, &service, pod, problem).await?.unwrap_or(Reported::NoObject))
            }
            (on_set, _) => {
                // At most one of them carries the report.
                let on_service = self.report_on(&services, &service, pod, None).await?;
                Ok(on_set.or(on_service).unwrap_or(Reported::NoObject))
            }
        }
    }

    /// Reports on one object; `None` if it does not exist.
    async fn report_on(
        &self,
        objects: &Api<DynamicObject>,
        name: &str,
        pod: &str,
        problem: Option<&Problem>,
    ) -> Result<Option<Reported>, kube::Error> {
        let Some(found) = objects.get_metadata_opt(name).await? else { return Ok(None) };
        let noted = found.metadata.annotations.as_ref().and_then(|all| all.get(UPSTREAM));
        let other = noted.and_then(|noted| reporter(noted)).filter(|other| other != pod);
        if let Some(other) = &other
            && (problem.is_none() || self.has_pod(other).await?)
        {
            return Ok(Some(if problem.is_none() { Reported::Unchanged } else { Reported::ByAnother }));
        }
        let wanted = problem.map(|problem| json!(problem.by(pod)).to_string());
        if noted == wanted.as_ref() {
            return Ok(Some(Reported::Unchanged));
        }
        let annotations = json!({ UPSTREAM: wanted.map_or(Value::Null, Value::String) });
        // Two proxies that report at once: the second one sees what the first one wrote.
        let change =
            json!({ "metadata": { "annotations": annotations, "resourceVersion": found.metadata.resource_version } });
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match objects.patch_metadata(name, &parameters, &Patch::Merge(change)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            patched => patched.map(|_| Some(Reported::Written)),
        }
    }

    /// Whether a pod of that name runs, or will.
    async fn has_pod(&self, name: &str) -> Result<bool, kube::Error> {
        let pods: Api<DynamicObject> = self.objects("", "Pod");
        let Some(pod) = pods.get_opt(name).await? else { return Ok(false) };
        // An evicted pod remains as an object, and the operator does not count it either.
        let phase = pod.data.pointer("/status/phase").and_then(Value::as_str);
        Ok(pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Failed" | "Succeeded")))
    }
}

// === impl Problem ===

impl Problem {
    fn by(&self, pod: &str) -> UpstreamReport {
        let Self { state, answered, message } = self.clone();
        UpstreamReport { pod: pod.to_owned(), state, answered, message }
    }
}

/// The pod whose proxy made a report.
fn reporter(report: &str) -> Option<String> {
    serde_json::from_str::<UpstreamReport>(report).ok().map(|report| report.pod)
}

/// The name of the pod that this process runs in, as the API server knows it: its token is bound to the pod. Any tool
/// may have set a variable, and the pod template may set the host name.
pub fn pod_name(account: &Path) -> Option<String> {
    let token = std::fs::read_to_string(account.join("token")).unwrap_or_default();
    let host = || std::fs::read_to_string(HOST_NAME).ok().map(|name| name.trim().to_owned());
    pod_of_token(&token).or_else(host).filter(|name| !name.is_empty())
}

fn pod_of_token(token: &str) -> Option<String> {
    let claims = URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    claims.pointer("/kubernetes.io/pod/name")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_known_by_the_token_that_is_bound_to_it() {
        let account = tempfile::tempdir().unwrap();
        let written = |claims: &Value| {
            let token = format!("head.{}.signature\n", URL_SAFE_NO_PAD.encode(claims.to_string()));
            std::fs::write(account.path().join("token"), token).unwrap();
            pod_name(account.path())
        };
        let bound =
            json!({ "sub": "a", "kubernetes.io": { "namespace": "n", "pod": { "name": "s-abc", "uid": "u" } } });
        assert_eq!(written(&bound).as_deref(), Some("s-abc"));
        let host = std::fs::read_to_string(HOST_NAME).unwrap().trim().to_owned();
        for without in [json!({ "sub": "a" }), json!({ "kubernetes.io": { "pod": { "name": 7 } } })] {
            assert_eq!(written(&without).as_deref(), Some(host.as_str()));
        }
        for broken in ["", "a.b", "a.!.c", "a.bm90IGpzb24.c"] {
            std::fs::write(account.path().join("token"), broken).unwrap();
            assert_eq!(pod_name(account.path()).as_deref(), Some(host.as_str()), "{broken}");
        }
    }
}
