//! The watches: every kind of ours, what we made, our pods, and what happens to Secrets and ConfigMaps.
//!
//! Each watch is a task that feeds the store and queues whom a change wakes. A broken watch comes back by itself, with a pause
//! that grows; an object that cannot be read is remembered as such and stops nothing. A kind of ours that cannot be listed at all
//! concerns that kind alone ([`kind`]).

mod kind;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
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
use skep_plan::pod::REGISTRY_COMPONENT;
use tokio::sync::watch as signal;
use tokio::task::JoinSet;

use self::kind::KindWatch;
use crate::failure::describe;
use crate::metrics::Metrics;
use crate::object::{Object, Tracked};
use crate::queue::Queue;
use crate::readiness::{Check, Readiness};
use crate::served::Served;
use crate::store::{ChildId, Store, Wake, child_facts, pod_facts};
use crate::write::child_resource;

/// What a check says of a cache before its first list.
const NOT_SYNCED: &str = "not synced yet";
/// Several changes of who uses a configuration within this time become one look at it.
const SOON: Duration = Duration::from_millis(250);
/// The same for each that uses it, where that is longer. A look lists all of them: were the pauses equal, users that come one
/// after the other would cost the more each, the more there are.
const SOON_FOR_EACH: Duration = Duration::from_millis(2);
/// The longest of these pauses.
const SOON_AT_MOST: Duration = Duration::from_secs(10);

/// What the watches share with the rest of the operator.
#[derive(Clone, Debug)]
pub struct Context {
    /// What is known.
    pub store: Arc<Store>,
    /// What to look at next.
    pub queue: Arc<Queue>,
    /// Where the watches report whether they have synced.
    pub readiness: Readiness,
    /// What is counted.
    pub metrics: Metrics,
    /// In which version each kind is served.
    pub served: Arc<Served>,
}

/// The watches of one operator.
#[derive(Debug)]
pub struct Watches {
    tasks: JoinSet<()>,
    settled: Vec<signal::Receiver<bool>>,
}

/// What a watch needs to do its work.
#[derive(Clone, Debug)]
struct Feed {
    store: Arc<Store>,
    queue: Arc<Queue>,
    readiness: Readiness,
    metrics: Metrics,
}

/// What a watch says of itself.
enum Signal<'a> {
    /// All objects that there were have been listed.
    Synced,
    /// A change came through the watch.
    Changed,
    /// It was interrupted, and comes back after a pause.
    Interrupted(&'a watcher::Error),
}

// === impl Watches ===

impl Watches {
    /// Starts all watches, in one namespace each or in all of them.
    pub fn start(client: &Client, namespaces: &[String], context: &Context) -> Self {
        let Context { store, queue, readiness, metrics, served } = context.clone();
        let feed = Feed { store, queue, readiness, metrics };
        let mut watches = Self { tasks: JoinSet::new(), settled: Vec::new() };
        let (discovery, discovered) = (client.clone(), served.clone());
        watches.tasks.spawn(async move { discovered.keep(discovery).await });
        let scopes: Vec<Option<&str>> = if namespaces.is_empty() {
            vec![None]
        } else {
            namespaces.iter().map(|name| Some(name.as_str())).collect()
        };
        for scope in scopes {
            for kind in KindName::ALL {
                let (settled, receiver) = signal::channel(false);
                watches.settled.push(receiver);
                let watch = KindWatch::new(*kind, client, scope, feed.clone(), served.clone(), settled);
                watches.tasks.spawn(watch.keep());
            }
            for kind in ChildKind::ALL {
                let selector = watcher::Config::default().labels(&format!("{}={}", MANAGED_LABEL.0, MANAGED_LABEL.1));
                // Of most children only the metadata is of interest; of workloads, how many pods are ready as well.
                if kind.has_generation() {
                    let api = dynamic::<Tracked>(client, scope, &child_resource(*kind));
                    watches.run(feed.clone(), scope, api, selector, Children(*kind, "children"));
                } else {
                    let api = dynamic::<PartialObjectMeta<DynamicObject>>(client, scope, &child_resource(*kind));
                    watches.run(feed.clone(), scope, api, selector, Children(*kind, "children"));
                }
            }
            // The StatefulSets of servers are made by their proxies, which know nothing of our label.
            let api = dynamic::<Tracked>(client, scope, &child_resource(ChildKind::StatefulSet));
            watches.run(
                feed.clone(),
                scope,
                api,
                watcher::Config::default().labels("toolhive=true"),
                Children(ChildKind::StatefulSet, "backends"),
            );
            let pods: Api<Pod> = scoped(client, scope);
            let ours = "app in (mcpserver,mcpremoteproxy,virtualmcpserver)";
            watches.run(feed.clone(), scope, pods.clone(), watcher::Config::default().labels(ours), Pods("of proxies"));
            watches.run(
                feed.clone(),
                scope,
                pods.clone(),
                watcher::Config::default().labels("app.kubernetes.io/name=embeddingserver"),
                Pods("of embedding servers"),
            );
            watches.run(
                feed.clone(),
                scope,
                pods.clone(),
                watcher::Config::default().labels(&format!("app.kubernetes.io/component={REGISTRY_COMPONENT}")),
                Pods("of registries"),
            );
            // The pods of backends: proxies label them with the name of their server.
            let backends = "toolhive=true,toolhive-name,app notin (mcpserver,mcpremoteproxy,virtualmcpserver)";
            watches.run(feed.clone(), scope, pods, watcher::Config::default().labels(backends), Pods("of backends"));
            let secrets: Api<PartialObjectMeta<Secret>> = scoped(client, scope);
            watches.run(feed.clone(), scope, secrets, watcher::Config::default(), Contents(ObjectKind::Secret));
            let maps: Api<PartialObjectMeta<ConfigMap>> = scoped(client, scope);
            watches.run(feed.clone(), scope, maps, watcher::Config::default(), Contents(ObjectKind::ConfigMap));
        }
        watches
    }

