//! Servers on real pods, behind our proxy, made by our operator.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::cluster::{Cluster, fixture_image, next_image, product_image};
use crate::operator::install;

const GREETING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}"#;

/// A namespace with an operator in it.
struct Home {
    cluster: Cluster,
    namespace: String,
}

impl Home {
    async fn new(prefix: &str) -> Result<Self> {
        let image = product_image()?;
        let cluster = Cluster::connect(prefix).await?;
        let namespace = cluster.namespace().to_owned();
        install(&namespace, &image)?;
        Ok(Self { cluster, namespace })
    }

    fn servers(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("toolhive.stacklok.dev", "v1beta1", "MCPServer");
        let resource = ApiResource::from_gvk_with_plural(&kind, "mcpservers");
        Api::namespaced_with(self.cluster.client(), &self.namespace, &resource)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    async fn create(&self, name: &str, spec: Value) -> Result<()> {
        let server = json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": name }, "spec": spec,
        });
        self.servers().create(&PostParams::default(), &serde_json::from_value(server)?).await?;
        Ok(())
    }

    async fn ready(&self, name: &str) -> Result<()> {
        let servers = self.servers();
        self.cluster
            .until(&format!("server {name} is ready"), || async {
                let data = servers.get(name).await?.data;
                Ok(data.pointer("/status/phase").and_then(Value::as_str) == Some("Ready"))
            })
            .await
    }

    /// The address of a server's proxy, as its Service has it.
    async fn address(&self, name: &str) -> Result<String> {
        let service = self.api::<Service>().get(&format!("mcp-{name}-proxy")).await?;
        let spec = service.spec.context("a Service without a spec")?;
        let port = spec.ports.unwrap_or_default().first().map(|port| port.port).context("a Service without a port")?;
        Ok(format!("{}:{port}", spec.cluster_ip.context("a Service without an address")?))
    }

    /// A caller that has been greeted, once there is somebody to greet it.
    async fn caller(&self, address: &str) -> Result<Caller> {
        let mut caller = None;
        self.cluster
            .until(&format!("{address} answers"), || {
                let greeted = Caller::greet(address);
                let done = greeted.is_ok();
                caller = greeted.ok().or_else(|| caller.take());
                async move { Ok(done) }
            })
            .await?;
        caller.context("nobody answered")
    }

    async fn pods(&self, labels: &str) -> Result<Vec<Pod>> {
        Ok(self.api::<Pod>().list(&ListParams::default().labels(labels)).await?.items)
    }
}

/// A client with a session.
struct Caller {
    address: String,
    session: String,
}

impl Caller {
    fn greet(address: &str) -> Result<Self> {
        let (head, body) = post(address, None, GREETING)?;
        ensure!(head.starts_with("HTTP/1.1 200") && body.contains("skep-fixture"), "{head}\n{body}");
        let session = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
        });
        let session = session.context("no session")?;
        let told = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        post(address, Some(&session), told)?;
        Ok(Self { address: address.to_owned(), session })
    }

    /// Calls a tool; returns the text that it answers.
    fn call(&self, tool: &str, arguments: &str) -> Result<String> {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        );
        let (head, body) = post(&self.address, Some(&self.session), &body)?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
        let answer: Value = serde_json::from_str(&body).with_context(|| body.clone())?;
        ensure!(answer.get("id") == Some(&json!(7)), "{answer}");
        let text = answer.pointer("/result/content/0/text").and_then(Value::as_str);
        Ok(text.with_context(|| answer.to_string())?.to_owned())
    }
}

/// Sends a message; returns head and body of the answer.
fn post(address: &str, session: Option<&str>, body: &str) -> Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(90)))?;
    let session = session.map(|session| format!("Mcp-Session-Id: {session}\r\n")).unwrap_or_default();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: application/json\r\n{session}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("not an HTTP answer")?;
    Ok((head.to_owned(), body.to_owned()))
}

