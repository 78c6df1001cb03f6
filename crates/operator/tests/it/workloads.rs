//! The three workload kinds, held to the same rules: configs that they leave alone, writes on the wire, checksums that overrides
//! cannot displace, and no writes at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::Result;
use http::{Method, Request};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Map, Value, json};
use skep_api::resource::KindName;
use skep_operator::metrics::Metrics;
use skep_operator::run::RECHECK;
use skep_plan::child::ChildKind;
use skep_testkit::{Seen, eventually};

use crate::between::{Verdict, between, refusal};
use crate::fleet::{USER_VARIABLE, Workload, configs, prepare, workloads};
use crate::running::{PATIENCE, Running, condition, counted_in, operator, plane, start_as, start_rechecking};

const CHECKSUM: &str = "toolhive.stacklok.dev/runconfig-checksum";
/// What a user writes over what the operator stamps.
const FAKE: &str = "fake";

fn members<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

fn annotation<'a>(deployment: &'a Value, name: &str) -> Option<&'a str> {
    deployment.pointer("/spec/template/metadata/annotations")?.get(name)?.as_str()
}

async fn gone(operator: &Running, kind: KindName, name: &str) -> Result<()> {
    let objects = operator.resources(kind);
    let objects = &objects;
    eventually(&format!("{kind} {name} goes"), PATIENCE, || async move {
        Ok(match objects.get_opt(name).await? {
            None => Seen::Yes(()),
            Some(_) => Seen::NotYet("it is still there".to_owned()),
        })
    })
    .await
}

/// Acceptance B2.
#[tokio::test]
async fn no_workload_touches_any_config_that_it_uses() -> Result<()> {
    let operator = operator("owners").await?;
    prepare(&operator).await?;
    for workload in workloads() {
        workload.create(&operator).await?;
    }
    for config in configs() {
        let users: BTreeSet<&str> =
            workloads().iter().filter(|workload| workload.uses(&config)).map(|workload| workload.name).collect();
        assert!(!users.is_empty(), "{} is not used", config.kind);
        let lists = |one: &Value| {
            let listed = one["status"]["referencingWorkloads"].as_array().into_iter().flatten();
            listed.filter_map(|user| user["name"].as_str()).collect::<BTreeSet<_>>() == users
        };
        operator.until(config.kind, config.name, &format!("lists {users:?}"), lists).await?;
    }
    let before = operator.settled().await?;
    for workload in workloads() {
        let edits = [
            json!({ "metadata": { "annotations": { "note": "x" } } }),
            json!({ "spec": { "replicas": 2 } }),
            match workload.kind {
                KindName::MCPServer => json!({ "spec": { "image": "registry.example/a:2" } }),
                KindName::MCPRemoteProxy => json!({ "spec": { "remoteUrl": "https://mcp.example/v2" } }),
                _ => json!({ "spec": { "passthroughHeaders": ["X-Team"] } }),
            },
        ];
        for edit in edits {
            let objects = operator.resources(workload.kind);
            objects.patch(workload.name, &PatchParams::default(), &Patch::Merge(edit)).await?;
        }
    }
    let after = operator.settled().await?;
    for workload in workloads() {
        let key = format!("{}/{}", workload.kind, workload.name);
        assert_ne!(before[&key], after[&key], "{key} was not reconciled");
    }
    for config in configs() {
        let key = format!("{}/{}", config.kind, config.name);
        assert_eq!(before[&key], after[&key], "{key} was written");
    }
    operator.stop().await
}

