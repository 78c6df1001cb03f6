//! The watches: every kind of ours, what we made, our pods, and what happens to Secrets and ConfigMaps.
//!
//! Each watch is a task that feeds the store and queues the resources that a change concerns. A watch that is lost is restarted
//! with backoff; an object that cannot be read is remembered as such and stops nothing. A kind of ours that cannot be listed at all
//! concerns that kind alone ([`kind`]), and a namespace of several in which the operator has no rights that namespace ([`cache`]).

mod cache;
mod kind;
mod sink;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Client;
use kube::api::Api;
use kube::core::{ApiResource, Resource as KubeResource};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use skep_api::resource::KindName;
use skep_plan::child::{ChildKind, MANAGED_LABEL};
use skep_plan::key::ObjectKind;
use skep_plan::kinds::{self, Backend};
use tokio::sync::watch as signal;
use tokio::task::JoinSet;

use self::cache::CacheWatch;
use self::kind::KindWatch;
use self::sink::{Children, Contents, Pods, Resources, Sink};
use crate::failure::{describe, refusal};
use crate::metrics::Metrics;
use crate::object::{Metadata, Object, Tracked};
use crate::queue::Queue;
use crate::readiness::Readiness;
use crate::served::Served;
use crate::store::{Store, Wake};
use crate::write::child_resource;

/// How many objects a page of a list has. An object takes up to 1.5 MiB, and its users decide: a page is all that is in memory at a time.
pub(crate) const PAGE: u32 = 20;
/// The same for lists of metadata, whose annotations take up to 256 KiB.
const METADATA_PAGE: u32 = 50;

/// What a check says of a cache before its first list.
const NOT_SYNCED: &str = "not synced yet";
/// A watch that did not fail for so long is open: it is retried more often than that.
const PROBATION: Duration = Duration::from_mins(1);
/// So many failures of a watch in a row are no interruption any more: what is cached may be long out of date.
const MANY_FAILURES: u32 = 3;
/// Several changes of the users of a configuration within this time become one reconcile of it.
const SOON: Duration = Duration::from_millis(250);
/// The same for each that uses it, where that is longer. A reconcile lists all of them: were the delays equal, users that come one
/// after the other would cost the more each, the more there are.
const SOON_FOR_EACH: Duration = Duration::from_millis(2);
/// The longest of these delays.
const SOON_AT_MOST: Duration = Duration::from_secs(10);

/// What the watches share with the rest of the operator.
#[derive(Clone, Debug)]
pub struct Context {
    /// What is known.
    pub store: Arc<Store>,
    /// The work queue.
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
    /// Whether several namespaces are watched, so that the rest can do without one of them.
    is_one_of_several: bool,
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
    /// It was interrupted, and is restarted with backoff.
    Interrupted(&'a watcher::Error),
}

// === impl Watches ===

impl Watches {
    /// Starts all watches, in one namespace each or in all of them.
    pub fn start(client: &Client, namespaces: &[String], context: &Context) -> Self {
        let Context { store, queue, readiness, metrics, served } = context.clone();
        let feed = Feed { store, queue, readiness, metrics };
        let mut watches = Self { tasks: JoinSet::new(), settled: Vec::new(), is_one_of_several: namespaces.len() > 1 };
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
            watches.start_children(client, scope, &feed);
            watches.start_pods(client, scope, &feed);
            let secrets = dynamic::<Metadata>(client, scope, &ApiResource::erase::<Secret>(&()));
            watches.run(feed.clone(), scope, secrets, metadata_config(), Contents(ObjectKind::Secret));
            let maps = dynamic::<Metadata>(client, scope, &ApiResource::erase::<ConfigMap>(&()));
            watches.run(feed.clone(), scope, maps, metadata_config(), Contents(ObjectKind::ConfigMap));
        }
        watches
    }

