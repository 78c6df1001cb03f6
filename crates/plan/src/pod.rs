//! What the pods of all kinds have in common, and the order in which a pod template comes about.
//!
//! ```text
//!   Template ──overrides of the user──▶ Overridden ──stamps──▶ Stamped ──▶ Deployment or StatefulSet
//! ```
//!
//! Only a [`Stamped`] template can become part of a child, and stamping is its last step: no override can displace a checksum, nor a
//! variable that the operator sets.

mod env;
mod files;
mod reserved;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
pub use skep_api::annotation::GENERATION;
use skep_api::reference::LocalNameRef;
use skep_api::resource::Resource;
use skep_api::workload::{MetadataOverrides, ResourceAmounts, Resources};

pub use self::env::{Env, EnvSource, KeySelector, Variable};
pub(crate) use self::env::{OF_PODS, check_count as check_env_count};
pub use self::files::{FileSource, Files, Mount};
use self::reserved::Reserved;
use crate::child::Child;
use crate::error::PlanError;
use crate::merge::{MergeError, strategic};
use crate::overrides::DroppedOverrides;
use crate::text::Quantity;
use crate::world::Settings;

/// The checksum of the configuration that a pod reads; a change of it rolls the pods.
pub const CHECKSUM: &str = "toolhive.stacklok.dev/runconfig-checksum";
/// The checksum of the Secrets and ConfigMaps of others that a pod reads when it starts; a change of it rolls the pods.
pub const INPUTS: &str = "toolhive.stacklok.dev/inputs-checksum";

/// The restart that a pod was made for or after, as RFC 3339: on an MCPServer it asks for one, on a pod template it rolls the pods.
pub const RESTARTED_AT: &str = "mcpserver.toolhive.stacklok.dev/restarted-at";

/// On the workload itself, not its pods: digest of what the pods consume. As long as it is the same, the generation in the
/// template stays, so that an edit that no pod consumes rolls none.
pub const CONSUMED: &str = "toolhive.stacklok.dev/consumed-checksum";

/// The metadata of a user's pod template.
pub(crate) const POD_TEMPLATE_METADATA: &str = "spec.podTemplateSpec.metadata";

/// On the workload itself: digest of the user's pod template.
pub const TEMPLATE_HASH: &str = "toolhive.stacklok.io/podtemplatespec-hash";

/// The hash of a registry's spec. A change of it rolls the pods: the registry server reads its configuration when it starts.
pub const CONFIG_HASH: &str = "toolhive.stacklok.dev/config-hash";

/// The `app.kubernetes.io/component` of the pods of every registry, by which they are selected.
pub const REGISTRY_COMPONENT: &str = "registry-api";

/// The stamps on a pod template, which identify the pods of one plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodStamps {
    checksum: Option<String>,
    generation: Option<String>,
    inputs: Option<String>,
    restarted_at: Option<String>,
}

/// A pod template as we make it.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    value: Value,
    reserved: Option<Reserved>,
}

/// A pod template with the user's changes in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Overridden {
    value: Value,
    reserved: Option<Reserved>,
    /// The user's labels and annotations, and the fields that hold them.
    wanted: Vec<(&'static str, MetadataOverrides)>,
}

/// A finished pod template.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamped(Value);

// === impl PodStamps ===

impl PodStamps {
    /// The stamps among annotations, given by name.
    pub fn of<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Self {
        let stamp = |name: &str| annotation(name).map(str::to_owned);
        // A registry has no RunConfig: its pods carry the hash of its spec instead.
        let checksum = stamp(CHECKSUM).or_else(|| stamp(CONFIG_HASH));
        Self { checksum, generation: stamp(GENERATION), inputs: stamp(INPUTS), restarted_at: stamp(RESTARTED_AT) }
    }

    /// The stamps that the workload among these children puts on its pods.
    pub(crate) fn planned(children: &[Child]) -> Option<Self> {
        let workload = children.iter().find(|child| child.kind().has_generation())?;
        let annotations = workload.body().pointer("/spec/template/metadata/annotations");
        Some(Self::of(|name| annotations.and_then(|all| all.get(name)).and_then(Value::as_str)))
    }

