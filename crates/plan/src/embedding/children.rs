//! The objects of an embedding server, finished.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use skep_api::kinds::{EmbeddingServerSpec, ModelCache};
use skep_api::resource::Resource;
use skep_api::workload::{EnvVar, MetadataOverrides};

use crate::canonical;
use crate::child::{Child, ChildKind};
use crate::error::PlanError;
use crate::overrides::{DroppedOverrides, allowed_annotations};
use crate::pod::{CONSUMED, Env, Template, probe, pull_secrets, resources};
use crate::text::Quantity;
use crate::world::Settings;

/// The container that serves the model; a user's pod template reaches it by this name.
const CONTAINER: &str = "embedding";
/// The claim that keeps the model, and the volume made from it.
const CACHE: &str = "model-cache";
/// Where that volume is mounted.
const CACHE_PATH: &str = "/data";

/// Where labels and annotations of the pods are overridden.
const POD_METADATA: &str = "spec.resourceOverrides.statefulSet.podTemplateMetadataOverrides";
/// Where those of the Service are.
const SERVICE_METADATA: &str = "spec.resourceOverrides.service";
/// Where those of the StatefulSet are.
const SET_METADATA: &str = "spec.resourceOverrides.statefulSet";

/// Builds everything; fails only with what is wrong in the spec.
pub(super) fn build(
    me: &Resource,
    spec: &EmbeddingServerSpec,
    template: Option<&Value>,
    settings: &Settings,
    dropped: &mut DroppedOverrides,
) -> Result<Vec<Child>, PlanError> {
    if let Some(cache) = cache(spec) {
        cache.size.parse::<Quantity>().map_err(|error| PlanError::field("spec.modelCache.size", error))?;
    }
    Ok(vec![service(me, spec, dropped), stateful_set(me, spec, template, settings, dropped)?])
}

/// Digest of the claims for volumes: what a StatefulSet cannot change once it is there.
pub(super) fn digest_of_claims(me: &Resource, spec: &EmbeddingServerSpec) -> String {
    canonical::value_hash(&Value::Array(claims(me, spec)))
}

fn service(me: &Resource, spec: &EmbeddingServerSpec, dropped: &mut DroppedOverrides) -> Child {
    let body = json!({ "spec": {
        "type": "ClusterIP",
        "selector": labels(me),
        "ports": [{ "name": "http", "port": spec.port, "targetPort": spec.port, "protocol": "TCP" }],
    }});
    let overrides = spec.resource_overrides.as_ref().and_then(|overrides| overrides.service.as_ref());
    dropped.add_reserved(SERVICE_METADATA, overrides);
    let (labels, annotations) = metadata(me, overrides);
    Child::new(me, ChildKind::Service, me.name(), Value::Object(labels), Value::Object(annotations), body)
}

fn stateful_set(
    me: &Resource,
    spec: &EmbeddingServerSpec,
    template: Option<&Value>,
    settings: &Settings,
    dropped: &mut DroppedOverrides,
) -> Result<Child, PlanError> {
    let overrides = spec.resource_overrides.as_ref().and_then(|overrides| overrides.stateful_set.as_ref());
    let pod_metadata = overrides.and_then(|overrides| overrides.pod_template_metadata_overrides.as_ref());
    // A new token rolls no pod: it is read while the model is fetched, and a running server has no use for it.
    let pods = Template::new(&labels(me), pod(spec, settings)?)
        .overridden(POD_METADATA, pod_metadata, template)
        .map_err(PlanError::template)?
        .stamp(&labels(me), &[], dropped);
    let mut body = json!({
        "serviceName": me.name(),
        "replicas": spec.replicas,
        "selector": { "matchLabels": labels(me) },
        "template": pods.into_value(),
    });
    let claims = claims(me, spec);
    if let (false, Some(body)) = (claims.is_empty(), body.as_object_mut()) {
        body.insert("volumeClaimTemplates".to_owned(), Value::Array(claims));
    }
    dropped.add_reserved(SET_METADATA, overrides.map(|overrides| &overrides.metadata));
    let (labels, mut annotations) = metadata(me, overrides.map(|overrides| &overrides.metadata));
    annotations.insert(CONSUMED.to_owned(), json!(digest_of_claims(me, spec)));
    let (labels, annotations) = (Value::Object(labels), Value::Object(annotations));
    let child = Child::new(me, ChildKind::StatefulSet, me.name(), labels, annotations, json!({ "spec": body }));
    dropped.compare(SET_METADATA, overrides.map(|overrides| &overrides.metadata), child.metadata());
    Ok(child)
}

