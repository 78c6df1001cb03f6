//! Surroundings for tests of plans: a world that is empty until a test puts something into it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};

use crate::child::ChildKind;
use crate::key::{Key, ObjectKind};
use crate::plan::Plan;
use crate::pod::{CONSUMED, PodStamps};
use crate::world::{
    Failure, Found, Live, LivePod, LiveWorkload, PodState, Policies, PolicyError, RolloutProgress, Settings, Site,
    World,
};

/// Everything that a world borrows.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) settings: Settings,
    pub(crate) found: BTreeMap<Key, Found>,
    pub(crate) users: BTreeSet<Key>,
    pub(crate) live: Live,
}

/// Accepts whatever does not say `bad`.
#[derive(Debug)]
struct Lenient;

impl Policies for Lenient {
    fn check(&self, engine: &str, config: &Value) -> Result<(), PolicyError> {
        if config.get("bad").is_some() { Err(PolicyError(format!("{engine} does not like it"))) } else { Ok(()) }
    }
}

impl Default for Surroundings {
    fn default() -> Self {
        let settings = Settings {
            runner_image: "registry.example/runner:1".into(),
            vmcp_image: "registry.example/vmcp:1".into(),
            registry_image: "registry.example/registry-api:1".into(),
            proxy_host: "0.0.0.0".into(),
            pull_secrets: Vec::new(),
            default_redis: None,
            openshift: false,
            site: Site::Cluster,
            unsupported: BTreeSet::new(),
            unsupported_by_vmcp: None,
        };
        Self { settings, found: BTreeMap::new(), users: BTreeSet::new(), live: Live::default() }
    }
}

impl Surroundings {
    pub(crate) fn world(&self) -> World<'_> {
        World { settings: &self.settings, found: &self.found, users: &self.users, live: &self.live, policies: &Lenient }
    }

    /// The surroundings once a plan was carried out: its workload is observed, its Services are there, and it has these pods.
    pub(crate) fn carried_out(mut self, plan: &Plan, states: &[PodState]) -> Self {
        let workload = plan.children.iter().find(|child| child.kind().has_generation()).unwrap();
        let annotation = |name: &str| workload.body()["metadata"]["annotations"][name].as_str().map(str::to_owned);
        let stamps = PodStamps::planned(&plan.children).unwrap();
        let count = i32::try_from(states.len()).unwrap();
        let progress =
            RolloutProgress { observed_generation: 1, total: count, updated: count, ..RolloutProgress::default() };
        self.live.workload = Some(LiveWorkload {
            name: workload.name().to_owned(),
            is_paused: false,
            replicas: count.max(1),
            ready: i32::try_from(states.iter().filter(|state| **state == PodState::Ready).count()).unwrap(),
            generation_stamp: stamps.generation(),
            consumed: annotation(CONSUMED),
            ours: true,
            generation: 1,
            progress,
            upstream: None,
            ended: Vec::new(),
            hanging: Vec::new(),
        });
        let pod = |(index, state): (usize, &PodState)| LivePod {
            name: format!("{}-{index}", workload.name()),
            uid: format!("uid-{index}"),
            state: state.clone(),
            stamps: stamps.clone(),
            revision: None,
            created: String::new(),
        };
        self.live.pods = states.iter().enumerate().map(pod).collect();
        let services = plan.children.iter().filter(|child| child.kind() == ChildKind::Service);
        self.live.services = services.map(|child| child.name().to_owned()).collect();
        self
    }

    /// Adds an object of ours.
    pub(crate) fn with(mut self, resource: Resource) -> Self {
        self.found.insert(Key::of(&resource), Found::Resource(Arc::new(resource)));
        self
    }

    /// Adds a Secret with one key.
    pub(crate) fn with_secret(mut self, name: &str, key: &str) -> Self {
        let key_of = Key { kind: ObjectKind::Secret, namespace: "ns".into(), name: name.into() };
        self.found.insert(key_of, Found::Secret(Arc::new([(key.to_owned(), "digest".to_owned())].into())));
        self
    }

    /// Adds a ConfigMap with one key.
    pub(crate) fn with_config_map(mut self, name: &str, key: &str) -> Self {
        let key_of = Key { kind: ObjectKind::ConfigMap, namespace: "ns".into(), name: name.into() };
        self.found.insert(key_of, Found::config_map([(key.to_owned(), "text".to_owned())].into()));
        self
    }
}

/// A pod in a crash loop, and what its program said.
pub(crate) fn crash(message: &str) -> PodState {
    PodState::Failed(Failure { reason: "CrashLoopBackOff".to_owned(), message: message.to_owned(), is_first: false })
}