    /// Whether a pod was made for this restart.
    pub(crate) fn is_restarted_at(&self, restart: &str) -> bool {
        self.restarted_at.as_deref() == Some(restart)
    }

    /// The generation, if there is one.
    pub(crate) fn generation(&self) -> Option<i64> {
        self.generation.as_deref()?.parse().ok()
    }
}

// === impl Template, Overridden, Stamped ===

impl Template {
    /// A template of labels and a pod spec.
    pub fn new(labels: &BTreeMap<String, String>, spec: Value) -> Self {
        let metadata = json!({ "labels": labels });
        let value = [("metadata".to_owned(), metadata), ("spec".to_owned(), spec)];
        Self { value: Value::Object(value.into_iter().collect()), reserved: None }
    }

    /// One whose variables of `container`, mounts there and volumes no pod template of a user can displace.
    #[must_use]
    pub fn reserving(mut self, container: &str, env: &Env) -> Self {
        self.reserved = self.value.get("spec").and_then(|pod| Reserved::of(pod, container, env));
        self
    }

    /// With the user's labels and annotations (ours win where the key is the same) and the user's template merged in. `field` is
    /// where the labels and annotations are set.
    pub fn overridden(
        self,
        field: &'static str,
        metadata: Option<&MetadataOverrides>,
        patch: Option<&Value>,
    ) -> Result<Overridden, MergeError> {
        let Self { mut value, reserved } = self;
        let mut wanted = Vec::new();
        if let Some(metadata) = metadata {
            add_missing(&mut value, "labels", &metadata.labels);
            add_missing(&mut value, "annotations", &metadata.annotations);
            wanted.push((field, metadata.clone()));
        }
        if let Some(patch) = patch {
            value = strategic(&value, patch)?;
            let (labels, annotations) = (texts(patch, "labels"), texts(patch, "annotations"));
            wanted.push((POD_TEMPLATE_METADATA, MetadataOverrides { annotations, labels }));
        }
        Ok(Overridden { value, reserved, wanted })
    }
}

impl Overridden {
    /// With the operator's own labels and annotations, which displace whatever stands under their keys, and its own variables,
    /// mounts and volumes. What of the user's had to give way is added to `dropped`.
    pub(crate) fn stamp(
        self,
        labels: &BTreeMap<String, String>,
        stamps: &[(&str, String)],
        dropped: &mut DroppedOverrides,
    ) -> Stamped {
        let Self { mut value, reserved, wanted } = self;
        for (name, label) in labels {
            set(&mut value, "labels", name, label);
        }
        for (name, annotation) in stamps {
            set(&mut value, "annotations", name, annotation);
        }
        if let Some(reserved) = reserved {
            reserved.restore(&mut value, dropped);
        }
        let ours = json!({ "labels": labels, "annotations": stamps.iter().cloned().collect::<BTreeMap<_, _>>() });
        for (field, metadata) in &wanted {
            dropped.compare(field, Some(metadata), Some(&ours));
        }
        Stamped(value)
    }
}

impl Stamped {
    /// The template, for the spec of a workload.
    pub fn into_value(self) -> Value {
        self.0
    }
}

