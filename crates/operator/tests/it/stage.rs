//! The steps of a scenario, carried out in a namespace of its own. What a step means is said at [`Step`], how an expectation is
//! compared at [`mismatch`].

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use skep_api::resource::KindName;
use skep_operator::write::api_resource;
use skep_testkit::{Seen, eventually};

use crate::running::{PATIENCE, at_rest};

/// The field manager of the manifests.
const USER: &str = "user";

/// What is done, and what must come of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// One step. Objects are written short: `kind`, `name`, then whatever else they consist of.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Step {
    /// The object is applied as a whole: what an earlier apply had and this one does not is gone.
    Apply(Object),
    /// The object is changed by a merge patch.
    Merge(Object),
    /// The status is changed by a merge patch, as controllers and kubelets do. The text `$now` stands for the time of the step.
    Status(Object),
    /// The object is deleted.
    Delete(Object),
    /// Does what the controller of a workload and a kubelet would: makes a pod from the template of a Deployment or StatefulSet, gives it a
    /// status, and says in that of the workload that it is observed and how many of its pods are there and ready.
    Run { workload: Object, pod: String, status: Value },
    /// Within a while the object is so.
    Expect(Object),
    /// Within a while the object is gone.
    Gone(Object),
    /// The object does not exist now, nor at the end of the scenario.
    Never(Object),
    /// The API server refuses the object, with this text in its answer.
    Refused { object: Object, because: String },
    /// Remembers a member of an object under a name.
    Note { of: Object, at: String, r#as: String },
    /// Within a while the member is another one than noted.
    Changed(String),
    /// Once the operator has come to rest the member is as noted.
    Same(String),
    /// Within a while there is exactly one event with this reason about an object of this name.
    Event { about: String, reason: String },
}

/// An object in short form.
#[derive(Clone, Deserialize)]
pub(crate) struct Object {
    pub(crate) kind: String,
    pub(crate) name: String,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// A member of an object, and what it was.
struct Noted {
    of: Object,
    at: String,
    was: Value,
}

/// Where a scenario runs.
pub(crate) struct Stage<'a> {
    client: &'a Client,
    namespace: String,
    noted: BTreeMap<String, Noted>,
    never: Vec<Object>,
    /// Whether events are expected as written. They are published once at best, so an operator that is killed may not have.
    with_events: bool,
}

// === impl Object ===

impl Object {
    fn new(kind: &str, name: &str, rest: &Value) -> Self {
        let rest = rest.as_object().cloned().unwrap_or_default();
        Self { kind: kind.to_owned(), name: name.to_owned(), rest }
    }
}

// === impl Stage ===

impl<'a> Stage<'a> {
    pub(crate) fn new(client: &'a Client, namespace: String) -> Self {
        Self { client, namespace, noted: BTreeMap::new(), never: Vec::new(), with_events: true }
    }

    /// The same, where events are not expected.
    pub(crate) fn without_events(self) -> Self {
        Self { with_events: false, ..self }
    }

    pub(crate) async fn run(self, scenario: &Scenario) -> Result<()> {
        self.run_waiting(scenario, async || Ok(())).await
    }

