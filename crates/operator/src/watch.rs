//! The watches: every kind of ours, what we made, our pods, and what happens to Secrets and ConfigMaps.
//!
//! Each watch is a task that feeds the store and queues whom a change wakes. A broken watch comes back by itself, with a pause
//! that grows; an object that cannot be read is remembered as such and stops nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, PartialObjectMeta, Resource as KubeResource};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Client, ResourceExt as _};
use skep_api::resource::KindName;
use skep_plan::child::{ChildKind, MANAGED_LABEL};
use skep_plan::key::{Key, ObjectKind};
use tokio::sync::watch as signal;
use tokio::task::JoinSet;

use crate::object::Object;
use crate::queue::Queue;
use crate::store::{ChildId, Store, Wake, child_facts, pod_facts};
use crate::write::{api_resource, child_resource};

/// Several changes of who uses a configuration within this time become one look at it.
const SOON: Duration = Duration::from_millis(250);
/// The same for each that uses it, where that is longer. A look lists all of them: were the pauses equal, users that come one
/// after the other would cost the more each, the more there are.
const SOON_FOR_EACH: Duration = Duration::from_millis(2);
/// The longest of these pauses.
const SOON_AT_MOST: Duration = Duration::from_secs(10);

/// The watches of one operator.
#[derive(Debug)]
pub struct Watches {
    tasks: JoinSet<()>,
    ready: Vec<signal::Receiver<bool>>,
}

/// What a watch needs to do its work.
#[derive(Clone, Debug)]
struct Feed {
    store: Arc<Store>,
    queue: Arc<Queue>,
}

// === impl Watches ===

impl Watches {
    /// Starts all watches, in one namespace each or in all of them.
    pub fn start(client: &Client, namespaces: &[String], store: Arc<Store>, queue: Arc<Queue>) -> Self {
        let feed = Feed { store, queue };
        let mut watches = Self { tasks: JoinSet::new(), ready: Vec::new() };
        let scopes: Vec<Option<&str>> = if namespaces.is_empty() {
            vec![None]
        } else {
            namespaces.iter().map(|name| Some(name.as_str())).collect()
        };
        for scope in scopes {
            for kind in KindName::ALL {
                let api = dynamic::<Object>(client, scope, &api_resource(*kind));
                watches.run(feed.clone(), api, watcher::Config::default(), Resources(*kind));
            }
            for kind in ChildKind::ALL {
                let selector = watcher::Config::default().labels(&format!("{}={}", MANAGED_LABEL.0, MANAGED_LABEL.1));
                // Of most children only the metadata is of interest; of workloads, how many pods are ready as well.
                if kind.has_generation() {
                    let api = dynamic::<Object>(client, scope, &child_resource(*kind));
                    watches.run(feed.clone(), api, selector, Children(*kind));
                } else {
                    let api = dynamic::<PartialObjectMeta<DynamicObject>>(client, scope, &child_resource(*kind));
                    watches.run(feed.clone(), api, selector, Children(*kind));
                }
            }
            // The StatefulSets of servers are made by their proxies, which know nothing of our label.
            let api = dynamic::<Object>(client, scope, &child_resource(ChildKind::StatefulSet));
            watches.run(
                feed.clone(),
                api,
                watcher::Config::default().labels("toolhive=true"),
                Children(ChildKind::StatefulSet),
            );
            let pods: Api<Pod> = scoped(client, scope);
            let ours = "app in (mcpserver,mcpremoteproxy,virtualmcpserver)";
            watches.run(feed.clone(), pods.clone(), watcher::Config::default().labels(ours), Pods);
            watches.run(
                feed.clone(),
                pods,
                watcher::Config::default().labels("app.kubernetes.io/name=embeddingserver"),
                Pods,
            );
            let secrets: Api<PartialObjectMeta<Secret>> = scoped(client, scope);
            watches.run(feed.clone(), secrets, watcher::Config::default(), Contents(ObjectKind::Secret));
            let maps: Api<PartialObjectMeta<ConfigMap>> = scoped(client, scope);
            watches.run(feed.clone(), maps, watcher::Config::default(), Contents(ObjectKind::ConfigMap));
        }
        watches
    }

