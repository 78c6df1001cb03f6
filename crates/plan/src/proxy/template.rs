//! The pod template of a proxy.

use serde_json::json;

use super::{Backend, CONTAINER, ProxyContext, ProxyPlan};
use crate::canonical;
use crate::error::PlanError;
use crate::inputs::digest_of_inputs;
use crate::overrides::{DroppedOverrides, PROXY_PODS};
use crate::pod::{
    self, CHECKSUM, GENERATION, INPUTS, Stamped, Template, container_security, pod_security, probe, workload_labels,
};

/// The image argument of a proxy that runs no server.
const NO_IMAGE: &str = "placeholder-for-remote-proxy";

/// Renders the pod template: ours, with the user's changes, and our stamps last.
pub(super) fn template(
    context: &ProxyContext<'_>,
    plan: &ProxyPlan,
    checksum: &str,
    dropped: &mut DroppedOverrides,
) -> Result<Stamped, PlanError> {
    let ProxyContext { me, kind, spec, world, .. } = context;
    let (ProxyPlan { env, files, pod: own, .. }, settings) = (plan, world.settings);
    dropped.extend(env.dropped());
    let container = json!({
        "name": CONTAINER,
        "image": settings.runner_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["skep", "proxy"],
        "args": arguments(plan),
        "ports": [{ "name": "http", "containerPort": spec.proxy_port, "protocol": "TCP" }],
        "env": env.list(),
        "resources": pod::resources(spec.resources)?,
        "startupProbe": probe("/health", json!("http"), 0, 5, 3, 18),
        "livenessProbe": probe("/health", json!("http"), 30, 10, 5, 3),
        "readinessProbe": probe("/health", json!("http"), kind.readiness_delay, 5, 3, 3),
        "securityContext": container_security(settings),
        "volumeMounts": files.mount_list(),
    });
    let mut pod = json!({
        "serviceAccountName": own.account,
        "securityContext": pod_security(settings),
        "containers": [container],
        "volumes": files.volume_list(),
    });
    let deployment = spec.deployment_overrides();
    if let Some(pod) = pod.as_object_mut() {
        pod.extend(kind.grace_period.map(|seconds| ("terminationGracePeriodSeconds".to_owned(), json!(seconds))));
        let pull = context.pull_secrets();
        pod.extend((!pull.is_empty()).then(|| ("imagePullSecrets".to_owned(), json!(pull))));
    }
    let labels = workload_labels(me);
    let metadata = deployment.and_then(|deployment| deployment.pod_template_metadata_overrides.as_ref());
    let overridden = Template::new(&labels, pod)
        .reserving(CONTAINER, env)
        .overridden(PROXY_PODS, metadata, own.template.as_ref())
        .map_err(|error| PlanError::field("spec.podTemplateSpec", error))?;
    let mut stamps = vec![(CHECKSUM, checksum.to_owned())];
    stamps.extend(kind.has_generation.then(|| (GENERATION, plan.run_config.mcpserver_generation.to_string())));
    stamps.extend(digest_of_inputs(me, world).map(|digest| (INPUTS, digest)));
    stamps.extend(own.stamps.iter().cloned());
    Ok(overridden.stamp(&labels, &stamps, dropped))
}

fn arguments(plan: &ProxyPlan) -> Vec<String> {
    match &plan.backend {
        Backend::Remote => ["run", "--foreground=true", NO_IMAGE].map(str::to_owned).to_vec(),
        Backend::Server(server) => {
            let patch = format!("--k8s-pod-patch={}", canonical::to_string(&server.pod));
            vec!["run".to_owned(), patch, plan.run_config.image.clone()]
        }
    }
}