    /// The same by a user who waits for something before each step.
    pub(crate) async fn run_waiting(mut self, scenario: &Scenario, wait: impl AsyncFn() -> Result<()>) -> Result<()> {
        for (index, step) in scenario.steps.iter().enumerate() {
            wait().await?;
            self.step(step).await.with_context(|| format!("step {}", index + 1))?;
        }
        for object in &self.never {
            self.absent(object).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Apply(object) => {
                let patch = Patch::Apply(self.whole(object)?);
                self.api(object)?.patch(&object.name, &PatchParams::apply(USER).force(), &patch).await?;
            }
            Step::Merge(object) => {
                let patch = Patch::Merge(Value::Object(object.rest.clone()));
                self.api(object)?.patch(&object.name, &PatchParams::default(), &patch).await?;
            }
            Step::Status(object) => {
                let patch = Patch::Merge(json!({ "status": with_now(&Value::Object(object.rest.clone())) }));
                self.api(object)?.patch_status(&object.name, &PatchParams::default(), &patch).await?;
            }
            Step::Delete(object) => {
                self.api(object)?.delete(&object.name, &DeleteParams::default()).await?;
            }
            Step::Run { workload, pod, status } => self.run_pod(workload, pod, status).await?,
            Step::Expect(object) => {
                let wanted = Value::Object(object.rest.clone());
                self.until(object, |found| mismatch(&wanted, found, "").map_or(Ok(()), Err)).await?;
            }
            Step::Gone(object) => {
                let (api, name) = (&self.api(object)?, &object.name);
                eventually(&format!("{} {name} goes", object.kind), PATIENCE, || async move {
                    Ok(match api.get_opt(name).await? {
                        None => Seen::Yes(()),
                        Some(_) => Seen::NotYet("it is there".to_owned()),
                    })
                })
                .await?;
            }
            Step::Never(object) => {
                self.absent(object).await?;
                self.never.push(object.clone());
            }
            Step::Refused { object, because } => {
                let patch = Patch::Apply(self.whole(object)?);
                let sent = self.api(object)?.patch(&object.name, &PatchParams::apply(USER).force(), &patch).await;
                let Err(kube::Error::Api(status)) = sent else { bail!("{} was accepted", object.name) };
                ensure!(status.message.contains(because), "refused, but with: {}", status.message);
            }
            Step::Note { of, at, r#as } => {
                let found = self.until(of, |found| found.pointer(at).map(|_| ()).ok_or(format!("no {at}"))).await?;
                let was = found.pointer(at).cloned().unwrap_or_default();
                self.noted.insert(r#as.clone(), Noted { of: of.clone(), at: at.clone(), was });
            }
            Step::Changed(name) => {
                let noted = self.noted(name)?;
                let changed = |found: &Value| match found.pointer(&noted.at) {
                    Some(now) if *now != noted.was => Ok(()),
                    now => Err(format!("{} is still {now:?}", noted.at)),
                };
                self.until(&noted.of, changed).await?;
            }
            Step::Same(name) => {
                self.settled().await?;
                let noted = self.noted(name)?;
                let now = self.get(&noted.of).await?.unwrap_or_default();
                let now = now.pointer(&noted.at).cloned().unwrap_or_default();
                ensure!(now == noted.was, "{} was {}, is {now}", noted.at, noted.was);
            }
            Step::Event { about, reason } if self.with_events => self.event(about, reason).await?,
            Step::Event { .. } => {}
        }
        Ok(())
    }

    /// See [`Step::Run`].
    async fn run_pod(&self, workload: &Object, pod: &str, status: &Value) -> Result<()> {
        let found = self.until(workload, |_| Ok(())).await?;
        let (uid, generation) = (&found["metadata"]["uid"], &found["metadata"]["generation"]);
        let (template, parent) =
            (&found["spec"]["template"], if workload.kind == "Deployment" { "ReplicaSet" } else { "StatefulSet" });
        let mut metadata = template["metadata"].clone();
        metadata["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": parent, "name": workload.name, "uid": uid, "controller": true,
        }]);
        let containers: Vec<Value> = template["spec"]["containers"].as_array().into_iter().flatten().map(|container| {
            json!({ "name": container["name"], "image": container["image"], "readinessProbe": container["readinessProbe"] })
        }).collect();
        let spec = json!({ "containers": containers, "automountServiceAccountToken": false });
        for one in [
            Object::new("ServiceAccount", "default", &json!({})),
            Object::new("Pod", pod, &json!({ "metadata": metadata, "spec": spec })),
        ] {
            let patch = Patch::Apply(self.whole(&one)?);
            self.api(&one)?.patch(&one.name, &PatchParams::apply(USER).force(), &patch).await?;
        }
        let patch = Patch::Merge(json!({ "status": status }));
        self.api(&Object::new("Pod", pod, &json!({})))?.patch_status(pod, &PatchParams::default(), &patch).await?;
        let is_ready = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Ready" && one["status"] == "True");
        let ready = i32::from(is_ready);
        let counts = json!({
            "observedGeneration": generation, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready, "availableReplicas": ready,
        });
        let patch = Patch::Merge(json!({ "status": counts }));
        self.api(workload)?.patch_status(&workload.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    fn noted(&self, name: &str) -> Result<&Noted> {
        self.noted.get(name).with_context(|| format!("nothing was noted as {name}"))
    }

    /// Waits until an object exists and has nothing that is wrong.
    async fn until(&self, object: &Object, wrong: impl Fn(&Value) -> Result<(), String>) -> Result<Value> {
        let wrong = &wrong;
        eventually(&format!("{} {}", object.kind, object.name), PATIENCE, || async move {
            let Some(found) = self.get(object).await? else {
                return Ok(Seen::NotYet("it does not exist".to_owned()));
            };
            Ok(match wrong(&found) {
                Ok(()) => Seen::Yes(found),
                Err(wrong) => Seen::NotYet(wrong),
            })
        })
        .await
    }

    async fn get(&self, object: &Object) -> Result<Option<Value>> {
        let found = self.api(object)?.get_opt(&object.name).await?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    async fn absent(&self, object: &Object) -> Result<()> {
        ensure!(self.get(object).await?.is_none(), "{} {} exists", object.kind, object.name);
        Ok(())
    }

    async fn event(&self, about: &str, reason: &str) -> Result<()> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("events.k8s.io", "v1", "Event"));
        let events: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let events = &events;
        eventually(&format!("an event {reason}"), PATIENCE, || async move {
            let all = events.list(&ListParams::default()).await?;
            let found = all
                .items
                .iter()
                .filter(|event| event.data["reason"] == reason && event.data["regarding"]["name"] == about);
            Ok(match found.count() {
                1 => Seen::Yes(()),
                count => Seen::NotYet(format!("there are {count}")),
            })
        })
        .await
    }

    /// Waits until nothing in the namespace is written for a second.
    async fn settled(&self) -> Result<()> {
        at_rest(|| self.versions()).await?;
        Ok(())
    }