fn pod(spec: &EmbeddingServerSpec, settings: &Settings) -> Result<Value, PlanError> {
    let mut arguments = vec!["--model-id".to_owned(), spec.model.clone(), "--port".to_owned(), spec.port.to_string()];
    arguments.extend(spec.args.iter().cloned());
    let mut container = json!({
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": arguments,
        "env": environment(spec).list(),
        "ports": [{ "name": "http", "containerPort": spec.port, "protocol": "TCP" }],
        "livenessProbe": probe("/health", json!(spec.port), 60, 30, 10, 3),
        "readinessProbe": probe("/health", json!(spec.port), 30, 10, 5, 3),
        "resources": resources(spec.resources.as_ref())?,
    });
    if let (Some(_), Some(container)) = (cache(spec), container.as_object_mut()) {
        container.insert("volumeMounts".to_owned(), json!([{ "name": CACHE, "mountPath": CACHE_PATH }]));
    }
    let mut pod = json!({ "containers": [container] });
    let pull = pull_secrets(&[], settings);
    if let (false, Some(pod)) = (pull.is_empty(), pod.as_object_mut()) {
        pod.insert("imagePullSecrets".to_owned(), Value::Array(pull));
    }
    Ok(pod)
}

/// What the user sets wins over what we set: a name can be in the list only once.
fn environment(spec: &EmbeddingServerSpec) -> Env {
    let users = |name: &str| spec.env.iter().any(|variable| variable.name == name);
    let mut env = Env::new();
    if !users("MODEL_ID") {
        env.value("MODEL_ID", &spec.model);
    }
    if let (Some(secret), false) = (&spec.hf_token_secret_ref, users("HF_TOKEN")) {
        env.secret("HF_TOKEN", &secret.name, &secret.key);
    }
    let mut variables: Vec<&EnvVar> = spec.env.iter().collect();
    // The order of variables means something only where one is made from another. Where it means nothing it must change
    // nothing, or a list that came in another order would roll the pods.
    if !variables.iter().any(|variable| variable.value.contains("$(")) {
        variables.sort_by(|left, right| left.name.cmp(&right.name));
    }
    for variable in variables {
        env.value(&variable.name, &variable.value);
    }
    if cache(spec).is_some() {
        env.value("HF_HOME", CACHE_PATH);
    }
    env
}

fn cache(spec: &EmbeddingServerSpec) -> Option<&ModelCache> {
    spec.model_cache.as_ref().filter(|cache| cache.enabled)
}

fn claims(me: &Resource, spec: &EmbeddingServerSpec) -> Vec<Value> {
    let Some(cache) = cache(spec) else { return Vec::new() };
    let overrides = spec.resource_overrides.as_ref().and_then(|overrides| overrides.persistent_volume_claim.as_ref());
    let (labels, annotations) = metadata(me, overrides);
    let mut metadata = json!({ "name": CACHE, "labels": labels });
    if let (false, Some(metadata)) = (annotations.is_empty(), metadata.as_object_mut()) {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
    let mut claim = json!({
        "accessModes": [cache.access_mode],
        "resources": { "requests": { "storage": cache.size } },
    });
    if let (Some(class), Some(claim)) = (&cache.storage_class_name, claim.as_object_mut()) {
        claim.insert("storageClassName".to_owned(), json!(class));
    }
    vec![json!({ "metadata": metadata, "spec": claim })]
}

/// The labels by which the pods are selected. A selector cannot be changed, so nothing of the user's may get in here.
fn labels(me: &Resource) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "embeddingserver"),
        ("app.kubernetes.io/instance", me.name()),
        ("app.kubernetes.io/component", "embedding-server"),
        ("app.kubernetes.io/managed-by", "toolhive-operator"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Labels and annotations of an object. For this kind, the user's win.
fn metadata(me: &Resource, overrides: Option<&MetadataOverrides>) -> (Map<String, Value>, Map<String, Value>) {
    let values = |entries: &BTreeMap<String, String>| -> Map<String, Value> {
        entries.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
    };
    let mut all = labels(me);
    let Some(overrides) = overrides else { return (values(&all), Map::new()) };
    all.extend(overrides.labels.iter().map(|(name, value)| (name.clone(), value.clone())));
    let annotations = allowed_annotations(overrides).map(|(name, value)| (name.clone(), json!(value))).collect();
    (values(&all), annotations)
}
