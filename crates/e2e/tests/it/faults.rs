//! Shared dependencies fail and recover: the API server, the network to it, Redis, the proxy in the middle of a stream.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use skep_testkit::{Seen, eventually};

use crate::cluster::{PATIENCE, fixture_image, next_image};
use crate::home::{Caller, Home, get, http, post, sse, stdio, who, with};

/// How many calls without a session are made in a row.
const MODERN_CALLS: usize = 8;
/// The maximum length of a request body.
const LONGEST_BODY: usize = 8 * 1024 * 1024;

#[tokio::test]
async fn after_the_api_server_was_gone_everything_goes_on_and_a_new_proxy_starts_as_well() -> Result<()> {
    // The program that can restart the API server: ours, and only for a cluster that it started.
    let Some(xtask) = std::env::var_os("SKEP_E2E_CLUSTER") else {
        println!("not tested: only the API server of a cluster that xtask started may be restarted");
        return Ok(());
    };
    let home = Home::alone("restart", false).await?;
    let fixture = fixture_image()?;
    home.create("lines", stdio(&fixture)).await?;
    home.create("web", http(&fixture)).await?;
    let mut callers = Vec::new();
    for name in ["lines", "web"] {
        home.ready(name).await?;
        callers.push(home.caller(&home.address(name).await?).await?);
    }
    let restarted = Command::new(xtask).args(["cluster", "restart", "kube-apiserver"]).output()?;
    ensure!(restarted.status.success(), "{}", String::from_utf8_lossy(&restarted.stderr));
    for caller in &callers {
        again(caller).await?;
    }
    for proxy in home.pods("app=mcpserver").await? {
        let name = proxy.metadata.name.context("a pod without a name")?;
        home.api::<Pod>().delete(&name, &DeleteParams::default()).await?;
    }
    for name in ["lines", "web"] {
        let caller = home.caller(&home.address(name).await?).await?;
        ensure!(caller.call("who", "{}")?.starts_with(&format!("{name}-0")));
    }
    // The operator continues without a restart.
    let next = next_image()?;
    let change = Patch::Merge(json!({ "spec": { "image": next } }));
    home.servers().patch("web", &PatchParams::default(), &change).await?;
    home.cluster
        .until("a change reaches the server's pod", || async {
            let pod = home.api::<Pod>().get_opt("web-0").await?.and_then(|pod| pod.spec);
            Ok(pod.and_then(|spec| spec.containers.first()?.image.clone()) == Some(next.clone()))
        })
        .await?;
    home.cluster.no_restarts("app.kubernetes.io/name=skep").await?;
    home.cluster.no_restarts("app=mcpserver").await?;
    home.cluster.remove().await
}

/// The proxy is the only field manager of its server's Services.
#[tokio::test]
async fn backend_services_that_are_deleted_come_back_at_once_and_calls_go_on() -> Result<()> {
    let home = Home::new("services").await?;
    home.create("web", http(&fixture_image()?)).await?;
    home.ready("web").await?;
    let caller = home.caller(&home.address("web").await?).await?;
    let services = home.api::<Service>();
    for name in ["mcp-web", "mcp-web-headless"] {
        let uid = services.get(name).await?.metadata.uid;
        services.delete(name, &DeleteParams::default()).await?;
        home.cluster
            .until(&format!("{name} comes back"), || async {
                Ok(services.get_opt(name).await?.is_some_and(|service| service.metadata.uid != uid))
            })
            .await?;
    }
    again(&caller).await?;
    // Nothing was restarted for it.
    home.cluster.no_restarts("app=mcpserver").await?;
    home.cluster.remove().await
}

