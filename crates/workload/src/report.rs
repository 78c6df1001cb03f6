//! What a proxy reports of its connection to the server behind it: an annotation of the server's StatefulSet, outside the template of its
//! pods, so that nothing restarts because of it. The operator watches the StatefulSet and shows it in the status.
//!
//! The annotation is there only while something is wrong, so a server that is well costs no write at all.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use skep_api::annotation::UPSTREAM;

use crate::cluster::Cluster;

/// The field manager of the annotation.
const MANAGER: &str = "skep-proxy";

impl Cluster {
    /// Reports what is wrong with the server, as seen by the proxy in `pod`, or that nothing is. Sends nothing that is there already. A
    /// server that does not exist has nothing to report on.
    pub async fn report(&self, pod: &str, problem: Option<&str>) -> Result<(), kube::Error> {
        let sets: Api<DynamicObject> = self.objects("apps", "StatefulSet");
        let name = &self.server().name;
        let Some(set) = sets.get_metadata_opt(name).await? else { return Ok(()) };
        let noted = set.metadata.annotations.as_ref().and_then(|all| all.get(UPSTREAM));
        let wanted = problem.map(|message| json!({ "message": message, "pod": pod }).to_string());
        // What another proxy reported is that one's to take back; the operator ignores reports of pods that are gone.
        let is_of_another = problem.is_none() && noted.is_some_and(|noted| reporter(noted).is_none_or(|of| of != pod));
        if noted == wanted.as_ref() || is_of_another {
            return Ok(());
        }
        let change = json!({ "metadata": { "annotations": { UPSTREAM: wanted.map_or(Value::Null, Value::String) } } });
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match sets.patch_metadata(name, &parameters, &Patch::Merge(change)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            patched => patched.map(drop),
        }
    }
}

/// The pod whose proxy made a report.
fn reporter(report: &str) -> Option<String> {
    let report: Value = serde_json::from_str(report).ok()?;
    report.get("pod").and_then(Value::as_str).map(str::to_owned)
}
