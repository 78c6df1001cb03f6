use std::net::IpAddr;

use http::{HeaderMap, HeaderValue};
use skep_mcp::list::List;
use skep_upstream::UpstreamState;
use skep_upstream::memory::MemoryUpstream;

use super::*;
use crate::catalogue::{Catalogue, Item};

const LIMITS: Limits = Limits { total: 100_000, per_owner: 50_000 };

fn offers(catalogues: &Arc<Catalogues>) -> Offers {
    let (upstream, _calls) = MemoryUpstream::new(UpstreamState::Starting);
    Offers::within(upstream, Duration::from_secs(1), catalogues.clone())
}

/// What a backend offers to someone: a tool of about a kilobyte.
fn catalogue(name: &str) -> Catalogue {
    let description = "d".repeat(1000);
    let tool = format!(r#"{{"name":"{name}","description":"{description}","inputSchema":{{}}}}"#);
    Catalogue { tools: vec![Item::parse(List::Tools, &tool).unwrap()], ..Catalogue::default() }
}

/// A client without an identity, with a key of its own.
fn client(network: u8, key: usize) -> ClientContext {
    let headers = HeaderMap::from_iter([("x-key".parse().unwrap(), HeaderValue::from(key))]);
    ClientContext { headers, peer: Some(IpAddr::from([10, 0, 0, network])), ..ClientContext::default() }
}

/// Whether the outcome of a fetch changes what is known.
fn settle(offer: &Arc<Offer>, catalogue: Catalogue) -> bool {
    offer.begin().0.unwrap().settle(Ok(catalogue)).is_changed
}

fn offer(offers: &Offers, client: &ClientContext) -> Arc<Offer> {
    offers.offer(Viewer::of(client, false), client)
}

#[tokio::test]
async fn clients_that_see_the_same_share_one_catalogue() {
    let catalogues = Arc::new(Catalogues::within(LIMITS));
    let backends = [offers(&catalogues), offers(&catalogues)];
    let mut first: Option<Arc<Catalogue>> = None;
    for (backend, key) in (0..200).map(|number| (&backends[number % 2], number)) {
        let offer = offer(backend, &client(1, key));
        let again = Catalogue { time_to_live: Some(Duration::from_secs(key as u64)), ..catalogue("same") };
        assert!(settle(&offer, again), "the first one of this client");
        let known = offer.known().unwrap().catalogue;
        assert!(Arc::ptr_eq(first.get_or_insert_with(|| known.clone()), &known));
    }
    assert_eq!(catalogues.size(), catalogue("same").size());
}

#[tokio::test]
async fn one_client_that_sees_something_else_each_time_displaces_its_own() {
    let catalogues = Arc::new(Catalogues::within(LIMITS));
    let (one, other) = (offers(&catalogues), offers(&catalogues));
    let of_ann = offer(&other, &client(1, 0));
    settle(&of_ann, catalogue("ann"));
    for key in 0..1000 {
        settle(&offer(&one, &client(2, key)), catalogue(&format!("tool-{key}")));
        assert!(catalogues.size() <= LIMITS.per_owner + 2 * catalogue("ann").size());
    }
    assert!(of_ann.known().is_some(), "other clients keep theirs");
    assert!(offer(&one, &client(2, 999)).known().is_some());
    let evicted = offer(&one, &client(2, 900));
    assert!(evicted.known().is_none() && evicted.is_due(CatalogueUse::List), "it is fetched again when it is needed");
    assert!(!offer(&one, &client(2, 999)).is_due(CatalogueUse::List));
}

#[tokio::test]
async fn a_client_that_seems_to_be_many_displaces_itself() {
    let offers = offers(&Arc::new(Catalogues::within(LIMITS)));
    let anyone = offers.offer(Viewer::Anyone, &ClientContext::default());
    let of_ann = offer(&offers, &client(1, 0));
    for key in 0..5000 {
        offer(&offers, &client(2, key));
    }
    assert_eq!(offers.with(|viewers| viewers.values().count()), CLIENTS.per_owner + 2);
    assert!(Arc::ptr_eq(&of_ann, &offer(&offers, &client(1, 0))));
    assert!(Arc::ptr_eq(&anyone, &offers.offer(Viewer::Anyone, &ClientContext::default())));
}

#[tokio::test]
async fn what_all_clients_see_is_kept_whatever_clients_do() {
    let catalogues = Arc::new(Catalogues::within(Limits { total: 1, per_owner: 1 }));
    let offers = offers(&catalogues);
    let anyone = offers.offer(Viewer::Anyone, &ClientContext::default());
    assert!(settle(&anyone, catalogue("all")));
    assert!(!settle(&anyone, catalogue("all")), "nothing changed");
    for key in 0..10 {
        settle(&offer(&offers, &client(2, key)), catalogue(&format!("tool-{key}")));
    }
    assert!(anyone.known().is_some());
    assert_eq!(catalogues.size(), catalogue("tool-9").size());
    assert!(settle(&anyone, catalogue("other")));
    assert_eq!(&*anyone.known().unwrap().catalogue.tools[0].name, "other");
}

#[test]
fn the_order_of_headers_makes_no_other_viewer() {
    let headers = |names: [&'static str; 2]| {
        let headers = names.map(|name| (name.parse().unwrap(), HeaderValue::from_static(name)));
        Viewer::of(&ClientContext::with_headers(HeaderMap::from_iter(headers)), false)
    };
    assert_eq!(headers(["x-a", "x-b"]), headers(["x-b", "x-a"]));
    assert_ne!(headers(["x-a", "x-b"]), headers(["x-a", "x-c"]));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_is_dropped_is_over_and_blocks_no_other() {
    let offers = offers(&Arc::new(Catalogues::within(LIMITS)));
    let offer = offers.offer(Viewer::Anyone, &ClientContext::default());
    let (flight, ended) = offer.begin();
    assert!(offer.begin().0.is_none(), "there is one at a time");
    let waiting = offer.outcome_after(ended, Duration::from_secs(10));
    // The task of the fetch panicked or was cancelled.
    drop(flight);
    assert_eq!(waiting.await, Err(FetchError::Call(skep_upstream::CallError::Cancelled)));
    assert!(!offer.is_due(CatalogueUse::List), "it failed just now");
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(offer.is_due(CatalogueUse::List) && offer.begin().0.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_catalogue_that_holds_for_no_time_is_refreshed_with_each_list() {
    let offers = offers(&Arc::new(Catalogues::within(LIMITS)));
    let offer = offers.offer(Viewer::Anyone, &ClientContext::default());
    let due = |offer: &Offer| (offer.is_due(CatalogueUse::List), offer.is_due(CatalogueUse::Call));
    for (milliseconds, list, call) in
        [(Some(0), 1, 30), (Some(10_000), 10, 30), (None, 30, 30), (Some(60_000), 60, 60), (Some(u64::MAX), 3600, 3600)]
    {
        let time_to_live = milliseconds.map(Duration::from_millis);
        settle(&offer, Catalogue { time_to_live, ..catalogue("tool") });
        let mut passed = 0;
        for (seconds, expected) in [(list, (true, list == call)), (call, (true, true))] {
            assert_eq!(due(&offer).0, passed >= list, "{milliseconds:?} after {passed} s");
            tokio::time::advance(Duration::from_secs(seconds - passed)).await;
            passed = seconds;
            assert_eq!(due(&offer), expected, "{milliseconds:?} after {passed} s");
        }
    }
}