#[tokio::test]
async fn while_redis_is_gone_calls_are_refused_clearly_and_afterwards_sessions_live_on() -> Result<()> {
    let home = Home::new("redis").await?;
    let address = home.node_address().await?;
    let directory = std::env::temp_dir().join(&home.namespace);
    std::fs::create_dir_all(&directory)?;
    let redis = Redis { address: address.clone(), port: free_port(&address)?, directory };
    let running = redis.start().await?;

    let storage = json!({ "provider": "redis", "address": format!("{address}:{}", redis.port) });
    let spec = with(http(&fixture_image()?), "sessionStorage", storage);
    let spec = with(spec, "backendReplicas", json!(2));
    home.create("s", with(spec, "replicas", json!(2))).await?;
    home.ready("s").await?;
    home.cluster
        .until("both proxies and both pods of the server are ready", || async {
            let deployment = home.api::<Deployment>().get("s").await?.status;
            let set = home.api::<StatefulSet>().get("s").await?.status;
            Ok(deployment.and_then(|status| status.ready_replicas) == Some(2)
                && set.and_then(|status| status.available_replicas) == Some(2))
        })
        .await?;
    // Every proxy knows the session, whichever proxy initialized it.
    let address = home.address("s").await?;
    let service = home.caller(&address).await?;
    let mut proxies = Vec::new();
    for pod in home.pods("app=mcpserver").await? {
        let address = pod.status.and_then(|status| status.pod_ip).context("a proxy without an address")?;
        proxies.push(Caller { address: format!("{address}:8080"), session: service.session.clone() });
    }
    // And all of them route to the pod that has it, while other sessions are on other pods.
    let mut pods = BTreeSet::new();
    home.cluster
        .until("sessions are with either pod", || {
            let known = (|| -> Result<String> {
                let caller = Caller::initialize(&address)?;
                let at = |proxy: &Caller| Caller { session: caller.session.clone(), ..proxy.clone() }.call("who", "{}");
                let answers = proxies.iter().map(at).collect::<Result<BTreeSet<String>>>()?;
                ensure!(answers.len() == 1, "one session is known to {answers:?}");
                answers.into_iter().next().context("no response")
            })();
            let seen = known.map(|pod| {
                pods.insert(pod);
                pods.len() == 2
            });
            async move { seen }
        })
        .await?;
    // So are calls of clients without sessions, whichever pod responds.
    let (head, page) = get(&address, "/health")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}\n{page}");
    for _ in 0..MODERN_CALLS {
        who(&address)?;
    }
    let before = service.call("who", "{}")?;
    let lost = before.trim().to_owned();
    home.api::<Pod>().delete(&lost, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await?;
    eventually("calls without a session are answered with a pod less", PATIENCE, || async {
        let answers: Result<Vec<String>> = (0..MODERN_CALLS).map(|_| who(&address)).collect();
        Ok(answers.map_or_else(|error| Seen::NotYet(format!("{error:#}")), |_| Seen::Yes(())))
    })
    .await?;
    for proxy in &proxies {
        again(proxy).await?;
    }

    drop(running);
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"who","arguments":{}}}"#;
    for proxy in &proxies {
        let (head, body) = post(&proxy.address, Some(&proxy.session), call)?;
        ensure!(head.starts_with("HTTP/1.1 503"), "{head}\n{body}");
        ensure!(body.contains("session"), "the answer does not say what is wrong: {body}");
        who(&proxy.address).context("a call without a session needs no Redis")?;
    }
    let _running = redis.start().await?;
    for proxy in &proxies {
        again(proxy).await?;
    }
    home.cluster.no_restarts("app=mcpserver").await?;
    std::fs::remove_dir_all(&redis.directory)?;
    home.cluster.remove().await
}