/// Acceptance D1: with the annotations of a Vault agent.
#[tokio::test]
async fn pods_of_every_workload_roll_after_an_edit_of_any_config_also_with_overrides() -> Result<()> {
    let operator = operator("rolls").await?;
    prepare(&operator).await?;
    let vault = json!({ "vault.hashicorp.com/agent-inject": "true" });
    for workload in workloads() {
        workload.overridden(&vault, &json!({ "team": "a" })).create(&operator).await?;
    }
    let mut checksums = BTreeMap::new();
    for workload in workloads() {
        let stamped = |one: &Value| annotation(one, CHECKSUM).is_some();
        let deployment = operator.child(ChildKind::Deployment, workload.name, "is stamped", stamped).await?;
        checksums.insert(workload.name, annotation(&deployment, CHECKSUM).unwrap_or_default().to_owned());
    }
    operator.settled().await?;
    for config in configs() {
        operator.edit(config.kind, config.name, config.edit.clone()).await?;
        for workload in workloads().iter().filter(|workload| workload.uses(&config)) {
            let known = checksums[workload.name].clone();
            let rolls = |one: &Value| annotation(one, CHECKSUM).is_some_and(|now| now != known);
            let what = format!("rolls after an edit of {}", config.kind);
            let deployment = operator.child(ChildKind::Deployment, workload.name, &what, rolls).await?;
            assert_eq!(annotation(&deployment, "vault.hashicorp.com/agent-inject"), Some("true"));
            assert_eq!(annotation(&deployment, "deploy"), None, "an annotation of the Deployment leaked");
            checksums.insert(workload.name, annotation(&deployment, CHECKSUM).unwrap_or_default().to_owned());
        }
    }
    operator.stop().await
}

/// Acceptance D2 and E1: what the operator stamps is found on a workload without overrides, and all of it is then claimed by a user.
#[tokio::test]
async fn no_annotation_and_no_label_that_is_stamped_can_be_displaced() -> Result<()> {
    let operator = operator("stamps").await?;
    prepare(&operator).await?;
    for (workload, twin) in workloads().into_iter().zip(["s-claimed", "r-claimed", "v-claimed"]) {
        workload.create(&operator).await?;
        let plain = operator.child(ChildKind::Deployment, workload.name, "exists", |_| true).await?;
        let places = |what: &str| [format!("/metadata/{what}"), format!("/spec/template/metadata/{what}")];
        let fakes = |what: &str| -> Value {
            let stamped = places(what).into_iter().flat_map(|place| members(&plain, &place).collect::<Vec<_>>());
            // What the API server's own controllers write is not ours.
            let ours = stamped.filter(|(name, _)| !name.starts_with("deployment.kubernetes.io/"));
            Value::Object(ours.map(|(name, _)| (name.clone(), json!(FAKE))).collect::<Map<_, _>>())
        };
        let (annotations, labels) = (fakes("annotations"), fakes("labels"));
        assert!(
            annotations.as_object().is_some_and(|all| all.contains_key(CHECKSUM)) && labels["toolhive-name"] == FAKE
        );
        let twin = Workload { name: twin, ..workload.overridden(&annotations, &labels) };
        twin.create(&operator).await?;
        let claimed = operator.child(ChildKind::Deployment, twin.name, "exists", |_| true).await?;
        for what in ["annotations", "labels"] {
            for (place, known) in
                places(what).into_iter().map(|place| (place.clone(), members(&plain, &place).collect::<Vec<_>>()))
            {
                for (name, _) in known {
                    let now = claimed.pointer(&place).and_then(|all| all.get(name)).cloned().unwrap_or_default();
                    assert!(now != FAKE && !now.is_null(), "{} {place} {name} is {now}", workload.kind);
                }
            }
        }
        assert_eq!(annotation(&claimed, CHECKSUM).map(str::len), Some(64), "{}", workload.kind);
    }
    operator.stop().await
}

/// The writes of statuses: the path of each, and how many reconciles of its kind had ended by then. Two writes of one reconcile have the
/// same number, and those of two reconciles have not, as an object is reconciled by one worker at a time.
type StatusWrites = Arc<Mutex<Vec<(String, u64)>>>;

