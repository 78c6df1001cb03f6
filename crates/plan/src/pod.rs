//! What the pods of all kinds have in common, and the order in which a pod template comes about.
//!
//! ```text
//!   Template ──overrides of the user──▶ Overridden ──stamps──▶ Stamped ──▶ Deployment or StatefulSet
//! ```
//!
//! Only a [`Stamped`] template can become part of a child, and stamping is its last step: no override can displace a checksum.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
pub use skep_api::annotation::GENERATION;
use skep_api::reference::LocalNameRef;
use skep_api::resource::Resource;
use skep_api::workload::{MetadataOverrides, ResourceAmounts, Resources};

use crate::merge::{MergeError, strategic};
use crate::text::Quantity;
use crate::world::Settings;

/// The checksum of the configuration that a pod reads; a change of it rolls the pods.
pub const CHECKSUM: &str = "toolhive.stacklok.dev/runconfig-checksum";
/// The checksum of the Secrets and ConfigMaps of others that a pod reads when it starts; a change of it rolls the pods.
pub const INPUTS: &str = "toolhive.stacklok.dev/inputs-checksum";

/// On the workload itself, not its pods: digest of what the pods consume. As long as it is the same, the generation in the
/// template stays, so that an edit that no pod consumes rolls none.
pub const CONSUMED: &str = "toolhive.stacklok.dev/consumed-checksum";

/// On the workload itself: digest of the user's pod template.
pub const TEMPLATE_HASH: &str = "toolhive.stacklok.io/podtemplatespec-hash";

/// A pod template as we make it.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Value);

/// A pod template with the user's changes in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Overridden(Value);

/// A finished pod template.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamped(Value);

/// An environment variable of a container, in the order in which they are written.
#[derive(Clone, Debug, PartialEq)]
pub struct Env(Vec<Value>);

// === impl Template, Overridden, Stamped ===

impl Template {
    /// A template of labels and a pod spec.
    pub fn new(labels: &BTreeMap<String, String>, spec: Value) -> Self {
        let metadata = json!({ "labels": labels });
        Self(Value::Object([("metadata".to_owned(), metadata), ("spec".to_owned(), spec)].into_iter().collect()))
    }

    /// With the user's labels and annotations (ours win where the key is the same) and the user's template merged in.
    pub fn overridden(
        self,
        metadata: Option<&MetadataOverrides>,
        patch: Option<&Value>,
    ) -> Result<Overridden, MergeError> {
        let Self(mut template) = self;
        if let Some(metadata) = metadata {
            add_missing(&mut template, "labels", &metadata.labels);
            add_missing(&mut template, "annotations", &metadata.annotations);
        }
        match patch {
            Some(patch) => strategic(&template, patch).map(Overridden),
            None => Ok(Overridden(template)),
        }
    }
}

impl Overridden {
    /// With the operator's own labels and annotations, which displace whatever stands under their keys.
    pub fn stamp(self, labels: &BTreeMap<String, String>, stamps: &[(&str, String)]) -> Stamped {
        let Self(mut template) = self;
        for (name, value) in labels {
            set(&mut template, "labels", name, value);
        }
        for (name, value) in stamps {
            set(&mut template, "annotations", name, value);
        }
        Stamped(template)
    }
}

impl Stamped {
    /// The template, for the spec of a workload.
    pub fn into_value(self) -> Value {
        self.0
    }
}

// === impl Env ===

impl Env {
    /// No variables yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// A plain value. A name that is there already keeps its place and its value: what comes first wins.
    pub fn value(&mut self, name: &str, value: &str) -> &mut Self {
        self.push(name, json!({ "name": name, "value": value }))
    }

    /// A key of a Secret.
    pub fn secret(&mut self, name: &str, secret: &str, key: &str) -> &mut Self {
        self.push(name, json!({ "name": name, "valueFrom": { "secretKeyRef": { "name": secret, "key": key } } }))
    }

    /// A field of the pod itself.
    pub fn field(&mut self, name: &str, path: &str) -> &mut Self {
        // The API server would fill in the version; it is sent, so that what we own is what is there.
        self.push(name, json!({ "name": name, "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": path } } }))
    }

    /// The variables that every container of ours gets, last.
    pub fn required(&mut self) -> &mut Self {
        let secrets = self.0.iter().filter_map(|one| one.get("name").and_then(Value::as_str));
        let reads_secrets = secrets.into_iter().any(|name| name.starts_with("TOOLHIVE_SECRET_"));
        self.value("XDG_CONFIG_HOME", "/tmp").value("HOME", "/tmp");
        self.value("TOOLHIVE_RUNTIME", "kubernetes").value("UNSTRUCTURED_LOGS", "false");
        if reads_secrets {
            self.value("TOOLHIVE_SECRETS_PROVIDER", "environment");
        }
        self
    }

    /// The list, for a container.
    pub fn list(self) -> Value {
        Value::Array(self.0)
    }

    fn push(&mut self, name: &str, entry: Value) -> &mut Self {
        if !self.0.iter().any(|known| known.get("name").is_some_and(|known| known == name)) {
            self.0.push(entry);
        }
        self
    }
}

impl Default for Env {
    fn default() -> Self {
        Self::new()
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

/// Compute resources as Kubernetes wants them; what cannot be read is said with its field.
pub fn resources(spec: Option<&Resources>) -> Result<Value, String> {
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

fn amounts(part: &str, amounts: &ResourceAmounts) -> Result<Map<String, Value>, String> {
    let mut read = Map::new();
    for (name, text) in [("cpu", amounts.cpu.as_deref()), ("memory", amounts.memory.as_deref())] {
        let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
        text.parse::<Quantity>().map_err(|error| format!("spec.resources.{part}.{name}: {error}"))?;
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
