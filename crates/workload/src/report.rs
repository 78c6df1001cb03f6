//! What a proxy reports of its connection to the server behind it: an annotation of the server's StatefulSet, outside the template of its
//! pods, so that nothing restarts because of it. The operator watches the StatefulSet and shows it in the status.
//!
//! The annotation is there only while the server cannot be used, so a healthy server costs no write at all.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
pub use skep_api::annotation::UpstreamState;
use skep_api::annotation::{UPSTREAM, UpstreamReport};

use crate::cluster::Cluster;

/// The field manager of the annotation.
const MANAGER: &str = "skep-proxy";

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// The annotation says it.
    Written,
    /// There is no StatefulSet to annotate yet.
    NoStatefulSet,
}

impl Cluster {
    /// Reports why the proxy in `pod` cannot use the server, or that it can. Sends nothing that is there already.
    pub async fn report(&self, pod: &str, problem: Option<(UpstreamState, &str)>) -> Result<Reported, kube::Error> {
        let sets: Api<DynamicObject> = self.objects("apps", "StatefulSet");
        let name = &self.server().name;
        let Some(set) = sets.get_metadata_opt(name).await? else { return Ok(Reported::NoStatefulSet) };
        let noted = set.metadata.annotations.as_ref().and_then(|all| all.get(UPSTREAM));
        let report = |(state, message): (UpstreamState, &str)| UpstreamReport {
            pod: pod.to_owned(),
            state,
            message: message.to_owned(),
        };
        let wanted = problem.map(|problem| json!(report(problem)).to_string());
        // What another proxy reported is that one's to take back; the operator ignores reports of pods that are gone.
        let is_of_another = problem.is_none() && noted.is_some_and(|noted| reporter(noted).is_none_or(|of| of != pod));
        if noted == wanted.as_ref() || is_of_another {
            return Ok(Reported::Written);
        }
        let change = json!({ "metadata": { "annotations": { UPSTREAM: wanted.map_or(Value::Null, Value::String) } } });
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match sets.patch_metadata(name, &parameters, &Patch::Merge(change)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Reported::NoStatefulSet),
            patched => patched.map(|_| Reported::Written),
        }
    }
}

/// The pod whose proxy made a report.
fn reporter(report: &str) -> Option<String> {
    serde_json::from_str::<UpstreamReport>(report).ok().map(|report| report.pod)
}