/// A client that records writes of statuses, by the counters of its operator.
fn recording_statuses(real: Client, counters: Arc<OnceLock<Metrics>>) -> (Client, StatusWrites) {
    let writes = StatusWrites::default();
    let log = writes.clone();
    let client = between(real, move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        if request.method() == Method::PATCH && path.ends_with("/status") {
            let page = counters.get().map(Metrics::page).unwrap_or_default();
            let kind = KindName::ALL.iter().find(|kind| path.contains(&format!("/{}/", kind.plural()))).unwrap();
            let ended = counted_in(&page, "reconciles", &[&format!("kind=\"{kind}\"")]);
            log.lock().unwrap().push((path, ended));
        }
        std::future::ready(Verdict::Pass(request))
    });
    (client, writes)
}

/// Acceptance A6 and D3.
#[tokio::test]
async fn every_workload_writes_its_status_once_a_reconcile_and_nothing_at_rest() -> Result<()> {
    let plane = plane().await?;
    let counters = Arc::new(OnceLock::new());
    let (client, writes) = recording_statuses(plane.client()?, counters.clone());
    let operator = start_as(client, plane, plane.namespace("resting").await?)?;
    let _first = counters.set(operator.counters());
    prepare(&operator).await?;
    operator.settled().await?;
    for workload in workloads() {
        let overridden = workload.overridden(&json!({ "vault": "yes" }), &json!({ "team": "a" }));
        overridden.create(&operator).await?;
        let deployment = operator.child(ChildKind::Deployment, workload.name, "exists", |_| true).await?;
        let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
        let is_set = env.as_array().is_some_and(|env| env.iter().any(|one| one["name"] == USER_VARIABLE));
        assert!(is_set, "{} has not the variable of the user: {env}", workload.kind);
        operator.settled().await?;
        let own = format!("/{}/{}/status", skep_operator::write::api_resource(workload.kind).plural, workload.name);
        assert!(writes.lock().unwrap().iter().any(|(path, _)| path.ends_with(&own)), "{own} was not written");
    }
    let mut written = BTreeSet::new();
    for write in writes.lock().unwrap().iter() {
        assert!(written.insert(write.clone()), "a reconcile wrote {} twice: {write:?}", write.0);
    }
    assert_eq!(operator.counted("reconciles", &["conflict"]), 0, "a write of our own was refused");
    let before = operator.settled().await?;
    let applied = operator.counted("api_requests", &["verb=\"apply\""]);
    let reconciled = operator.counted("reconciles", &[]);
    for workload in workloads() {
        for note in ["1", "2", "3"] {
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { "note": note } } }));
            operator.resources(workload.kind).patch(workload.name, &PatchParams::default(), &patch).await?;
        }
    }
    let mut after = operator.settled().await?;
    for workload in workloads() {
        let key = format!("{}/{}", workload.kind, workload.name);
        after.insert(key.clone(), before[&key].clone());
    }
    assert_eq!(before, after);
    assert_eq!(applied, operator.counted("api_requests", &["verb=\"apply\""]), "what did not change is not even sent");
    assert!(operator.counted("reconciles", &[]) >= reconciled + 3, "nothing was reconciled");
    operator.stop().await
}

/// Where a Secret is created, whichever its name is: the first ones of all virtual servers are refused.
const CREATED_SECRET: &str = "/secrets";

/// The writes of a remote proxy and of a virtual server, as the end of their paths.
const WRITES: [(KindName, &str, &[&str]); 2] = [
    (
        KindName::MCPRemoteProxy,
        "r",
        &[
            "/mcpremoteproxies/{}/status",
            "/deployments/{}",
            "/services/mcp-{}-remote-proxy",
            "/configmaps/{}-runconfig",
            "/serviceaccounts/{}-remote-proxy-runner",
            "/roles/{}-remote-proxy-runner",
            "/rolebindings/{}-remote-proxy-runner",
        ],
    ),
    (
        KindName::VirtualMCPServer,
        "v",
        &[
            "/virtualmcpservers/{}/status",
            "/deployments/{}",
            "/services/vmcp-{}",
            "/configmaps/{}-vmcp-config",
            "/serviceaccounts/{}-vmcp",
            "/roles/{}-vmcp",
            "/rolebindings/{}-vmcp",
            CREATED_SECRET,
        ],
    ),
];

