//! `skep crds`, printed and applied to a real API server.

use anyhow::Result;
use serde_json::Value;
use skep_testkit::ControlPlane;

use crate::skep;

#[test]
fn the_definitions_are_printed_as_yaml_and_as_json() {
    let yaml = skep(&["crds"]);
    let documents = skep_api::manifest::parse(yaml.succeeded()).unwrap();
    let json: Vec<Value> = serde_json::from_str(skep(&["crds", "-o", "json"]).succeeded()).unwrap();
    assert_eq!(documents.len(), 14);
    assert_eq!(documents, json);
}

#[tokio::test(flavor = "multi_thread")]
async fn applying_them_twice_changes_nothing_the_second_time() -> Result<()> {
    // A control plane of its own: other tests of this binary must not see these definitions come and go.
    let plane = ControlPlane::start().await?;
    let kubeconfig = plane.kubeconfig().to_str().unwrap();
    let first = skep(&["crds", "apply", "--kubeconfig", kubeconfig]);
    assert_eq!(first.succeeded().matches("created").count(), 14, "{}", first.out);
    let second = skep(&["crds", "apply", "--kubeconfig", kubeconfig, "-o", "json"]);
    let results: Vec<Value> = serde_json::from_str(second.succeeded())?;
    assert!(results.len() == 14 && results.iter().all(|result| result["change"] == "unchanged"), "{results:?}");

    // The README's command, verbatim: the printed definitions through kubectl.
    let applied = plane
        .kubectl_with_input(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &skep(&["crds"]).out)
        .await?;
    assert_eq!(applied.success()?.lines().count(), 14);
    let explained = plane.kubectl(&["explain", "mcpserver.spec.transport"]).await?.success()?;
    assert!(explained.contains("How the server itself speaks MCP"), "{explained}");
    let created = "apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: listed}\n";
    plane.kubectl_with_input(&["apply", "-n", "default", "-f", "-"], created).await?.success()?;
    let listed = plane.kubectl(&["get", "toolhive", "-n", "default"]).await?.success()?;
    assert!(listed.contains("mcpgroup.toolhive.stacklok.dev/listed"), "{listed}");
    plane.stop();
    Ok(())
}

#[test]
fn a_cluster_that_cannot_be_reached_is_one_clear_line() {
    skep(&["crds", "apply"]).refused(1, &["no cluster is configured", "--kubeconfig"]);
    skep(&["crds", "apply", "--kubeconfig", "no-such-file"])
        .refused(1, &["no-such-file", "No such file", "--kubeconfig"]);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    let apply = || skep(&["crds", "apply", "--kubeconfig", path.to_str().unwrap()]);
    write("clusters: [");
    apply().refused(1, &["cannot read the kubeconfig"]);
    write("apiVersion: v1\nkind: Config\ncurrent-context: gone\n");
    apply().refused(1, &["cannot use the kubeconfig", "gone"]);
    // Nothing listens on port 1.
    write(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n",
    );
    apply().refused(1, &["cannot reach the API server at `http://127.0.0.1:1/`", "refused"]);
}