#[tokio::test]
async fn a_remote_server_is_reached_by_any_proxy_and_an_untrusted_one_is_not() -> Result<()> {
    let home = Home::new("remote").await?;
    let node = home.node_address().await?;
    let directory = std::env::temp_dir().join(&home.namespace);
    std::fs::create_dir_all(&directory)?;
    let redis = Redis { address: node.clone(), port: free_port(&node)?, directory };
    let _running = redis.start().await?;
    home.create("web", http(&fixture_image()?)).await?;
    home.ready("web").await?;

    let storage = json!({ "provider": "redis", "address": format!("{node}:{}", redis.port) });
    let near = format!("http://mcp-web.{}.svc.cluster.local:8080/mcp", home.namespace);
    let near = json!({
        "remoteUrl": near, "allowPrivateEndpoint": true, "replicas": 2, "sessionStorage": storage,
        "sessionAffinity": "None",
    });
    home.create_kind("MCPRemoteProxy", "near", near).await?;
    // The API server has a certificate from a CA that only this cluster trusts.
    let api = format!("https://{}/mcp", home.address_of_api().await?);
    home.create_kind("MCPRemoteProxy", "api", json!({ "remoteUrl": api, "allowPrivateEndpoint": true })).await?;
    home.phase("MCPRemoteProxy", "near", "Ready").await?;
    home.phase("MCPRemoteProxy", "api", "Ready").await?;
    home.cluster
        .until("both proxies of the remote server are ready", || async {
            let deployment = home.api::<Deployment>().get("near").await?.status;
            Ok(deployment.and_then(|status| status.ready_replicas) == Some(2))
        })
        .await?;
    // A session that one proxy opened is served by the other.
    let session = home.caller(&home.address_of("mcp-near-remote-proxy").await?).await?.session;
    let proxies = home.pods("app=mcpremoteproxy,app.kubernetes.io/instance=near").await?;
    ensure!(proxies.len() == 2, "{} proxies", proxies.len());
    for pod in proxies {
        let address = pod.status.and_then(|status| status.pod_ip).context("a proxy without an address")?;
        let caller = Caller { address: format!("{address}:8080"), session: session.clone() };
        for _ in 0..5 {
            ensure!(caller.call("who", "{}")?.starts_with("web-0"));
        }
    }

    let call = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    let (head, body) = post(&home.address_of("mcp-api-remote-proxy").await?, None, call)?;
    ensure!(head.starts_with("HTTP/1.1 502"), "{head}\n{body}");
    let proxies = home.pods("app=mcpremoteproxy,app.kubernetes.io/instance=api").await?;
    let proxy = proxies.first().and_then(|pod| pod.metadata.name.clone()).context("no proxy")?;
    let log = home.cluster.logs(&proxy, "toolhive").await?;
    ensure!(log.contains("UnknownIssuer"), "the log does not say why:\n{log}");
    home.cluster.no_restarts("app=mcpremoteproxy").await?;
    std::fs::remove_dir_all(&redis.directory)?;
    home.cluster.remove().await
}

#[tokio::test]
async fn a_stream_ends_when_its_proxy_goes_and_the_next_proxy_opens_another() -> Result<()> {
    let home = Home::new("stream").await?;
    home.create("s", sse(&fixture_image()?)).await?;
    home.ready("s").await?;
    let address = home.address("s").await?;
    let mut listener = home.sse_client(&address).await?;
    let proxies = home.pods("app=mcpserver").await?;
    let proxy = proxies.first().and_then(|pod| pod.metadata.name.clone()).context("no proxy")?;
    home.api::<Pod>().delete(&proxy, &DeleteParams::default()).await?;
    let ended = tokio::task::spawn_blocking(move || listener.next(|_| false)).await?;
    ensure!(matches!(ended, Ok(None)), "the stream did not end in good order: {ended:?}");
    let mut listener = home.sse_client(&address).await?;
    let call = r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"who","arguments":{}}}"#;
    ensure!(listener.ask(call, "\"id\":6")?.contains("s-0"));
    home.cluster.remove().await
}

