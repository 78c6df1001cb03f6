//! Servers on real pods, behind our proxy, created by our operator: failures.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::cluster::{fixture_image, next_image};
use crate::home::{Caller, Home, get, http, stdio};

#[tokio::test]
async fn servers_on_stdio_and_http_become_ready_answer_and_survive_the_loss_of_their_pods() -> Result<()> {
    let fixture = fixture_image()?;
    let home = Home::new("proxy").await?;
    home.create("lines", stdio(&fixture)).await?;
    home.create("web", http(&fixture)).await?;
    let mut callers = Vec::new();
    for name in ["lines", "web"] {
        home.ready(name).await?;
        let address = home.address(name).await?;
        let caller = home.caller(&address).await?;
        ensure!(caller.call("who", "{}")?.starts_with(&format!("{name}-0")), "{name}");
        callers.push((name, caller));
    }
    for (name, caller) in &callers {
        // Its pod is deleted in the middle of a call: that call fails with a clear error, and later ones succeed again.
        let slow = {
            let (address, session) = (caller.address.clone(), caller.session.clone());
            tokio::task::spawn_blocking(move || Caller { address, session }.call("sleep", r#"{"seconds":"60"}"#))
        };
        home.cluster
            .until("the call is in flight", || async {
                Ok(home.cluster.logs(&format!("{name}-0"), "mcp").await?.contains("a call sleeps"))
            })
            .await?;
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        home.api::<Pod>().delete(&format!("{name}-0"), &now).await?;
        for (other, caller) in callers.iter().filter(|(other, _)| other != name) {
            ensure!(caller.call("who", "{}")?.starts_with(&format!("{other}-0")), "{other} suffers with {name}");
        }
        fails_clearly(
            &slow.await?.err().with_context(|| format!("{name}: a call got a response from a deleted pod"))?,
        )?;
        home.cluster
            .until(&format!("{name} answers the same session again"), || {
                let answered = caller.call("who", "{}").is_ok();
                async move { Ok(answered) }
            })
            .await?;
    }
    // A server that crashes in the middle of a line.
    let address = home.address("lines").await?;
    let caller = home.caller(&address).await?;
    fails_clearly(&caller.call("die", "{}").err().context("a call got a response from a crashed server")?)?;
    home.cluster
        .until("the server that died answers again", || {
            let answered = caller.call("who", "{}").is_ok();
            async move { Ok(answered) }
        })
        .await?;
    // Nothing was restarted for any of it.
    home.cluster.no_restarts("app=mcpserver").await?;

    // Scaled to zero and back, without a restart.
    for (replicas, is_answered) in [(0, false), (1, true)] {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        home.api::<StatefulSet>().patch("web", &PatchParams::default(), &patch).await?;
        let address = home.address("web").await?;
        home.cluster
            .until(&format!("web with {replicas} pods"), || {
                let answered = Caller::initialize(&address).is_ok();
                async move { Ok(answered == is_answered) }
            })
            .await?;
    }
    // The same on stdio. The proxy itself responds to a handshake there, so its health and a call show the state.
    let scale = async |replicas: u32| {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        home.api::<StatefulSet>().patch("lines", &PatchParams::default(), &patch).await
    };
    scale(0).await?;
    home.cluster
        .until("lines is reported as scaled to zero", || {
            let page = get(&address, "/health");
            async { Ok(page?.1.contains("scaled to zero")) }
        })
        .await?;
    scale(1).await?;
    home.cluster
        .until("lines answers the same session again", || {
            let answered = caller.call("who", "{}").is_ok();
            async move { Ok(answered) }
        })
        .await?;
    // A deleted StatefulSet is applied again.
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

/// The call failed with a clear error: at once, and not by a timeout or a broken connection.
fn fails_clearly(error: &anyhow::Error) -> Result<()> {
    ensure!(error.to_string().starts_with("HTTP/1.1 502"), "the client does not learn what happened: {error:#}");
    Ok(())
}

#[tokio::test]
async fn a_restarted_old_proxy_does_not_revert_the_server() -> Result<()> {
    let (fixture, next) = (fixture_image()?, next_image()?);
    let home = Home::new("gate").await?;
    home.create("s", http(&fixture)).await?;
    home.ready("s").await?;
    // From now on a new proxy pod does not become available, so old and new ones run side by side.
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

    // The old one restarts, from the old template, with the new RunConfig mounted.
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
    // The server ended on the new image and was never reverted: one revision for each image, no more.
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
async fn a_slow_call_blocks_no_other_and_is_finished_by_a_terminating_proxy() -> Result<()> {
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
    // Its proxy is terminated: the call is finished all the same.
    let proxies = home.pods("app=mcpserver").await?;
    let proxy = proxies.first().and_then(|pod| pod.metadata.name.clone()).context("no proxy")?;
    home.api::<Pod>().delete(&proxy, &DeleteParams::default()).await?;
    ensure!(slow.await??.starts_with("s-0"), "the call was not finished");
    // Another proxy replaces it; its MCP server was not touched.
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
