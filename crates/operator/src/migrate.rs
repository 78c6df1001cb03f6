//! Storage version migration: objects that are still stored in an older version are written anew, then the older version is
//! struck off the definition's list. Until that is done, the older version cannot be dropped from the definition.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;
use skep_api::crd::{GROUP, STORED_VERSION};
use skep_api::resource::KindName;

use crate::write::api_resource;

/// How many objects are read at a time.
const PAGE: u32 = 100;
/// How often the definitions are looked at.
const PAUSE: Duration = Duration::from_hours(1);
/// How soon after a failure.
const RETRY: Duration = Duration::from_secs(30);

/// Migrates whatever needs it, again and again.
pub async fn keep_migrated(client: Client) {
    loop {
        let mut pause = PAUSE;
        for kind in KindName::ALL {
            match migrate(&client, *kind).await {
                Ok(Migration::NotNeeded) => {}
                Ok(Migration::Done(objects)) => {
                    tracing::info!(kind = %kind, objects, version = STORED_VERSION, "storage version migrated");
                }
                Ok(Migration::Interrupted) => pause = RETRY,
                Err(error) => {
                    tracing::warn!(kind = %kind, %error, "storage version not migrated");
                    pause = RETRY;
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// What became of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Everything is stored in the right version.
    NotNeeded,
    /// So many objects were written anew.
    Done(usize),
    /// Somebody else wrote in between; the definition is left as it is.
    Interrupted,
}

/// Migrates the objects of one kind.
pub async fn migrate(client: &Client, kind: KindName) -> Result<Migration, kube::Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = format!("{}.{GROUP}", kind.plural());
    let Some(definition) = definitions.get_opt(&name).await? else { return Ok(Migration::NotNeeded) };
    let stored = definition.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default();
    let storage = definition.spec.versions.iter().find(|version| version.storage).map(|version| version.name.as_str());
    // Only towards the version that the definition itself stores: a definition of somebody else's is not ours to change.
    if storage != Some(STORED_VERSION) || stored == [STORED_VERSION] {
        return Ok(Migration::NotNeeded);
    }
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &api_resource(kind));
    let (mut written, mut next) = (0, None);
    loop {
        let parameters = ListParams { limit: Some(PAGE), continue_token: next.take(), ..ListParams::default() };
        let page = objects.list_metadata(&parameters).await?;
        for object in &page.items {
            let (Some(namespace), Some(name)) = (&object.metadata.namespace, &object.metadata.name) else { continue };
            let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &api_resource(kind));
            // A patch that changes nothing makes the API server store the object in today's version.
            match objects.patch_metadata(name, &PatchParams::default(), &Patch::Merge(json!({}))).await {
                Ok(_) => written += 1,
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(kube::Error::Api(status)) if status.is_conflict() => return Ok(Migration::Interrupted),
                Err(error) => return Err(error),
            }
        }
        next = page.metadata.continue_.filter(|token| !token.is_empty());
        if next.is_none() {
            break;
        }
    }
    let patch = Patch::Merge(json!({
        "metadata": { "resourceVersion": definition.metadata.resource_version },
        "status": { "storedVersions": [STORED_VERSION] },
    }));
    match definitions.patch_status(&name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(Migration::Done(written)),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Migration::Interrupted),
        Err(error) => Err(error),
    }
}