/// Acceptance A6: a write that fails is retried, for the workloads beside MCPServer.
#[tokio::test]
async fn writes_of_remote_proxies_and_virtual_servers_that_fail_are_retried() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("retries").await?;
    let refused: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let log = refused.clone();
    let ends = |prefix: &str, writes: &[&str]| {
        writes.iter().enumerate().map(|(index, end)| end.replace("{}", &format!("{prefix}{index}"))).collect::<Vec<_>>()
    };
    let hit: Vec<String> = WRITES.iter().flat_map(|(_, prefix, writes)| ends(prefix, writes)).collect();
    let client = between(plane.client()?, move |request: Request<Body>| {
        let path = request.uri().path();
        let is_write = |end: &&String| match end.as_str() {
            CREATED_SECRET => *request.method() == Method::POST,
            _ => *request.method() == Method::PATCH,
        };
        let end = hit.iter().filter(is_write).find(|end| path.ends_with(end.as_str()));
        let is_refused = end.is_some_and(|end| {
            let mut seen = log.lock().unwrap();
            let count = seen.entry(end.clone()).or_default();
            *count += 1;
            *count <= 2
        });
        std::future::ready(if is_refused {
            Verdict::Answer(refusal(500, "InternalError"))
        } else {
            Verdict::Pass(request)
        })
    });
    let operator = start_as(client, plane, namespace)?;
    operator.create(KindName::MCPGroup, "g", json!({})).await?;
    for (kind, prefix, writes) in WRITES {
        for index in 0..writes.len() {
            let spec = match kind {
                KindName::MCPRemoteProxy => json!({ "remoteUrl": "https://mcp.example/mcp" }),
                _ => json!({ "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" } }),
            };
            operator.create(kind, &format!("{prefix}{index}"), spec).await?;
        }
    }
    for (kind, prefix, writes) in WRITES {
        for index in 0..writes.len() {
            let name = format!("{prefix}{index}");
            operator.until(kind, &name, "has a status", |one| one["status"]["observedGeneration"] == 1).await?;
            operator.child(ChildKind::Deployment, &name, "exists", |_| true).await?;
            if kind == KindName::VirtualMCPServer {
                let secrets: Api<Secret> = Api::namespaced(operator.client.clone(), &operator.namespace);
                let secret = skep_plan::names::virtual_session_key(&name);
                eventually("its session key exists", PATIENCE, || async {
                    let found = secrets.get_opt(&secret).await?;
                    Ok(found.map_or_else(|| Seen::NotYet(format!("no {secret}")), |_| Seen::Yes(())))
                })
                .await?;
            }
        }
        for (index, end) in ends(prefix, writes).iter().enumerate() {
            let is_retried = refused.lock().unwrap().get(end).is_some_and(|count| *count > 2);
            assert!(is_retried, "{end} of {kind} {prefix}{index} was not tried again");
        }
    }
    operator.stop().await
}

/// What was sent to change an object of ours beside its status: kind of body, path, body.
pub(crate) type Sent = Arc<Mutex<Vec<(String, String, Value)>>>;

pub(crate) fn recording(client: kube::Client) -> (kube::Client, Sent) {
    let sent: Sent = Arc::default();
    let log = sent.clone();
    let client = between(client, move |request: Request<Body>| {
        let log = log.clone();
        async move {
            let path = request.uri().path().to_owned();
            let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
            if !is_write || !path.contains("/toolhive.stacklok.dev/") || path.ends_with("/status") {
                return Verdict::Pass(request);
            }
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap_or_default();
            let header = parts.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let how = format!("{} {}", parts.method, header.unwrap_or_default());
            log.lock().unwrap().push((how, path, serde_json::from_slice(&bytes).unwrap_or_default()));
            Verdict::Pass(Request::from_parts(parts, Body::from(bytes)))
        }
    });
    (client, sent)
}

