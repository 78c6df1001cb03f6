//! Finding backends on a real API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_net::Addresses;
use skep_testkit::{ControlPlane, Seen, eventually};
use skep_vmcp::backend::Backend;
use skep_vmcp::backends::Backends;
use skep_vmcp::config::Config;
use skep_vmcp::discover::{Cluster, Discovery};
use tokio::sync::OnceCell;

const PATIENCE: Duration = Duration::from_mins(1);
const CONFIG: &str = r#"
name: v
groupRef: team
incomingAuth: {type: anonymous}
outgoingAuth: {source: discovered}
aggregation: {conflictResolution: prefix, conflictResolutionConfig: {prefixFormat: "{workload}_"}}
"#;

static DEFINED: OnceCell<()> = OnceCell::const_new();

/// A namespace in which a group is followed.
struct Home {
    client: kube::Client,
    namespace: String,
    backends: Arc<Backends>,
    discovery: Discovery,
}

impl Home {
    async fn new() -> Result<Self> {
        let plane = ControlPlane::shared().await?;
        DEFINED.get_or_try_init(|| define(plane)).await?;
        let (client, namespace) = (plane.client()?, plane.namespace("discover").await?);
        let backends = Backends::new(None);
        let config = Config::from_yaml(CONFIG)?;
        let cluster = Cluster { client: client.clone(), namespace: namespace.clone(), name: None };
        let discovery = Discovery::start(&cluster, config, BTreeMap::new(), Addresses::Machine, backends.clone());
        Ok(Self { client, namespace, backends, discovery })
    }

    fn api(&self, kind: KindName) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: "toolhive.stacklok.dev".to_owned(),
            version: "v1beta1".to_owned(),
            api_version: "toolhive.stacklok.dev/v1beta1".to_owned(),
            kind: kind.as_str().to_owned(),
            plural: kind.plural().to_owned(),
        };
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn create(&self, kind: KindName, name: &str, spec: Value) -> Result<()> {
        let object = json!({ "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": kind.as_str(),
            "metadata": { "name": name }, "spec": spec });
        self.api(kind).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    async fn secret(&self, name: &str, value: &str) -> Result<()> {
        let api: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { "k": value } });
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&secret)).await?;
        Ok(())
    }

    /// Waits until these are the backends, each with the header that it is called with.
    async fn until(&self, expected: &[(&str, Option<&str>)]) -> Result<BTreeMap<String, Arc<Backend>>> {
        let header = |backend: &Backend| {
            let value = backend.spec.headers.get("x-key").map(|value| value.to_str().unwrap().to_owned());
            (backend.name().to_string(), value)
        };
        eventually("the backends are as expected", PATIENCE, || async {
            let all = self.backends.all();
            let seen: Vec<(String, Option<String>)> = all.values().map(|backend| header(backend)).collect();
            let is_expected = seen.len() == expected.len()
                && seen.iter().zip(expected).all(|(seen, expected)| (seen.0.as_str(), seen.1.as_deref()) == *expected);
            let synced = self.discovery.is_synced.load(Ordering::Acquire);
            Ok(if is_expected && synced {
                Seen::Yes(all.iter().map(|(name, backend)| (name.to_string(), backend.clone())).collect())
            } else {
                Seen::NotYet(format!("{seen:?}, synced: {synced}"))
            })
        })
        .await
    }
}

async fn define(plane: &ControlPlane) -> Result<()> {
    let documents = skep_api::crd::all()?.iter().map(skep_api::manifest::document).collect::<Result<Vec<_>, _>>()?;
    plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &documents.concat()).await?.success()?;
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=180s"]).await?.success()?;
    Ok(())
}

fn entry(url: &str, secret: Option<&str>) -> Value {
    let mut spec = json!({ "remoteUrl": url, "transport": "streamable-http", "groupRef": { "name": "team" } });
    if let Some(secret) = secret {
        let header = json!({ "headerName": "X-Key", "valueSecretRef": { "name": secret, "key": "k" } });
        spec["headerForward"] = json!({ "addHeadersFromSecret": [header] });
    }
    spec
}

#[tokio::test]
async fn members_join_change_and_leave_while_the_others_stay_as_they_are() -> Result<()> {
    const ENTRY: KindName = KindName::MCPServerEntry;
    let home = Home::new().await?;
    // Without its group there is nothing, and the process is ready all the same.
    home.create(ENTRY, "plain", entry("https://plain.example/mcp", None)).await?;
    home.until(&[]).await?;
    home.create(KindName::MCPGroup, "team", json!({})).await?;
    let first = home.until(&[("plain", None)]).await?;

    // A member of another group is none; one whose Secret is missing is left out until it is there.
    let mut stranger = entry("https://other.example/mcp", None);
    stranger["groupRef"]["name"] = json!("others");
    home.create(ENTRY, "stranger", stranger).await?;
    home.create(ENTRY, "keyed", entry("https://keyed.example/mcp", Some("s"))).await?;
    home.secret("s", "one").await?;
    let keyed = home.until(&[("keyed", Some("one")), ("plain", None)]).await?;
    assert!(Arc::ptr_eq(&first["plain"], &keyed["plain"]), "its connections and sessions are kept");

    home.secret("s", "two").await?;
    let rotated = home.until(&[("keyed", Some("two")), ("plain", None)]).await?;
    assert!(Arc::ptr_eq(&first["plain"], &rotated["plain"]));
    assert!(!Arc::ptr_eq(&keyed["keyed"], &rotated["keyed"]));

    // A Secret that nothing names changes nothing.
    home.secret("unrelated", "x").await?;
    let patch = json!({ "spec": { "remoteUrl": "https://moved.example/mcp" } });
    home.api(ENTRY).patch("plain", &PatchParams::default(), &Patch::Merge(patch)).await?;
    eventually("the URL is the new one", PATIENCE, || async {
        let url = home.backends.get("plain").map(|backend| backend.spec.url.clone()).unwrap_or_default();
        Ok(if url == "https://moved.example/mcp" { Seen::Yes(()) } else { Seen::NotYet(url) })
    })
    .await?;
    assert!(Arc::ptr_eq(&rotated["keyed"], &home.backends.get("keyed").unwrap()));

    // Without its Secret it is not called at all.
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(home.client.clone(), &home.namespace);
    secrets.delete("s", &DeleteParams::default()).await?;
    home.until(&[("plain", None)]).await?;
    home.api(ENTRY).delete("plain", &DeleteParams::default()).await?;
    home.until(&[]).await?;
    Ok(())
}
