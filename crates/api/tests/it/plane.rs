//! One API server for all tests of this binary, with Skep's definitions in it.

use anyhow::{Context, Result};
use skep_testkit::{ControlPlane, Output};
use tokio::sync::OnceCell;

static DEFINED: OnceCell<()> = OnceCell::const_new();

/// The API server. The definitions are in it as `skep crds | kubectl apply --server-side -f -` puts them there.
pub(crate) async fn plane() -> Result<&'static ControlPlane> {
    let plane = ControlPlane::shared().await?;
    DEFINED
        .get_or_try_init(|| async {
            let documents =
                skep_api::crd::all()?.iter().map(skep_api::manifest::document).collect::<Result<Vec<_>, _>>()?;
            plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &documents.concat()).await?.success()?;
            plane
                .kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"])
                .await?
                .success()?;
            anyhow::Ok(())
        })
        .await
        .context("cannot install the definitions")?;
    Ok(plane)
}

/// Creates an object from JSON in a namespace and says what kubectl says.
pub(crate) async fn create(plane: &ControlPlane, namespace: &str, object: &serde_json::Value) -> Result<Output> {
    plane.kubectl_with_input(&["create", "-n", namespace, "-o", "json", "-f", "-"], &object.to_string()).await
}