    fn start_children(&mut self, client: &Client, scope: Option<&str>, feed: &Feed) {
        for kind in ChildKind::ALL {
            let selector = format!("{}={}", MANAGED_LABEL.0, MANAGED_LABEL.1);
            // Of most children only the metadata is of interest; of workloads, how many pods are ready as well.
            if kind.has_generation() {
                let api = dynamic::<Tracked>(client, scope, &child_resource(*kind));
                self.run(feed.clone(), scope, api, config().labels(&selector), Children(*kind, "children"));
            } else {
                let api = dynamic::<Metadata>(client, scope, &child_resource(*kind));
                let config = metadata_config().labels(&selector);
                self.run(feed.clone(), scope, api, config, Children(*kind, "children"));
            }
        }
        // Backends are made by proxies, which know nothing of our label.
        let api = dynamic::<Tracked>(client, scope, &child_resource(Backend::KIND));
        self.run(feed.clone(), scope, api, config().labels(Backend::SELECTOR), Children(Backend::KIND, "backends"));
    }

    fn start_pods(&mut self, client: &Client, scope: Option<&str>, feed: &Feed) {
        let selectors = kinds::pod_selectors().into_iter().chain([("of backends", Backend::pod_selector())]);
        for (name, selector) in selectors {
            let pods = dynamic::<Object>(client, scope, &ApiResource::erase::<Pod>(&()));
            self.run(feed.clone(), scope, pods, config().labels(&selector), Pods(name));
        }
    }

    /// Waits until every watch has seen all objects that there were at the start, but for kinds and namespaces that the operator does
    /// without.
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

    fn run<K, T>(&mut self, feed: Feed, scope: Option<&str>, api: Api<K>, config: watcher::Config, sink: T)
    where
        K: KubeResource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
        K::DynamicType: Send + Sync,
        T: Sink<K> + Send + Sync + 'static,
    {
        let (settled, receiver) = signal::channel(false);
        self.settled.push(receiver);
        let watch = CacheWatch::new(sink.name(), scope, self.is_one_of_several, feed, settled);
        self.tasks.spawn(async move { watch.keep(api, config, sink).await });
    }
}

/// How whole objects are listed and watched.
fn config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

/// How metadata are listed and watched.
fn metadata_config() -> watcher::Config {
    watcher::Config::default().page_size(METADATA_PAGE)
}

/// Feeds the store from a watch, until `on_signal` breaks off. `delivered` holds the ids of what the watch has delivered so far: after an
/// interruption all objects are listed anew, and whatever is not among them was deleted meanwhile.
async fn pump<K, T>(
    feed: &Feed,
    api: Api<K>,
    config: watcher::Config,
    sink: &T,
    delivered: &mut BTreeSet<T::Id>,
    on_signal: impl FnMut(Signal<'_>) -> ControlFlow<()>,
) where
    K: KubeResource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    K::DynamicType: Send + Sync,
    T: Sink<K>,
{
    // The most recent objects, not those of a cache that may be behind: an operator that starts with what was there a while ago would
    // apply the plan of that time, and roll pods back and forth.
    pump_events(feed, watch(api, config).default_backoff(), sink, delivered, on_signal).await;
}

/// Feeds the store from the events of a watch.
async fn pump_events<K, T: Sink<K>>(
    feed: &Feed,
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    sink: &T,
    delivered: &mut BTreeSet<T::Id>,
    mut on_signal: impl FnMut(Signal<'_>) -> ControlFlow<()>,
) {
    let mut stream = std::pin::pin!(events);
    let mut listed = BTreeSet::new();
    loop {
        let signal = match stream.try_next().await {
            Ok(Some(Event::Init)) => {
                listed.clear();
                continue;
            }
            Ok(Some(Event::InitApply(object))) => {
                let id = sink.id(&object);
                if T::TRACKS_IDS {
                    // At once, and not with the end of the list: a list that breaks off has filled the store as well.
                    delivered.extend(id.clone());
                }
                listed.extend(id);
                feed.wake(sink.put(&feed.store, object));
                continue;
            }
            Ok(Some(Event::InitDone)) => {
                let listed = std::mem::take(&mut listed);
                let known = if T::TRACKS_IDS { std::mem::take(delivered) } else { sink.stored(&feed.store) };
                for id in known.difference(&listed) {
                    feed.wake(sink.remove(&feed.store, id));
                }
                *delivered = if T::TRACKS_IDS { listed } else { BTreeSet::new() };
                on_signal(Signal::Synced)
            }
            Ok(Some(Event::Apply(object))) => {
                if T::TRACKS_IDS {
                    delivered.extend(sink.id(&object));
                }
                feed.wake(sink.put(&feed.store, object));
                on_signal(Signal::Changed)
            }
            Ok(Some(Event::Delete(object))) => {
                if let Some(id) = sink.id(&object) {
                    delivered.remove(&id);
                    feed.wake(sink.remove(&feed.store, &id));
                }
                on_signal(Signal::Changed)
            }
            Ok(None) => return,
            Err(error) => on_signal(Signal::Interrupted(&error)),
        };
        if signal.is_break() {
            return;
        }
    }
}

/// The status code that the API server sent to a watch; 0 for a failure of the connection.
fn code(error: &watcher::Error) -> u16 {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code,
        _ => 0,
    }
}

fn refused(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => refusal(status),
        other => describe(other),
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
            let delay = delay_for(self.store.user_count(&key));
            self.queue.add_within(key, delay);
        }
    }
}