    async fn versions(&self) -> Result<Vec<String>> {
        let kinds =
            ["MCPServer", "MCPRemoteProxy", "VirtualMCPServer", "Deployment", "StatefulSet", "ConfigMap", "Service"];
        let mut versions = Vec::new();
        for kind in kinds {
            let objects: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind)?);
            let list = objects.list_metadata(&ListParams::default()).await?;
            versions.extend(list.items.into_iter().filter_map(|object| object.metadata.resource_version));
        }
        Ok(versions)
    }

    fn api(&self, object: &Object) -> Result<Api<DynamicObject>> {
        Ok(Api::namespaced_with(self.client.clone(), &self.namespace, &resource(&object.kind)?))
    }

    fn whole(&self, object: &Object) -> Result<Value> {
        let mut whole = object.rest.clone();
        let resource = resource(&object.kind)?;
        whole.insert("apiVersion".to_owned(), resource.api_version.into());
        whole.insert("kind".to_owned(), resource.kind.into());
        let metadata = whole.entry("metadata").or_insert_with(|| json!({}));
        metadata["name"] = object.name.clone().into();
        metadata["namespace"] = self.namespace.clone().into();
        Ok(Value::Object(whole))
    }
}

/// The same with the current time for every text `$now`.
fn with_now(value: &Value) -> Value {
    match value {
        Value::String(text) if text == "$now" => {
            jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
        }
        Value::Array(values) => values.iter().map(with_now).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), with_now(value))).collect(),
        other => other.clone(),
    }
}

fn resource(kind: &str) -> Result<ApiResource> {
    if let Some(ours) = KindName::ALL.iter().find(|ours| ours.as_str() == kind) {
        return Ok(api_resource(*ours));
    }
    let group = match kind {
        "Secret" | "ConfigMap" | "Service" | "ServiceAccount" | "Pod" => "",
        "Deployment" | "StatefulSet" => "apps",
        "Role" | "RoleBinding" => "rbac.authorization.k8s.io",
        _ => bail!("a kind that scenarios do not know: {kind}"),
    };
    Ok(ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
}

/// Where a value is not as wanted, or nothing.
///
/// - A map: every member is as wanted; `null` means that the member is not there.
/// - A list of maps: for each there is an element with the same `type`, `name` or `mountPath` that is as wanted, others may be there;
///   `absent: true` means that there is none.
/// - Any other list: the same elements in the same order.
/// - A map or a list where a text is found: the text is a document, YAML or JSON.
/// - A text that begins with `~`: the rest is in what is found. `*`: anything but nothing.
fn mismatch(wanted: &Value, found: &Value, path: &str) -> Option<String> {
    match (wanted, found) {
        (Value::Object(_) | Value::Array(_), Value::String(text)) => match serde_saphyr::from_str::<Value>(text) {
            Ok(document) => mismatch(wanted, &document, path),
            Err(error) => Some(format!("{path} is not a document: {error}")),
        },
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(key, wanted)| {
            let path = format!("{path}.{key}");
            match (wanted, found.get(key)) {
                (Value::Null, None | Some(Value::Null)) => None,
                (Value::Null, Some(found)) => Some(format!("{path} is there: {found}")),
                (_, None) => Some(format!("{path} is not there")),
                (wanted, Some(found)) => mismatch(wanted, found, &path),
            }
        }),
        (Value::Array(wanted), Value::Array(found)) => elements_mismatch(wanted, found, path),
        (Value::String(wanted), found) if wanted == "*" => {
            let nothing = matches!(found, Value::Null) || *found == json!("");
            nothing.then(|| format!("{path} is empty"))
        }
        (Value::String(wanted), Value::String(found)) => {
            let matches = match wanted.strip_prefix('~') {
                Some(part) => found.contains(part),
                None => found == wanted,
            };
            (!matches).then(|| format!("{path} is {found:?}, wanted {wanted:?}"))
        }
        (wanted, found) => (wanted != found).then(|| format!("{path} is {found}, wanted {wanted}")),
    }
}

fn elements_mismatch(wanted: &[Value], found: &[Value], path: &str) -> Option<String> {
    let keyed = |element: &Value| {
        ["type", "name", "mountPath"].into_iter().find_map(|key| Some((key, element.get(key)?.clone())))
    };
    if !wanted.is_empty() && wanted.iter().all(|element| keyed(element).is_some()) {
        return wanted.iter().find_map(|element| {
            let (key, value) = keyed(element)?;
            let path = format!("{path}[{value}]");
            let is_unwanted = element.get("absent") == Some(&Value::Bool(true));
            match found.iter().find(|found| found.get(key) == Some(&value)) {
                Some(_) if is_unwanted => Some(format!("{path} is there")),
                None if is_unwanted => None,
                Some(found) => mismatch(element, found, &path),
                None => Some(format!("{path} is not there")),
            }
        });
    }
    if wanted.len() != found.len() {
        return Some(format!("{path} has {} elements, wanted {}: {}", found.len(), wanted.len(), Value::from(found)));
    }
    let mut pairs = wanted.iter().zip(found).enumerate();
    pairs.find_map(|(index, (wanted, found))| mismatch(wanted, found, &format!("{path}[{index}]")))
}