/// An object of each kind that has a finalizer.
fn finalized() -> Vec<(KindName, Value)> {
    let others = [
        (KindName::MCPServer, json!({ "image": "registry.example/a:1" })),
        (KindName::MCPGroup, json!({})),
        (KindName::EmbeddingServer, json!({})),
        (KindName::MCPRegistry, json!({ "configYAML": "registryName: r\n" })),
    ];
    configs().into_iter().map(|config| (config.kind, config.spec)).chain(others).collect()
}

/// Acceptance C1 at every call site: finalizers of all kinds, added and removed, also from an object that cannot be read any more, and the
/// restart that was processed.
#[tokio::test]
async fn every_change_of_metadata_carries_the_version_that_it_was_made_from() -> Result<()> {
    const ASKED: &str = "mcpserver.toolhive.stacklok.dev/restarted-at";
    const PROCESSED: &str = "mcpserver.toolhive.stacklok.dev/last-processed-restart";
    let plane = plane().await?;
    let namespace = plane.namespace("preconditions").await?;
    let (client, sent) = recording(plane.client()?);
    let operator = start_as(client, plane, namespace)?;
    let kinds: BTreeSet<KindName> = finalized().iter().map(|(kind, _)| *kind).collect();
    let with_finalizer: BTreeSet<KindName> =
        KindName::ALL.iter().copied().filter(|kind| kind.finalizer().is_some()).collect();
    assert_eq!(kinds, with_finalizer, "a kind with a finalizer is missing here");
    for (kind, spec) in finalized() {
        operator.create(kind, "x", spec).await?;
        operator
            .until(kind, "x", "has its finalizer", |one| {
                one["metadata"]["finalizers"][0] == kind.finalizer().unwrap_or_default()
            })
            .await?;
    }
    let restart = Patch::Merge(json!({ "metadata": { "annotations": { ASKED: "2026-01-31T12:00:00Z" } } }));
    operator.resources(KindName::MCPServer).patch("x", &PatchParams::default(), &restart).await?;
    operator
        .until(KindName::MCPServer, "x", "is stamped", |one| one["metadata"]["annotations"][PROCESSED].is_string())
        .await?;
    let has_finalizer = |one: &Value| !one["metadata"]["finalizers"][0].is_null();
    operator.create(KindName::MCPServer, "spoilt", json!({ "image": "registry.example/a:1" })).await?;
    operator.until(KindName::MCPServer, "spoilt", "has its finalizer", has_finalizer).await?;
    let spoilt = Patch::<()>::Json(serde_json::from_value(json!([{ "op": "remove", "path": "/spec" }]))?);
    operator.resources(KindName::MCPServer).patch("spoilt", &PatchParams::default(), &spoilt).await?;
    let is_reported = |one: &Value| condition(one, "Ready") == Some(("False", "SpecInvalid"));
    operator.until(KindName::MCPServer, "spoilt", "is reported", is_reported).await?;
    operator.settled().await?;
    operator.resources(KindName::MCPServer).delete("spoilt", &DeleteParams::default()).await?;
    gone(&operator, KindName::MCPServer, "spoilt").await?;
    for (kind, _) in finalized() {
        operator.resources(kind).delete("x", &DeleteParams::default()).await?;
        gone(&operator, kind, "x").await?;
    }
    let sent = sent.lock().unwrap().clone();
    for (how, path, body) in &sent {
        assert_eq!(how, "PATCH application/merge-patch+json", "{path}");
        let version = body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        assert!(!version.is_empty(), "{path} was changed without a precondition: {body}");
        assert!(body.get("spec").is_none(), "{path}: {body}");
    }
    let is_release = |(_, path, body): &(String, String, Value)| {
        path.ends_with("/mcpservers/spoilt") && body["metadata"]["finalizers"] == json!([])
    };
    assert!(sent.iter().any(is_release), "the release of an object that cannot be read was not seen on the wire");
    for (kind, _) in finalized() {
        let plural = skep_operator::write::api_resource(kind).plural;
        let changes = |holds: bool| {
            let of_kind = sent.iter().filter(|(_, path, _)| path.ends_with(&format!("/{plural}/x")));
            of_kind
                .filter(|(_, _, body)| {
                    body["metadata"]["finalizers"].as_array().is_some_and(|all| all.is_empty() != holds)
                })
                .count()
        };
        assert!(changes(true) >= 1 && changes(false) >= 1, "the finalizer of {kind} was not seen on the wire");
    }
    assert!(
        sent.iter().any(|(_, _, body)| body["metadata"]["annotations"][PROCESSED].is_string()),
        "the restart was not seen"
    );
    operator.stop().await
}