/// How long to wait before a configuration whose users changed is reconciled.
fn delay_for(users: usize) -> Duration {
    SOON_FOR_EACH.saturating_mul(u32::try_from(users).unwrap_or(u32::MAX)).clamp(SOON, SOON_AT_MOST)
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

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};
    use serde_json::json;
    use skep_plan::key::Key;

    use super::*;
    use crate::object::Object;

    fn listed_server(name: &str) -> Event<Object> {
        let object = json!({
            "kind": "MCPServer", "metadata": { "name": name, "namespace": "ns", "uid": name }, "spec": { "image": "i" },
        });
        Event::InitApply(serde_json::from_value(object).unwrap())
    }

    /// A list is interrupted after its first page, and an object of that page is deleted before the next list.
    #[tokio::test]
    async fn an_object_of_an_interrupted_list_that_the_next_list_lacks_is_removed() {
        let first = || vec![Event::Init, listed_server("a")];
        let second = || vec![Event::Init, listed_server("b"), Event::InitDone];
        let in_one_watch = vec![first().into_iter().chain(second()).collect()];
        // The watch of another version begins, say.
        let in_two_watches = vec![first(), second()];
        for watches in [in_one_watch, in_two_watches] {
            let store = Arc::new(Store::default());
            let (queue, readiness, metrics) = (Arc::default(), Readiness::default(), Metrics::new());
            let feed = Feed { store: store.clone(), queue, readiness, metrics };
            let mut delivered = BTreeSet::new();
            let is_known = |name: &str| store.entry(&Key::resource(KindName::MCPServer, "ns", name)).is_some();
            for events in watches {
                let sink = Resources(KindName::MCPServer);
                let on_signal = |_: Signal<'_>| ControlFlow::Continue(());
                pump_events(&feed, stream::iter::<Vec<_>>(events).map(Ok), &sink, &mut delivered, on_signal).await;
            }
            assert_eq!((is_known("a"), is_known("b")), (false, true));
            assert_eq!(delivered.len(), 1);
        }
    }

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
            due.get_or_insert(now + delay_for(known));
        }
        100 * (listed + users) / users
    }

    #[test]
    fn users_that_come_one_after_the_other_cost_no_more_each_when_there_are_many() {
        let (few, many) = (listed_for_a_hundred(500), listed_for_a_hundred(5000));
        assert!(2 * many < 3 * few, "{few} names for a hundred of 500 users, {many} for a hundred of 5000");
    }

    #[test]
    fn a_configuration_of_few_users_is_reconciled_soon() {
        assert_eq!(delay_for(0), SOON);
        assert_eq!(delay_for(100), SOON);
        assert!(delay_for(usize::MAX) <= SOON_AT_MOST);
    }
}