#[tokio::test]
async fn the_longest_body_is_served_and_one_byte_more_is_refused() -> Result<()> {
    let home = Home::new("size").await?;
    let fixture = fixture_image()?;
    home.create("web", http(&fixture)).await?;
    home.create("lines", stdio(&fixture)).await?;
    for name in ["web", "lines"] {
        home.ready(name).await?;
        let caller = home.caller(&home.address(name).await?).await?;
        let before = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"who","arguments":{"load":""#;
        let after = r#""}}}"#;
        for (length, status) in [(LONGEST_BODY, "HTTP/1.1 200"), (LONGEST_BODY + 1, "HTTP/1.1 413")] {
            let load = "x".repeat(length - before.len() - after.len());
            let (head, body) = post(&caller.address, Some(&caller.session), &format!("{before}{load}{after}"))?;
            ensure!(head.starts_with(status), "{name}: {length} bytes: {head}\n{body}");
        }
        ensure!(caller.call("who", "{}")?.starts_with(&format!("{name}-0")), "{name} does not respond any more");
    }
    home.cluster.remove().await
}

/// Waits until a session is served again.
async fn again(caller: &Caller) -> Result<()> {
    eventually(&format!("{} answers the same session again", caller.address), PATIENCE, || async {
        Ok(match caller.call("who", "{}") {
            Ok(_) => Seen::Yes(()),
            Err(error) => Seen::NotYet(format!("{error:#}")),
        })
    })
    .await
}

#[tokio::test]
async fn a_silent_network_failure_is_detected_and_calls_get_an_error() -> Result<()> {
    if std::env::var_os("SKEP_E2E_CLUSTER").is_none() {
        println!("not tested: only the network of a cluster that xtask started may be cut");
        return Ok(());
    }
    let home = Home::new("silence").await?;
    home.create("s", stdio(&fixture_image()?)).await?;
    home.ready("s").await?;
    let caller = home.caller(&home.address("s").await?).await?;
    ensure!(caller.call("who", "{}")?.starts_with("s-0"));
    let proxies = home.pods("app=mcpserver").await?;
    let address = proxies.into_iter().find_map(|pod| pod.status?.pod_ip).context("a proxy without an address")?;
    let cut = Cut::new(address)?;
    // No packet signals the loss. Without a check, the call would end by the proxy's timeout, and the connection would
    // stay.
    let error =
        format!("{:#}", caller.call("who", "{}").err().context("answered through a network that is not there")?);
    ensure!(error.contains("went away"), "{error}");
    drop(cut);
    again(&caller).await?;
    home.cluster.no_restarts("app=mcpserver").await?;
    home.cluster.remove().await
}

/// Packets between a pod and the API server are dropped while this exists.
struct Cut(String);

impl Cut {
    fn new(pod: String) -> Result<Self> {
        // The rules of a partial setup are removed with it.
        let cut = Self(pod);
        cut.rules("--insert")?;
        Ok(cut)
    }

    fn rules(&self, act: &str) -> Result<()> {
        for (chain, pod, port) in [("INPUT", "--source", "--dport"), ("OUTPUT", "--destination", "--sport")] {
            let rule = [act, chain, pod, &self.0, "--protocol", "tcp", port, "6443", "--jump", "DROP"];
            let done = Command::new("iptables").arg("--wait").args(rule).output().context("cannot run iptables")?;
            ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        Ok(())
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        // A test that waits for the network afterwards reports that it is missing.
        let _unmended = self.rules("--delete");
    }
}

/// A Redis beside the node, reachable by its pods, whose data survives the process.
pub(crate) struct Redis {
    pub(crate) address: String,
    pub(crate) port: u16,
    pub(crate) directory: std::path::PathBuf,
}

/// Its process, which is killed with this.
pub(crate) struct Running(Child);

impl Redis {
    pub(crate) async fn start(&self) -> Result<Running> {
        let port = self.port.to_string();
        let mut process = Running(
            Command::new("redis-server")
                .args(["--bind", &self.address, "--port", &port, "--appendonly", "yes", "--appendfsync", "always"])
                .args(["--protected-mode", "no", "--save", ""])
                .arg("--dir")
                .arg(&self.directory)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .context("cannot start `redis-server`; it comes with Debian's package of that name")?,
        );
        eventually("Redis listens", PATIENCE, || {
            let ended = process.0.try_wait();
            let found = std::net::TcpStream::connect((self.address.as_str(), self.port));
            async move {
                if let Some(status) = ended? {
                    bail!("redis-server ended: {status}");
                }
                Ok(found.map_or_else(|error| Seen::NotYet(error.to_string()), |_| Seen::Yes(())))
            }
        })
        .await?;
        Ok(process)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A free port.
pub(crate) fn free_port(address: &str) -> Result<u16> {
    Ok(std::net::TcpListener::bind((address, 0))?.local_addr()?.port())
}