/// Acceptance A5: every config kind, also MCPAuthzConfig. Re-checks are calm: no write, no error, no backoff.
#[tokio::test]
async fn a_deletion_that_is_blocked_is_checked_again_at_intervals_without_a_write() -> Result<()> {
    assert_eq!(RECHECK, Duration::from_secs(30), "the interval of the operator itself");
    let plane = plane().await?;
    let operator = start_rechecking(plane, plane.namespace("recheck").await?, Duration::from_millis(200))?;
    prepare(&operator).await?;
    for workload in workloads() {
        workload.create(&operator).await?;
    }
    for config in configs() {
        operator
            .until(config.kind, config.name, "is used", |one| one["status"]["referencingWorkloads"][0].is_object())
            .await?;
    }
    operator.settled().await?;
    for config in configs() {
        operator.resources(config.kind).delete(config.name, &DeleteParams::default()).await?;
        let blocked = |one: &Value| condition(one, "DeletionBlocked") == Some(("True", "ReferencedByWorkloads"));
        operator.until(config.kind, config.name, "is blocked", blocked).await?;
    }
    let before = operator.settled().await?;
    for config in configs() {
        let reconciles = || operator.counted("reconciles", &[config.kind.as_str()]);
        let known = reconciles();
        eventually(&format!("{} is checked again", config.kind), PATIENCE, || async {
            let now = reconciles();
            Ok(if now >= known + 5 { Seen::Yes(()) } else { Seen::NotYet(format!("{} times", now - known)) })
        })
        .await?;
        let failed = operator.counted("reconciles", &[config.kind.as_str()])
            - operator.counted("reconciles", &[config.kind.as_str(), "ok"]);
        assert_eq!(failed, 0, "{} failed", config.kind);
    }
    assert_eq!(before, operator.versions().await?, "a re-check wrote something");
    for workload in workloads() {
        operator.resources(workload.kind).delete(workload.name, &DeleteParams::default()).await?;
    }
    for config in configs() {
        gone(&operator, config.kind, config.name).await?;
    }
    operator.stop().await
}

#[tokio::test]
async fn a_secret_of_the_backend_reaches_the_backend_by_content() -> Result<()> {
    let operator = operator("backend-secrets").await?;
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(operator.client.clone(), &operator.namespace);
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "token" }, "stringData": { "token": "one" } });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let spec = json!({ "image": "i", "secrets": [{ "name": "token", "key": "token", "targetEnvName": "TOKEN" }] });
    operator.create(KindName::MCPServer, "s", spec).await?;
    // The annotation of the pod template that the proxy applies for its backend.
    let digest = |deployment: &Value| {
        let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().cloned();
        let patch = arguments
            .into_iter()
            .flatten()
            .find_map(|one| one.as_str().and_then(|one| one.strip_prefix("--k8s-pod-patch=")).map(str::to_owned));
        let patch: Value = patch.and_then(|patch| serde_json::from_str(&patch).ok()).unwrap_or_default();
        patch["metadata"]["annotations"]["toolhive.stacklok.dev/inputs-checksum"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let first = operator.child(ChildKind::Deployment, "s", "has a digest", |one| !digest(one).is_empty()).await?;
    operator.settled().await?;
    secrets.patch("token", &PatchParams::default(), &Patch::Merge(json!({ "stringData": { "token": "two" } }))).await?;
    operator.child(ChildKind::Deployment, "s", "has another one", |one| digest(one) != digest(&first)).await?;
    operator.stop().await
}
