//! What is remembered of Secrets and ConfigMaps.

use super::*;

#[test]
fn content_is_remembered_for_those_who_use_it_and_read_anew_when_it_changes() {
    let store = Store::default();
    let secret = Key { kind: ObjectKind::Secret, namespace: "ns".into(), name: "s".into() };
    assert_eq!(store.content_changed(&secret, Some("1")), Wake::default());
    let spec = json!({ "image": "i", "secrets": [{ "name": "s", "key": "k" }] });
    put(&store, KindName::MCPServer, object(KindName::MCPServer, "m", 1, 1, &spec));
    let me = key(KindName::MCPServer, "m");
    assert_eq!(store.snapshot(&me).unwrap().unread, std::slice::from_ref(&secret));
    store.end_read(&secret, store.begin_read(&secret), Some((None, Some("1".into()))));
    assert!(store.snapshot(&me).unwrap().unread.is_empty());
    assert_eq!(store.content_changed(&secret, Some("1")), Wake::default());
    assert_eq!(store.content_changed(&secret, Some("2")).now, BTreeSet::from([me.clone()]));
    assert_eq!(store.snapshot(&me).unwrap().unread, [secret]);
}

#[test]
fn a_config_map_is_shared_by_all_snapshots() {
    let store = Store::default();
    let map = Key { kind: ObjectKind::ConfigMap, namespace: "ns".into(), name: "c".into() };
    let spec = json!({ "image": "i", "permissionProfile": { "type": "configmap", "name": "c", "key": "k" } });
    put(&store, KindName::MCPServer, object(KindName::MCPServer, "m", 1, 1, &spec));
    store.end_read(&map, store.begin_read(&map), Some((Some(Found::ConfigMap(Arc::default())), Some("1".into()))));
    let data = || match store.snapshot(&key(KindName::MCPServer, "m")).unwrap().found.remove(&map) {
        Some(Found::ConfigMap(data)) => data,
        other => panic!("{other:?}"),
    };
    assert!(Arc::ptr_eq(&data(), &data()));
}

/// Of a ConfigMap with a megabyte of other keys, nothing but the key that is referred to stays in memory.
#[test]
fn item_17_6_content_is_read_again_when_another_key_of_it_is_referred_to() {
    let store = Store::default();
    let map = Key { kind: ObjectKind::ConfigMap, namespace: "ns".into(), name: "c".into() };
    let profile =
        |key: &str| json!({ "image": "i", "permissionProfile": { "type": "configmap", "name": "c", "key": key } });
    let server = |name: &str, version: u32, key: &str| {
        put(&store, KindName::MCPServer, object(KindName::MCPServer, name, version, 1, &profile(key)));
    };
    let read = || {
        let began = store.begin_read(&map);
        let data = ["a", "b", "unused"].map(|key| (key.to_owned(), "text".to_owned()));
        let found = Found::ConfigMap(began.keys.select(data.into()).into());
        store.end_read(&map, began, Some((Some(found), Some("1".into()))));
    };
    let known = |name: &str| match store.snapshot(&key(KindName::MCPServer, name)).unwrap().found.remove(&map) {
        Some(Found::ConfigMap(data)) => data.keys().cloned().collect::<Vec<_>>().join(","),
        _ => "unread".to_owned(),
    };
    server("m", 1, "a");
    read();
    assert_eq!(known("m"), "a");
    server("n", 2, "b");
    assert_eq!((known("m"), known("n")), ("unread".to_owned(), "unread".to_owned()));
    // What was begun before another key was referred to does not count.
    let began = store.begin_read(&map);
    server("o", 3, "unused");
    store.end_read(&map, began, Some((Some(Found::config_map(BTreeMap::new())), Some("1".into()))));
    assert_eq!(known("o"), "unread");
    read();
    assert_eq!((known("m"), known("o")), ("a,b,unused".to_owned(), "a,b,unused".to_owned()));
}

#[test]
fn content_that_changes_while_it_is_read_is_read_again() {
    let store = Store::default();
    let secret = Key { kind: ObjectKind::Secret, namespace: "ns".into(), name: "s".into() };
    let spec = json!({ "image": "i", "secrets": [{ "name": "s", "key": "k" }] });
    put(&store, KindName::MCPServer, object(KindName::MCPServer, "m", 1, 1, &spec));
    let me = key(KindName::MCPServer, "m");
    let unread = || store.snapshot(&me).unwrap().unread;
    // It is made after the API server said that it is not there, and before we hear that.
    let first = store.begin_read(&secret);
    assert!(store.content_changed(&secret, Some("1")).now.contains(&me));
    let second = store.begin_read(&secret);
    store.end_read(&secret, first, Some((None, None)));
    assert_eq!(unread(), std::slice::from_ref(&secret));
    // A read that began after the change has the current contents.
    store.end_read(&secret, second, Some((None, Some("1".into()))));
    assert!(unread().is_empty());
    // What the watch showed meanwhile, or something newer, was read.
    for (seen, read) in [("2", "2"), ("3", "4")] {
        store.content_changed(&secret, Some(&format!("{seen}0")));
        let reading = store.begin_read(&secret);
        store.content_changed(&secret, Some(seen));
        store.end_read(&secret, reading, Some((None, Some(read.into()))));
        assert!(unread().is_empty(), "{seen} {read}");
    }
    let reading = store.begin_read(&secret);
    store.content_changed(&secret, Some("5"));
    store.content_changed(&secret, None);
    store.end_read(&secret, reading, Some((None, Some("5".into()))));
    assert_eq!(unread(), std::slice::from_ref(&secret), "it was deleted after it was read");
    // A watch that is behind what was read shows nothing new.
    store.end_read(&secret, store.begin_read(&secret), Some((None, Some("7".into()))));
    assert_eq!(store.content_changed(&secret, Some("6")), Wake::default());
    assert!(store.content_changed(&secret, Some("8")).now.contains(&me));
}
