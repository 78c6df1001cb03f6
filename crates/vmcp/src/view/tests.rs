use skep_mcp::list::List;

use super::*;
use crate::catalogue::Item;

fn views(limits: Limits) -> Views {
    let views = Views::new(Rules::of(&serde_json::from_str("{}").unwrap()), CompositeTools::default());
    Views { made: Mutex::new(Bounded::new(limits)), ..views }
}

/// One backend that offers a tool.
fn offered(tool: &str) -> BTreeMap<BackendName, Offered> {
    let text = format!(r#"{{"name":"{tool}","description":"{}","inputSchema":{{}}}}"#, "d".repeat(1000));
    let catalogue = Catalogue { tools: vec![Item::parse(List::Tools, &text).unwrap()], ..Catalogue::default() };
    let digest = catalogue.digest();
    BTreeMap::from([("backend".into(), Offered { digest, catalogue: Arc::new(catalogue) })])
}

fn owner(name: &str) -> Owner {
    Owner::from(Arc::from(name))
}

#[test]
fn clients_that_see_the_same_share_one_view() {
    let views = views(Limits::of_total(64 * 1024 * 1024));
    let made = views.made_of(offered("same"), owner("ann"));
    for number in 0..100 {
        assert!(Arc::ptr_eq(&made, &views.made_of(offered("same"), owner(&number.to_string()))));
    }
    assert!(Arc::ptr_eq(&made, &views.made_of(offered("same"), None)));
}

#[test]
fn views_of_one_client_displace_its_own_that_was_unused_for_longest() {
    let size = views(Limits::of_total(64 * 1024 * 1024)).made_of(offered("tool-0"), None).size();
    assert!(size > 3000, "the catalogue, the element and the first page: {size}");
    let views = views(Limits { total: 100 * size, per_owner: 10 * size + size / 2 });
    let of_ann = views.made_of(offered("ann"), owner("ann"));
    let first = views.made_of(offered("tool-0"), owner("hostile"));
    for number in 1..1000 {
        views.made_of(offered(&format!("tool-{number}")), owner("hostile"));
        assert!(Arc::ptr_eq(&first, &views.made_of(offered("tool-0"), owner("hostile"))), "it is in use");
        assert!(views.with(|made| made.total()) <= 11 * size + size / 2);
    }
    assert!(Arc::ptr_eq(&of_ann, &views.made_of(offered("ann"), owner("ann"))));
}

#[test]
fn of_the_views_of_all_clients_the_last_one_is_kept() {
    let views = views(Limits::of_total(64 * 1024 * 1024));
    let before = Arc::downgrade(&views.made_of(offered("before"), None));
    let now = views.made_of(offered("now"), None);
    assert!(before.upgrade().is_none());
    assert!(Arc::ptr_eq(&now, &views.made_of(offered("now"), None)));
}