    /// Waits until every watch has seen all objects that there were at the start, but for kinds that the operator does without.
    pub async fn ready(&mut self) {
        for settled in &mut self.settled {
            // The sender lives as long as its watch, which lives as long as we do.
            let _gone = settled.wait_for(|settled| *settled).await;
        }
    }

    /// Ends when a watch ended, which it never should.
    pub async fn failed(&mut self) {
        let _ended = self.tasks.join_next().await;
    }

    fn run<K, T>(&mut self, feed: Feed, scope: Option<&str>, api: Api<K>, config: watcher::Config, taker: T)
    where
        K: KubeResource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
        K::DynamicType: Send + Sync,
        T: Take<K> + Send + Sync + 'static,
    {
        let (sender, receiver) = signal::channel(false);
        self.settled.push(receiver);
        let check = check_name(&taker.name(), scope);
        feed.readiness.set(&check, Check::Failed(NOT_SYNCED.to_owned()));
        self.tasks.spawn(async move {
            let mut brought = BTreeSet::new();
            let tell = |signal: Signal<'_>| match signal {
                Signal::Synced => {
                    feed.readiness.set(&check, Check::Passed(String::new()));
                    sender.send_replace(true);
                    ControlFlow::Continue(())
                }
                Signal::Changed => ControlFlow::Continue(()),
                Signal::Interrupted(error) => {
                    let why = describe(error);
                    if !*sender.borrow() {
                        feed.readiness.set(&check, Check::Failed(why.clone()));
                    }
                    tracing::warn!(watch = taker.name(), error = why, "watch interrupted");
                    ControlFlow::Continue(())
                }
            };
            pump(&feed, api, config, &taker, &mut brought, tell).await;
        });
    }
}

/// Feeds the store from a watch, until `tell` breaks off. `brought` is what the watch has brought so far: after an interruption all
/// objects are listed anew, and whatever is not among them was deleted meanwhile.
async fn pump<K, T>(
    feed: &Feed,
    api: Api<K>,
    config: watcher::Config,
    taker: &T,
    brought: &mut BTreeSet<Key>,
    mut tell: impl FnMut(Signal<'_>) -> ControlFlow<()>,
) where
    K: KubeResource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    K::DynamicType: Send + Sync,
    T: Take<K>,
{
    // Objects as old as the API server's cache are good enough: the watch brings the rest.
    let mut stream = std::pin::pin!(watch(api, config.any_semantic()).default_backoff());
    let mut listed = BTreeSet::new();
    loop {
        let signal = match stream.try_next().await {
            Ok(Some(Event::Init)) => {
                listed.clear();
                continue;
            }
            Ok(Some(Event::InitApply(object))) => {
                listed.extend(taker.key(&object));
                feed.wake(taker.put(&feed.store, object));
                continue;
            }
            Ok(Some(Event::InitDone)) => {
                let listed = std::mem::take(&mut listed);
                let known = if T::KEEPS_LIST { std::mem::take(brought) } else { taker.remembered(&feed.store) };
                for key in known.difference(&listed) {
                    feed.wake(taker.remove(&feed.store, key));
                }
                *brought = if T::KEEPS_LIST { listed } else { BTreeSet::new() };
                tell(Signal::Synced)
            }
            Ok(Some(Event::Apply(object))) => {
                if T::KEEPS_LIST {
                    brought.extend(taker.key(&object));
                }
                feed.wake(taker.put(&feed.store, object));
                tell(Signal::Changed)
            }
            Ok(Some(Event::Delete(object))) => {
                if let Some(key) = taker.key(&object) {
                    brought.remove(&key);
                    feed.wake(taker.remove(&feed.store, &key));
                }
                tell(Signal::Changed)
            }
            Ok(None) => return,
            Err(error) => tell(Signal::Interrupted(&error)),
        };
        if signal.is_break() {
            return;
        }
    }
}

/// What a check of a cache is called.
fn check_name(watch: &str, scope: Option<&str>) -> String {
    match scope {
        None => format!("cache/{watch}"),
        Some(namespace) => format!("cache/{namespace}/{watch}"),
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
/// Children of a kind, and what to call the watch of them.
struct Children(ChildKind, &'static str);
/// Pods, and of what.
struct Pods(&'static str);
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

impl Take<Tracked> for Children {
    fn name(&self) -> String {
        format!("{} ({})", self.0.api().2, self.1)
    }

    fn key(&self, object: &Tracked) -> Option<Key> {
        Self::key_of(object.object().metadata())
    }

    fn put(&self, store: &Store, object: Tracked) -> Wake {
        let Some(key) = self.key(&object) else { return Wake::default() };
        let object = object.object();
        store.see_child(self.id(&key), child_facts(self.0, object.metadata(), Some(object.value())))
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.miss_child(&self.id(key))
    }
}

impl Take<PartialObjectMeta<DynamicObject>> for Children {
    fn name(&self) -> String {
        format!("{} ({})", self.0.api().2, self.1)
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
        format!("pods ({})", self.0)
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