    /// Waits until every watch has seen all objects that there were at the start.
    pub async fn ready(&mut self) {
        for ready in &mut self.ready {
            // The sender lives as long as its watch, which lives as long as we do.
            let _gone = ready.wait_for(|ready| *ready).await;
        }
    }

    /// Ends when a watch ended, which it never should.
    pub async fn failed(&mut self) {
        let _ended = self.tasks.join_next().await;
    }

    fn run<K, T>(&mut self, feed: Feed, api: Api<K>, config: watcher::Config, taker: T)
    where
        K: KubeResource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
        K::DynamicType: Send + Sync,
        T: Take<K> + Send + Sync + 'static,
    {
        let (sender, receiver) = signal::channel(false);
        self.ready.push(receiver);
        // Objects as old as the API server's cache are good enough: the watch brings the rest.
        let config = config.any_semantic();
        self.tasks.spawn(async move {
            let mut stream = std::pin::pin!(watch(api, config).default_backoff());
            // What this watch has brought. After an interruption all objects are listed anew, and whatever is not
            // among them went meanwhile.
            let (mut brought, mut listed) = (BTreeSet::new(), BTreeSet::new());
            loop {
                match stream.try_next().await {
                    Ok(Some(Event::Init)) => listed.clear(),
                    Ok(Some(Event::InitApply(object))) => {
                        listed.extend(taker.key(&object));
                        feed.wake(taker.put(&feed.store, object));
                    }
                    Ok(Some(Event::InitDone)) => {
                        let listed = std::mem::take(&mut listed);
                        let known = if T::KEEPS_LIST { brought } else { taker.remembered(&feed.store) };
                        for key in known.difference(&listed) {
                            feed.wake(taker.remove(&feed.store, key));
                        }
                        brought = if T::KEEPS_LIST { listed } else { BTreeSet::new() };
                        sender.send_replace(true);
                    }
                    Ok(Some(Event::Apply(object))) => {
                        if T::KEEPS_LIST {
                            brought.extend(taker.key(&object));
                        }
                        feed.wake(taker.put(&feed.store, object));
                    }
                    Ok(Some(Event::Delete(object))) => {
                        if let Some(key) = taker.key(&object) {
                            brought.remove(&key);
                            feed.wake(taker.remove(&feed.store, &key));
                        }
                    }
                    Ok(None) => return,
                    Err(error) => tracing::warn!(watch = taker.name(), %error, "watch interrupted"),
                }
            }
        });
    }
}

// === impl Feed ===

impl Feed {
    fn wake(&self, wake: Wake) {
        for key in wake.now {
            self.queue.add(key);
        }
        for key in wake.soon {
            let pause = pause_for(self.store.user_count(&key));
            self.queue.add_within(key, pause);
        }
    }
}

/// How long to wait before a look at a configuration whose users changed.
fn pause_for(users: usize) -> Duration {
    SOON_FOR_EACH.saturating_mul(u32::try_from(users).unwrap_or(u32::MAX)).clamp(SOON, SOON_AT_MOST)
}

/// How the objects of a watch go into the store.
trait Take<K> {
    /// What it watches, for logs.
    fn name(&self) -> String;
    /// What the store calls an object.
    fn key(&self, object: &K) -> Option<Key>;
    /// Takes an object in.
    fn put(&self, store: &Store, object: K) -> Wake;
    /// Forgets an object.
    fn remove(&self, store: &Store, key: &Key) -> Wake;
    /// What the store remembers of this watch, where that is less than all objects there are and the watch keeps no list of
    /// its own ([`Self::KEEPS_LIST`]).
    fn remembered(&self, _: &Store) -> BTreeSet<Key> {
        BTreeSet::new()
    }
    /// Whether the watch itself keeps a list of what it has brought.
    const KEEPS_LIST: bool = true;
}

struct Resources(KindName);
struct Children(ChildKind);
struct Pods;
struct Contents(ObjectKind);

impl Take<Object> for Resources {
    fn name(&self) -> String {
        self.0.plural().to_owned()
    }

    fn key(&self, object: &Object) -> Option<Key> {
        Some(Key::resource(self.0, &object.namespace()?, &object.name_any()))
    }