fn stdio(image: &str) -> Value {
    json!({ "image": image, "transport": "stdio", "args": ["mcp-stdio"] })
}

fn http(image: &str) -> Value {
    json!({ "image": image, "transport": "streamable-http", "mcpPort": 8080, "args": ["mcp-http", "8080"] })
}

#[tokio::test]
async fn servers_on_stdio_and_http_become_ready_answer_and_survive_the_loss_of_their_pods() -> Result<()> {
    let fixture = fixture_image()?;
    let home = Home::new("proxy").await?;
    home.create("lines", stdio(&fixture)).await?;
    home.create("web", http(&fixture)).await?;
    for name in ["lines", "web"] {
        home.ready(name).await?;
        let address = home.address(name).await?;
        let caller = home.caller(&address).await?;
        ensure!(caller.call("who", "{}")?.starts_with(&format!("{name}-0")), "{name}");

        // Its pod goes in the middle of a call: that call ends with a clear answer, and later ones are answered again.
        let slow = {
            let (address, session) = (caller.address.clone(), caller.session.clone());
            tokio::task::spawn_blocking(move || Caller { address, session }.call("sleep", r#"{"seconds":"60"}"#))
        };
        home.cluster
            .until("the call is under way", || async {
                Ok(home.cluster.logs(&format!("{name}-0"), "mcp").await?.contains("a call sleeps"))
            })
            .await?;
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        home.api::<Pod>().delete(&format!("{name}-0"), &now).await?;
        let broken = slow.await?;
        ensure!(broken.is_err(), "{name}: a call was answered by a pod that is gone: {broken:?}");
        home.cluster
            .until(&format!("{name} answers the same session again"), || {
                let answered = caller.call("who", "{}").is_ok();
                async move { Ok(answered) }
            })
            .await?;
    }
    // A server that dies in the middle of a line.
    let address = home.address("lines").await?;
    let caller = home.caller(&address).await?;
    ensure!(caller.call("die", "{}").is_err());
    home.cluster
        .until("the server that died answers again", || {
            let answered = caller.call("who", "{}").is_ok();
            async move { Ok(answered) }
        })
        .await?;
    // Nobody was started again for any of it.
    home.cluster.no_restarts("app=mcpserver").await?;

    // Down to nothing and back, without anybody falling over.
    for (replicas, is_answered) in [(0, false), (1, true)] {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        home.api::<StatefulSet>().patch("web", &PatchParams::default(), &patch).await?;
        let address = home.address("web").await?;
        home.cluster
            .until(&format!("web with {replicas} pods"), || {
                let answered = Caller::greet(&address).is_ok();
                async move { Ok(answered == is_answered) }
            })
            .await?;
    }
    // A StatefulSet that somebody deletes comes back.
    home.api::<StatefulSet>().delete("lines", &DeleteParams::background()).await?;
    home.cluster
        .until("lines is made again and answers", || {
            let answered = caller.call("who", "{}").is_ok();
            async move { Ok(answered) }
        })
        .await?;
    home.cluster.no_restarts("app=mcpserver").await?;
    home.cluster.remove().await
}

#[tokio::test]
async fn an_old_proxy_that_starts_again_does_not_take_the_server_back() -> Result<()> {
    let (fixture, next) = (fixture_image()?, next_image()?);
    let home = Home::new("gate").await?;
    home.create("s", http(&fixture)).await?;
    home.ready("s").await?;
    // From now on a new proxy pod is not taken for available, so old and new ones stand beside each other.
    let slow = json!({ "spec": { "minReadySeconds": 3000, "progressDeadlineSeconds": 6000 } });
    home.api::<Deployment>().patch("s", &PatchParams::default(), &Patch::Merge(slow)).await?;
    let old = home.pods("app=mcpserver").await?;
    ensure!(old.len() == 1, "there are {} proxies", old.len());

    let bump = Patch::Merge(json!({ "spec": { "image": next } }));
    home.servers().patch("s", &PatchParams::default(), &bump).await?;
    let image = |set: &StatefulSet| {
        let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        spec.and_then(|spec| spec.containers.first()?.image.clone())
    };
    let sets = home.api::<StatefulSet>();
    home.cluster
        .until("the new proxy brings the new image", || async {
            Ok(image(&sets.get("s").await?) == Some(next.clone()))
        })
        .await?;
    let pods = home.pods("app=mcpserver").await?;
    ensure!(pods.len() == 2, "old and new proxy should stand beside each other, there are {}", pods.len());

    // The old one starts again, from the old template, with the new RunConfig mounted.
    let gone = old.first().and_then(|pod| pod.metadata.name.clone()).context("a pod without a name")?;
    home.api::<Pod>().delete(&gone, &DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() }).await?;
    let generation = "toolhive.stacklok.dev/mcpserver-generation";
    let is_old = |pod: &Pod| {
        pod.metadata.annotations.as_ref().and_then(|all| all.get(generation)).is_some_and(|text| text == "1")
    };
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    let mut again = None;
    home.cluster
        .until("the old proxy is there again and ready", || async {
            let pods = home.pods("app=mcpserver").await?;
            Ok(pods.iter().any(|pod| pod.metadata.name.as_deref() != Some(&gone) && is_old(pod) && is_ready(pod)))
        })
        .await?;
    for pod in home.pods("app=mcpserver").await? {
        if is_old(&pod) && is_ready(&pod) && pod.metadata.name.as_deref() != Some(&gone) {
            again = pod.status.and_then(|status| status.pod_ip);
        }
    }
    // It serves, through the newer server.
    let address = format!("{}:8080", again.context("the old proxy has no address")?);
    let caller = home.caller(&address).await?;
    ensure!(caller.call("who", "{}")?.starts_with("s-0"));
    // The server ended on the new image and was never taken back: one revision for each image, no more.
    ensure!(image(&sets.get("s").await?) == Some(next.clone()), "the old proxy took the server back");
    let revisions = home.api::<ControllerRevision>().list(&ListParams::default().labels("app=s")).await?;
    let mut numbers: Vec<i64> = revisions.items.iter().map(|revision| revision.revision).collect();
    numbers.sort_unstable();
    if numbers != [1, 2] {
        bail!("the server's revisions are {numbers:?}");
    }
    home.cluster.remove().await
}

#[tokio::test]
async fn a_slow_call_keeps_nobody_waiting_and_is_finished_by_a_proxy_that_is_told_to_go() -> Result<()> {
    let home = Home::new("slow").await?;
    home.create("s", stdio(&fixture_image()?)).await?;
    home.ready("s").await?;
    let address = home.address("s").await?;
    let caller = home.caller(&address).await?;
    let slow = {
        let (address, session) = (caller.address.clone(), caller.session.clone());
        tokio::task::spawn_blocking(move || Caller { address, session }.call("sleep", r#"{"seconds":"10"}"#))
    };
    for _ in 0..20 {
        caller.call("who", "{}")?;
    }
    ensure!(!slow.is_finished(), "twenty calls took longer than one of ten seconds");
    // Its proxy is told to go: the call is finished all the same.
    let proxies = home.pods("app=mcpserver").await?;
    let proxy = proxies.first().and_then(|pod| pod.metadata.name.clone()).context("no proxy")?;
    home.api::<Pod>().delete(&proxy, &DeleteParams::default()).await?;
    ensure!(slow.await??.starts_with("s-0"), "the call was not finished");
    // Another one takes its place; the server behind was not touched.
    let again = home.caller(&address).await?;
    ensure!(again.call("who", "{}")?.starts_with("s-0"));
    let pod = home.api::<Pod>().get("s-0").await?;
    let restarts: i32 = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten())
        .map(|one| one.restart_count)
        .sum();
    ensure!(restarts == 0, "the server was started again {restarts} times");
    home.cluster.remove().await
}