/// The labels by which the pods of a workload are selected; `kind` in lower case.
pub fn workload_labels(me: &Resource) -> BTreeMap<String, String> {
    let kind = me.kind().as_str().to_lowercase();
    [
        ("app", kind.as_str()),
        ("app.kubernetes.io/name", kind.as_str()),
        ("app.kubernetes.io/instance", me.name()),
        ("toolhive", "true"),
        ("toolhive-name", me.name()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// The security context of a pod of ours.
pub fn pod_security(settings: &Settings) -> Value {
    let mut context = json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
    if !settings.openshift {
        insert(&mut context, &[("runAsUser", json!(1000)), ("runAsGroup", json!(1000)), ("fsGroup", json!(1000))]);
    }
    context
}

/// The security context of a container of ours.
pub fn container_security(settings: &Settings) -> Value {
    let mut context = json!({
        "privileged": false,
        "runAsNonRoot": true,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "seccompProfile": { "type": "RuntimeDefault" },
        "capabilities": { "drop": ["ALL"] },
    });
    if !settings.openshift {
        insert(&mut context, &[("runAsUser", json!(1000)), ("runAsGroup", json!(1000))]);
    }
    context
}

/// An HTTP probe: initial delay, period, timeout and failures, zero where the API server's default is meant.
pub fn probe(path: &str, port: Value, delay: i32, period: i32, timeout: i32, failures: i32) -> Value {
    let get: Map<String, Value> = [("path".to_owned(), json!(path)), ("port".to_owned(), port)].into_iter().collect();
    let mut probe = json!({ "httpGet": get });
    let numbers = [
        ("initialDelaySeconds", delay),
        ("periodSeconds", period),
        ("timeoutSeconds", timeout),
        ("failureThreshold", failures),
    ];
    for (name, number) in numbers.into_iter().filter(|(_, number)| *number > 0) {
        insert(&mut probe, &[(name, json!(number))]);
    }
    probe
}

/// Compute resources as Kubernetes wants them; fails with the field of an invalid quantity.
pub fn resources(spec: Option<&Resources>) -> Result<Value, PlanError> {
    let mut all = Map::new();
    let Some(spec) = spec else { return Ok(Value::Object(all)) };
    for (part, amounts) in [("limits", spec.limits.as_ref()), ("requests", spec.requests.as_ref())] {
        let amounts = amounts.map_or_else(|| Ok(Map::new()), |amounts| self::amounts(part, amounts))?;
        if !amounts.is_empty() {
            all.insert(part.to_owned(), Value::Object(amounts));
        }
    }
    Ok(Value::Object(all))
}

/// The Secrets with which images are pulled: those of the resource in their order, then those of the operator.
pub fn pull_secrets(own: &[LocalNameRef], settings: &Settings) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let own = own.iter().map(|secret| secret.name.as_str());
    let all = own.chain(settings.pull_secrets.iter().map(String::as_str));
    all.filter(|name| !name.is_empty() && seen.insert((*name).to_owned())).map(|name| json!({ "name": name })).collect()
}

fn amounts(part: &str, amounts: &ResourceAmounts) -> Result<Map<String, Value>, PlanError> {
    let mut read = Map::new();
    for (name, text) in [("cpu", amounts.cpu.as_deref()), ("memory", amounts.memory.as_deref())] {
        let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
        let field = || format!("spec.resources.{part}.{name}");
        text.parse::<Quantity>().map_err(|error| PlanError::field(field(), error))?;
        read.insert(name.to_owned(), json!(text));
    }
    Ok(read)
}

fn add_missing(template: &mut Value, part: &str, entries: &BTreeMap<String, String>) {
    for (name, value) in entries {
        if template.pointer(&format!("/metadata/{part}")).and_then(|known| known.get(name)).is_none() {
            set(template, part, name, value);
        }
    }
}

/// Labels or annotations in the metadata of a user's template.
pub(crate) fn texts(template: &Value, part: &str) -> BTreeMap<String, String> {
    let entries = template.get("metadata").and_then(|metadata| metadata.get(part)).and_then(Value::as_object);
    entries.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

fn set(template: &mut Value, part: &str, name: &str, value: &str) {
    let Some(template) = template.as_object_mut() else { return };
    let metadata = template.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let Some(metadata) = metadata.as_object_mut() else { return };
    let entries = metadata.entry(part).or_insert_with(|| json!({}));
    if !entries.is_object() {
        *entries = json!({});
    }
    if let Some(entries) = entries.as_object_mut() {
        entries.insert(name.to_owned(), json!(value));
    }
}

fn insert(object: &mut Value, entries: &[(&str, Value)]) {
    if let Some(object) = object.as_object_mut() {
        for (name, value) in entries {
            object.insert((*name).to_owned(), value.clone());
        }
    }
}
