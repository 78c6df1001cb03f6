//! Storage version migration: objects that are still stored in an older version are written anew, then the older version is
//! struck off the definition's list. Until that is done, the older version cannot be dropped from the definition.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Client, ResourceExt as _};
use skep_api::crd::{GROUP, MIGRATE_LABEL, STORED_VERSION};
use skep_api::resource::KindName;

use crate::events::Events;
use crate::failure::describe;
use crate::object::Object;
use crate::watch::PAGE;
use crate::write::{api_resource, cluster, resources};

/// How often one object is tried while others write it, too.
const TRIES: usize = 3;
/// How soon after a migration that did not end.
const RETRY: Duration = Duration::from_secs(30);

/// Migrates whatever needs it, whenever a definition that asks for it changes.
pub async fn keep_migrated(client: Client, events: Events) {
    let definitions: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client.clone());
    let asking = watcher::Config::default().labels(&format!("{MIGRATE_LABEL}=true")).any_semantic();
    let mut changes = std::pin::pin!(watch(definitions, asking).default_backoff());
    let mut due: BTreeSet<KindName> = BTreeSet::new();
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(Ok(Event::Apply(definition) | Event::InitApply(definition))) => {
                    due.extend(kind_of(&definition.name_any()));
                }
                Some(Ok(Event::Init | Event::Delete(_))) => continue,
                Some(Ok(Event::InitDone)) => {}
                Some(Err(error)) => {
                    tracing::debug!(error = describe(&error), "watch of definitions interrupted");
                    continue;
                }
                // A watch has no end.
                None => return,
            },
            () = tokio::time::sleep(RETRY), if !due.is_empty() => {}
        }
        for kind in std::mem::take(&mut due) {
            match migrate(&client, kind).await {
                Ok(Migration::NotNeeded) => {}
                Ok(Migration::Done(objects)) => {
                    tracing::info!(kind = %kind, objects, version = STORED_VERSION, "storage version migrated");
                    events.migrated(kind).await;
                }
                Ok(Migration::Interrupted) => {
                    tracing::info!(kind = %kind, "storage version migration interrupted by another writer");
                    due.insert(kind);
                }
                Err(failed) => {
                    tracing::warn!(kind = %kind, error = %failed, "storage version not migrated");
                    events.not_migrated(kind, &failed).await;
                    due.insert(kind);
                }
            }
        }
    }
}

/// What became of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Everything is stored in the right version, or the definition does not ask.
    NotNeeded,
    /// So many objects were written anew.
    Done(usize),
    /// Another client wrote in between; the definition is left as it is.
    Interrupted,
}

/// Why a migration did not come to its end. The definition is left as it is.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The definition or the list of objects.
    #[error("cannot read {what}: {}", describe(error))]
    Read {
        /// What was to be read.
        what: String,
        /// Why not.
        error: kube::Error,
    },
    /// Some objects.
    #[error("{count} objects not written anew, {first} among them: {}", describe(error))]
    Objects {
        /// How many.
        count: usize,
        /// One of them.
        first: String,
        /// What was wrong with it.
        error: kube::Error,
    },
    /// The definition.
    #[error("cannot strike the older version off {what}: {}", describe(error))]
    Definition {
        /// Its name.
        what: String,
        /// Why not.
        error: kube::Error,
    },
}

/// How writing one object anew ended.
enum Written {
    Yes,
    Gone,
    Contended,
}

/// Migrates the objects of one kind.
pub async fn migrate(client: &Client, kind: KindName) -> Result<Migration, MigrationError> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition_of(kind);
    let read = |error| MigrationError::Read { what: name.clone(), error };
    let Some(definition) = definitions.get_opt(&name).await.map_err(read)? else { return Ok(Migration::NotNeeded) };
    let stored = definition.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default();
    let storage = definition.spec.versions.iter().find(|version| version.storage).map(|version| version.name.as_str());
    let asks = definition.labels().get(MIGRATE_LABEL).is_some_and(|asks| asks == "true");
    // Only towards the version that the definition itself stores: a definition of another owner is not changed.
    if !asks || storage != Some(STORED_VERSION) || stored == [STORED_VERSION] {
        return Ok(Migration::NotNeeded);
    }
    // Whole objects: their reader skips `managedFields`, which nest as deep as the object does.
    let objects: Api<Object> = Api::all_with(client.clone(), &api_resource(kind));
    let (mut written, mut contended, mut failures, mut next) = (0, 0, Vec::new(), None);
    loop {
        let parameters = ListParams { limit: Some(PAGE), continue_token: next.take(), ..ListParams::default() };
        let listed = objects.list(&parameters).await;
        let page = listed.map_err(|error| MigrationError::Read { what: format!("the list of {kind}s"), error })?;
        for object in &page.items {
            let metadata = object.metadata();
            let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else { continue };
            match write_anew(client, kind, namespace, name).await {
                Ok(Written::Yes) => written += 1,
                Ok(Written::Gone) => {}
                Ok(Written::Contended) => contended += 1,
                Err(error) => failures.push((format!("{namespace}/{name}"), error)),
            }
        }
        next = page.metadata.continue_.filter(|token| !token.is_empty());
        if next.is_none() {
            break;
        }
    }
    let count = failures.len();
    if let Some((first, error)) = failures.into_iter().next() {
        return Err(MigrationError::Objects { count, first, error });
    }
    if contended > 0 {
        return Ok(Migration::Interrupted);
    }
    match cluster::strike_stored_versions(&definitions, &name, definition.metadata.resource_version.as_deref()).await {
        Ok(true) => Ok(Migration::Done(written)),
        Ok(false) => Ok(Migration::Interrupted),
        Err(error) => Err(MigrationError::Definition { what: name, error }),
    }
}

/// Makes the API server store an object in today's version.
async fn write_anew(client: &Client, kind: KindName, namespace: &str, name: &str) -> Result<Written, kube::Error> {
    let objects: Api<Object> = Api::namespaced_with(client.clone(), namespace, &api_resource(kind));
    for _ in 0..TRIES {
        match resources::store_anew(&objects, name).await {
            Ok(()) => return Ok(Written::Yes),
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Written::Gone),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Written::Contended)
}

/// The name of a kind's definition.
pub(crate) fn definition_of(kind: KindName) -> String {
    format!("{}.{GROUP}", kind.plural())
}

fn kind_of(definition: &str) -> Option<KindName> {
    KindName::ALL.iter().copied().find(|kind| definition_of(*kind) == definition)
}