    fn put(&self, store: &Store, object: Object) -> Wake {
        store.see_resource(self.0, object)
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.remove_resource(key)
    }
}

impl Children {
    /// Children share the shape of a key; their kind is known by the watch.
    fn key_of(metadata: &ObjectMeta) -> Option<Key> {
        Some(Key { kind: ObjectKind::ConfigMap, namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
    }

    fn id(&self, key: &Key) -> ChildId {
        ChildId { kind: self.0, namespace: key.namespace.clone(), name: key.name.clone() }
    }
}

impl Take<Object> for Children {
    fn name(&self) -> String {
        self.0.api().2.to_owned()
    }

    fn key(&self, object: &Object) -> Option<Key> {
        Self::key_of(object.metadata())
    }

    fn put(&self, store: &Store, object: Object) -> Wake {
        let Some(key) = self.key(&object) else { return Wake::default() };
        store.see_child(self.id(&key), child_facts(self.0, object.metadata(), Some(object.value())))
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.miss_child(&self.id(key))
    }
}

impl Take<PartialObjectMeta<DynamicObject>> for Children {
    fn name(&self) -> String {
        self.0.api().2.to_owned()
    }

    fn key(&self, object: &PartialObjectMeta<DynamicObject>) -> Option<Key> {
        Self::key_of(&object.metadata)
    }

    fn put(&self, store: &Store, object: PartialObjectMeta<DynamicObject>) -> Wake {
        let Some(key) = self.key(&object) else { return Wake::default() };
        store.see_child(self.id(&key), child_facts(self.0, &object.metadata, None))
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.miss_child(&self.id(key))
    }
}

impl Take<Pod> for Pods {
    fn name(&self) -> String {
        "pods".to_owned()
    }

    fn key(&self, object: &Pod) -> Option<Key> {
        Some(Key { kind: ObjectKind::ConfigMap, namespace: object.namespace()?, name: object.name_any() })
    }

    fn put(&self, store: &Store, object: Pod) -> Wake {
        let Some(namespace) = object.namespace() else { return Wake::default() };
        pod_facts(&object).map(|facts| store.put_pod(&namespace, facts)).unwrap_or_default()
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.remove_pod(&key.namespace, &key.name)
    }
}

impl<K: KubeResource> Take<PartialObjectMeta<K>> for Contents {
    fn name(&self) -> String {
        self.0.to_string()
    }

    fn key(&self, object: &PartialObjectMeta<K>) -> Option<Key> {
        Some(Key { kind: self.0, namespace: object.metadata.namespace.clone()?, name: object.metadata.name.clone()? })
    }

    fn put(&self, store: &Store, object: PartialObjectMeta<K>) -> Wake {
        let Some(key) = self.key(&object) else { return Wake::default() };
        store.content_changed(&key, object.metadata.resource_version.as_deref())
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.content_changed(key, None)
    }

    fn remembered(&self, store: &Store) -> BTreeSet<Key> {
        store.contents(self.0)
    }

    const KEEPS_LIST: bool = false;
}

fn dynamic<K>(client: &Client, namespace: Option<&str>, resource: &ApiResource) -> Api<K>
where
    K: KubeResource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: KubeResource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many names are listed for a hundred of so many users that come one after the other.
    fn listed_for_a_hundred(users: usize) -> usize {
        let between = Duration::from_millis(20);
        let (mut now, mut due, mut listed) = (Duration::ZERO, None, 0);
        for known in 1..=users {
            now += between;
            if due.is_some_and(|due| due <= now) {
                listed += known - 1;
                due = None;
            }
            due.get_or_insert(now + pause_for(known));
        }
        100 * (listed + users) / users
    }

    #[test]
    fn users_that_come_one_after_the_other_cost_no_more_each_when_there_are_many() {
        let (few, many) = (listed_for_a_hundred(500), listed_for_a_hundred(5000));
        assert!(2 * many < 3 * few, "{few} names for a hundred of 500 users, {many} for a hundred of 5000");
    }

    #[test]
    fn a_configuration_of_few_users_is_looked_at_soon() {
        assert_eq!(pause_for(0), SOON);
        assert_eq!(pause_for(100), SOON);
        assert!(pause_for(usize::MAX) <= SOON_AT_MOST);
    }
}
