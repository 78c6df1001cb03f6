use skep_mcp::list::List;

use super::*;
use crate::catalogue::{Catalogue, Item};

fn views(limits: Limits) -> Views {
    let views = Views::new(Rules::of(&serde_json::from_str("{}").unwrap()), CompositeTools::default());
    Views { kept: Mutex::new(Kept::within(limits)), ..views }
}

/// One backend that offers a tool.
fn offered(tool: &str) -> Parts {
    let text = format!(r#"{{"name":"{tool}","description":"{}","inputSchema":{{}}}}"#, "d".repeat(1000));
    let catalogue = Catalogue { tools: vec![Item::parse(List::Tools, &text).unwrap()], ..Catalogue::default() };
    let digest = catalogue.digest();
    let offered = BTreeMap::from([("backend".into(), Offered { digest, catalogue: Arc::new(catalogue) })]);
    Parts { offered, ..Parts::default() }
}

impl Views {
    fn made(&self, parts: Parts, owner: Owner) -> Arc<ClientView> {
        self.made_of(parts.digest(), parts, owner)
    }
}

fn owner(name: &str) -> Owner {
    Owner::from(Arc::from(name))
}

#[test]
fn clients_that_see_the_same_share_one_view() {
    let views = views(Limits::of_total(64 * 1024 * 1024));
    let made = views.made(offered("same"), owner("ann"));
    for number in 0..100 {
        assert!(Arc::ptr_eq(&made, &views.made(offered("same"), owner(&number.to_string()))));
    }
    assert!(Arc::ptr_eq(&made, &views.made(offered("same"), None)));
}

#[test]
fn views_of_one_client_displace_its_own_that_was_unused_for_longest() {
    let size = views(Limits::of_total(64 * 1024 * 1024)).made(offered("tool-0"), None).size();
    assert!(size > 3000, "the catalogue, the element and the first page: {size}");
    let views = views(Limits { total: 100 * size, per_owner: 10 * size + size / 2 });
    let of_ann = views.made(offered("ann"), owner("ann"));
    let first = views.made(offered("tool-0"), owner("hostile"));
    for number in 1..1000 {
        views.made(offered(&format!("tool-{number}")), owner("hostile"));
        assert!(Arc::ptr_eq(&first, &views.made(offered("tool-0"), owner("hostile"))), "it is in use");
        assert!(views.with(|kept| kept.made.total()) <= 11 * size + size / 2);
    }
    assert!(Arc::ptr_eq(&of_ann, &views.made(offered("ann"), owner("ann"))));
}

#[test]
fn of_the_views_of_all_clients_the_last_one_is_kept() {
    let views = views(Limits::of_total(64 * 1024 * 1024));
    let before = Arc::downgrade(&views.made(offered("before"), None));
    let now = views.made(offered("now"), None);
    assert!(before.upgrade().is_none());
    assert!(Arc::ptr_eq(&now, &views.made(offered("now"), None)));
}

fn catalogue(name: &str, tools: &[&str]) -> (BackendName, Offered) {
    let items = tools.iter().map(|tool| {
        let text = format!(r#"{{"name":"{tool}","inputSchema":{{}}}}"#);
        Item::parse(List::Tools, &text).unwrap()
    });
    let resource = Item::parse(List::Resources, r#"{"uri":"file:///r","name":"r"}"#).unwrap();
    let prompt = Item::parse(List::Prompts, r#"{"name":"p"}"#).unwrap();
    let catalogue =
        Catalogue { tools: items.collect(), resources: vec![resource], prompts: vec![prompt], ..Catalogue::default() };
    (name.into(), Offered { digest: catalogue.digest(), catalogue: Arc::new(catalogue) })
}

#[test]
fn how_backends_are_changes_what_is_listed_and_no_name() {
    let composite = r#"{"name":"both","description":"d","parameters":{"type":"object"},
        "steps":[{"id":"s","tool":"a.z"},{"id":"t","tool":"b.y"}]}"#;
    for strategy in ["prefix", "priority", "manual", "prefixOnConflict"] {
        let rules =
            format!(r#"{{"conflictResolution":"{strategy}","conflictResolutionConfig":{{"priorityOrder":["a"]}}}}"#);
        let composite = CompositeTools::new(&[serde_json::from_str(composite).unwrap()]).unwrap();
        let views = Views::new(Rules::of(&serde_json::from_str(&rules).unwrap()), composite);
        let parts = |unavailable: &[&str]| Parts {
            offered: BTreeMap::from([catalogue("a", &["x", "z"]), catalogue("b", &["x", "y"])]),
            unavailable: unavailable.iter().map(|name| BackendName::from(*name)).collect(),
        };
        let all = views.made(parts(&[]), None);
        for down in ["a", "b"] {
            let some = views.made(parts(&[down]), None);
            assert_eq!(some.view, all.view, "{strategy}");
            for list in [List::Tools, List::Prompts, List::Resources] {
                let is_of_other = |(name, _): &(&str, &Arc<str>)| match all.owner(list, name) {
                    ItemOwner::Backend(owner) => &*owner != down,
                    _ => false,
                };
                let expected: Vec<_> = all.pages.list(list).iter().filter(is_of_other).collect();
                assert_eq!(some.pages.list(list).iter().collect::<Vec<_>>(), expected, "{strategy} {list:?}");
                assert!(expected.len() < all.pages.list(list).iter().count(), "{strategy} {list:?}");
            }
            let lists_both = all.pages.list(List::Tools).contains("both");
            assert_eq!((all.missing_for("both"), lists_both), (None, true), "{strategy}");
            assert_eq!(some.missing_for("both").map(|backend| &**backend), Some(down));
            assert_eq!(some.owner(List::Tools, "both"), ItemOwner::Composed);
        }
    }
}

#[test]
fn a_backend_that_is_not_known_yet_may_have_a_name_before_another_one() {
    for (strategy, backend, list, name, owner, expected) in [
        ("prefix", "a", List::Tools, "a_b_c", "a_b", true),
        ("prefix", "a_b", List::Tools, "a_b_c", "a", true),
        ("prefix", "c", List::Tools, "a_b_c", "a_b", false),
        ("priority", "first", List::Tools, "x", "second", true),
        ("priority", "second", List::Tools, "x", "first", false),
        ("priority", "first", List::Prompts, "x", "other", true),
        ("prefixOnConflict", "a", List::Tools, "x", "b", false),
        ("prefixOnConflict", "a", List::Tools, "a_x", "b", true),
        ("manual", "a", List::Tools, "x", "b", false),
        ("prefix", "a", List::Resources, "file:///r", "b", true),
        ("prefix", "b", List::Resources, "file:///r", "a", false),
    ] {
        let order = r#"{"priorityOrder":["first","second"]}"#;
        let rules = format!(r#"{{"conflictResolution":"{strategy}","conflictResolutionConfig":{order}}}"#);
        let rules = Rules::of(&serde_json::from_str(&rules).unwrap());
        assert_eq!(rules.may_claim(backend, list, name, owner), expected, "{strategy} {backend} {name} {owner}");
    }
}

fn spec(name: &str) -> crate::backend::BackendSpec {
    crate::backend::BackendSpec {
        name: name.into(),
        url: "http://backend".to_owned(),
        transport: skep_upstream::http::Transport::StreamableHttp,
        auth_type: "unauthenticated".to_owned(),
        strategy: crate::credentials::Strategy::None,
        headers: http::HeaderMap::new(),
        addresses: skep_net::Addresses::Machine,
        ca_bundle: None,
        timeout: crate::backend::TIMEOUT,
        metadata: BTreeMap::new(),
        auth_config_ref: None,
        digest: [0; 32],
    }
}

#[tokio::test(start_paused = true)]
async fn no_backend_is_asked_until_something_changes() {
    let (upstream, _calls) =
        skep_upstream::memory::MemoryUpstream::new(skep_upstream::UpstreamState::ready(skep_mcp::Eras::Both));
    let backend = crate::backend::Backend::over(spec("a"), upstream);
    let offered = |tool: &str| (*catalogue("a", &[tool]).1.catalogue).clone();
    backend.offers.take(Viewer::Anyone, offered("x"));
    let (backends, views) = (Backends::new(None), views(Limits::of_total(64 * 1024 * 1024)));
    backends.replace(BTreeMap::from([(backend.name().clone(), backend.clone())]));
    let header = http::HeaderMap::from_iter([(http::header::HOST, http::HeaderValue::from_static("x"))]);
    for client in [ClientContext::default(), ClientContext::with_headers(header)] {
        let first = views.current(&backends, &client, CatalogueUse::Call);
        assert!(Arc::ptr_eq(&first.seen.missing, &views.current(&backends, &client, CatalogueUse::Call).seen.missing));
        let generation = backends.generation();
        backends.changed();
        assert_eq!(backends.generation(), generation + 1);
        assert!(!Arc::ptr_eq(&first.seen.missing, &views.current(&backends, &client, CatalogueUse::Call).seen.missing));
    }
    let before = views.current(&backends, &ClientContext::default(), CatalogueUse::Call).view;
    backend.offers.take(Viewer::Anyone, offered("y"));
    let now = views.current(&backends, &ClientContext::default(), CatalogueUse::Call).view;
    assert!(before.view.tool("a_x").is_some());
    assert!(now.view.tool("a_y").is_some() && now.view.tool("a_x").is_none());
}