/// An object in namespace `ns`.
pub(crate) fn resource(kind: KindName, name: &str, spec: &Value) -> Resource {
    let metadata = json!({ "name": name, "namespace": "ns", "uid": "u", "generation": 1 });
    Resource::from_value(kind, json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// The same object, being deleted.
pub(crate) fn deleted(kind: KindName, name: &str, spec: &Value) -> Resource {
    let metadata = json!({ "name": name, "namespace": "ns", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z" });
    Resource::from_value(kind, json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// A spec with one value changed, given by its place; null removes it.
pub(crate) fn changed(spec: &Value, place: &str, value: &Value) -> Value {
    let mut spec = spec.clone();
    let (parent, member) = place.rsplit_once('/').unwrap();
    let parent = spec.pointer_mut(parent).unwrap_or_else(|| panic!("nothing at {place}"));
    match (parent, value) {
        (Value::Array(list), value) => list[member.parse::<usize>().unwrap()] = value.clone(),
        (Value::Object(object), Value::Null) => drop(object.remove(member)),
        (Value::Object(object), value) => drop(object.insert(member.to_owned(), value.clone())),
        _ => panic!("no object at {place}"),
    }
    spec
}

/// What an API server fills in by itself, and what stands twice in a pod.
fn is_default(name: &str, value: &Value) -> bool {
    let default = match name {
        "serviceAccount" => return true,
        "terminationMessagePath" => json!("/dev/termination-log"),
        "terminationMessagePolicy" => json!("File"),
        "dnsPolicy" => json!("ClusterFirst"),
        "restartPolicy" => json!("Always"),
        "schedulerName" => json!("default-scheduler"),
        "securityContext" | "resources" => json!({}),
        "terminationGracePeriodSeconds" => json!(30),
        "progressDeadlineSeconds" => json!(600),
        "revisionHistoryLimit" => json!(10),
        "strategy" => {
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } })
        }
        "updateStrategy" => json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }),
        "podManagementPolicy" => json!("OrderedReady"),
        "persistentVolumeClaimRetentionPolicy" => json!({ "whenDeleted": "Retain", "whenScaled": "Retain" }),
        "successThreshold" | "timeoutSeconds" | "replicas" | "generation" => json!(1),
        "failureThreshold" => json!(3),
        "scheme" => json!("HTTP"),
        "defaultMode" => json!(420),
        "internalTrafficPolicy" => json!("Cluster"),
        "ipFamilies" => json!(["IPv4"]),
        "ipFamilyPolicy" => json!("SingleStack"),
        "sessionAffinity" => json!("None"),
        "imagePullPolicy" => json!("IfNotPresent"),
        _ => return false,
    };
    *value == default
}

/// An object without defaults, without our own marks, and with hashes blanked: what two operators must agree on.
pub(crate) fn bare(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, value)| {
                !is_default(name, value) && *name != crate::child::MANAGED_LABEL.0 && *name != crate::pod::CONSUMED
            });
            let bared = kept.map(|(name, value)| match name.as_str() {
                "toolhive.stacklok.dev/config-hash" | crate::canonical::CONTENT_CHECKSUM => {
                    (name.clone(), json!("<hash>"))
                }
                _ => (name.clone(), bare(value)),
            });
            // Labels and annotations that are empty without our marks are none.
            let is_none = |name: &str, value: &Value| matches!(name, "labels" | "annotations") && *value == json!({});
            Value::Object(bared.filter(|(name, value)| !is_none(name, value)).collect())
        }
        Value::Array(elements) => elements.iter().map(bare).collect(),
        other => other.clone(),
    }
}

/// Compares children with the objects that the original made of the same resource on a real API server.
pub(crate) fn assert_golden(children: &[crate::child::Child], owner: KindName) {
    let golden = include_str!("../../../../compat/objects/out/16-embedding-registry.yaml");
    let golden = golden.replace("16-embedding-registry", "ns").replace("<uid>", "u");
    let mut golden = skep_api::manifest::parse(&golden).unwrap();
    golden.retain(|object| object["metadata"]["ownerReferences"][0]["kind"] == owner.as_str());
    assert_eq!(golden.len(), children.len());
    for expected in &mut golden {
        expected.as_object_mut().unwrap().remove("status");
        let kind = expected["kind"].as_str().unwrap();
        let child = children.iter().find(|child| child.kind().as_str() == kind).unwrap_or_else(|| panic!("no {kind}"));
        assert_eq!(bare(child.body()), bare(expected), "{kind}");
    }
}
