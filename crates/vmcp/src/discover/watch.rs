//! The watches: one for each kind, restricted to the namespace. Of Secrets and ConfigMaps only the metadata is watched.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use skep_api::resource::{KindName, Resource};
use skep_plan::key::{Key, ObjectKind};
use skep_plan::virtual_server::concerns;
use skep_plan::world::Found;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::Cluster;
use super::object::{Watched, resource_of};
use super::seen::{Contents, Seen};

/// The kinds that decide which backends there are, and how they are called.
const KINDS: &[KindName] = &[
    KindName::MCPGroup,
    KindName::MCPServer,
    KindName::MCPRemoteProxy,
    KindName::MCPServerEntry,
    KindName::MCPExternalAuthConfig,
];
/// How many objects a list holds at once.
const PAGE: u32 = 100;

/// Starts the watches of a group.
pub(super) fn spawn(tasks: &mut JoinSet<()>, cluster: &Cluster, group: &str, seen: &Arc<Seen>) {
    let Cluster { client, namespace, .. } = cluster;
    let config = watcher::Config::default().page_size(PAGE);
    for kind in KINDS.iter().copied() {
        seen.expect(kind.as_str());
        let api: Api<Watched> = Api::namespaced_with(client.clone(), namespace, &resource_of(kind));
        let (seen, group) = (seen.clone(), group.to_owned());
        let events = watcher::watcher(api, config.clone());
        let follow = async move {
            let take = |contents: &mut Contents, object: Watched| take(contents, kind, object, &group);
            follow(events, (kind.as_str(), ObjectKind::Kind(kind)), &seen, take).await;
        };
        tasks.spawn(follow.in_current_span());
    }
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
    let maps: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(client.clone(), namespace);
    let (of_secrets, of_maps) = (watcher::watcher(secrets, config.clone()), watcher::watcher(maps, config));
    seen.expect("Secret");
    seen.expect("ConfigMap");
    let (first, second) = (seen.clone(), seen.clone());
    let secrets =
        async move { follow(of_secrets, ("Secret", ObjectKind::Secret), &first, note(ObjectKind::Secret)).await };
    let maps = async move {
        follow(of_maps, ("ConfigMap", ObjectKind::ConfigMap), &second, note(ObjectKind::ConfigMap)).await;
    };
    tasks.spawn(secrets.in_current_span());
    tasks.spawn(maps.in_current_span());
}

/// Keeps what is known of one kind. A watch that fails is opened again with backoff, and what was known stays meanwhile.
async fn follow<K: kube::ResourceExt + Debug>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    (name, kind): (&'static str, ObjectKind),
    seen: &Seen,
    take: impl Fn(&mut Contents, K) -> bool,
) {
    let mut events = std::pin::pin!(events.default_backoff());
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(key(&object, kind));
                seen.change(|contents| take(contents, object));
            }
            Ok(Event::InitDone) => {
                let all = std::mem::take(&mut listed);
                seen.change(|contents| contents.retain(kind, &all));
                seen.listed(name);
            }
            Ok(Event::Apply(object)) => seen.change(|contents| take(contents, object)),
            Ok(Event::Delete(object)) => {
                let key = key(&object, kind);
                seen.change(|contents| contents.remove(&key));
            }
            Err(error) => tracing::warn!(kind = name, error = %kube_error(&error), "watch interrupted"),
        }
    }
}

/// Takes a resource. One that does not concern the group is not kept.
fn take(contents: &mut Contents, kind: KindName, object: Watched, group: &str) -> bool {
    let key = key(&object, ObjectKind::Kind(kind));
    let found = match Resource::from_value(kind, object.into_value()) {
        Ok(resource) if concerns(&resource, group) => Found::Resource(Arc::new(resource)),
        Ok(_) => return contents.remove(&key),
        Err(error) => Found::Unreadable(error.to_string()),
    };
    let is_same = contents.found.get(&key) == Some(&found);
    contents.found.insert(key, found);
    !is_same
}

/// Takes the version of an object whose content is read when it is needed.
fn note<K: kube::ResourceExt>(kind: ObjectKind) -> impl Fn(&mut Contents, K) -> bool {
    move |contents, object| {
        let version = object.resource_version().unwrap_or_default();
        let before = contents.versions.insert(key(&object, kind), version.clone());
        before != Some(version)
    }
}

fn key(object: &impl kube::ResourceExt, kind: ObjectKind) -> Key {
    Key { kind, namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

/// The innermost cause: the outer ones only say that there is one.
fn kube_error(error: &watcher::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
