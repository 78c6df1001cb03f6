use skep_auth::{Caller, Identity};

use super::*;

fn key(identity: Option<usize>, header: usize) -> Key {
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let client = ModernClient::of(&skep_mcp::Message::parse(message.into()).unwrap()).unwrap();
    let caller = identity.map(|number| {
        let (issuer, subject) = ("https://issuer".into(), number.to_string().into());
        Caller::from(Identity { issuer, subject, name: "A. Name".into() })
    });
    let headers = HeaderMap::from_iter([("x-number".parse().unwrap(), HeaderValue::from(header))]);
    Key::of(&client, &ClientContext { caller, headers, ..ClientContext::default() })
}

fn peer(number: usize) -> Option<IpAddr> {
    u8::try_from(number).ok().map(|number| IpAddr::from([10, 0, 0, number]))
}

/// Takes a place and opens its session. `is_used` keeps it in use.
fn open(table: &mut Table, key: &Key, peer: Option<IpAddr>, is_used: bool) -> Option<Vec<Arc<ServerSession>>> {
    let (cell, evicted) = table.place(key, peer);
    cell?.set(ServerSession::fake(is_used)).unwrap();
    Some(evicted)
}

fn has(table: &Table, key: &Key) -> bool {
    table.places.contains_key(key)
}

#[tokio::test(start_paused = true)]
async fn one_network_displaces_its_own_sessions_and_no_other() {
    let mut table = Table::default();
    let of_other = key(None, 0);
    open(&mut table, &of_other, peer(2), false).unwrap();
    for number in 1..=PER_PEER {
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(open(&mut table, &key(None, number), peer(1), false).unwrap().is_empty());
    }
    for number in PER_PEER + 1..=3 * PER_PEER {
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(open(&mut table, &key(None, number), peer(1), false).unwrap().len(), 1);
        assert!(!has(&table, &key(None, number - PER_PEER)), "the one that was unused for longest");
    }
    assert!(has(&table, &of_other));
    assert_eq!(table.places.len(), PER_PEER + 1);
}

#[test]
fn one_identity_displaces_its_own_sessions_wherever_it_comes_from() {
    let mut table = Table::default();
    open(&mut table, &key(Some(1), 0), peer(1), false).unwrap();
    for number in 0..2 * PER_IDENTITY {
        open(&mut table, &key(Some(2), number), peer(number % 200), false).unwrap();
    }
    assert_eq!(table.places.keys().filter(|key| key.identity == self::key(Some(2), 0).identity).count(), PER_IDENTITY);
    assert!(has(&table, &key(Some(1), 0)));
}

#[test]
fn calls_in_flight_of_one_network_leave_room_for_others() {
    let mut table = Table::default();
    for number in 0..PER_PEER {
        open(&mut table, &key(None, number), peer(1), true).unwrap();
    }
    assert!(open(&mut table, &key(None, PER_PEER), peer(1), true).is_none(), "its share is in use");
    assert!(open(&mut table, &key(None, PER_PEER), peer(2), true).is_some());
    assert!(table.place(&key(None, 0), peer(1)).0.is_some(), "one that is known can be shared");
}

#[test]
fn if_all_places_are_taken_the_network_with_the_most_makes_room() {
    let mut table = Table::default();
    for number in 0..PER_PEER {
        open(&mut table, &key(None, number), peer(1), false).unwrap();
    }
    for number in 0..TOTAL - PER_PEER {
        open(&mut table, &key(None, PER_PEER + number), peer(2 + number % 100), false).unwrap();
    }
    let before = table.count_of(peer(1));
    assert_eq!(open(&mut table, &key(None, TOTAL), peer(200), false).unwrap().len(), 1);
    assert_eq!((table.count_of(peer(1)), table.places.len()), (before - 1, TOTAL));
}

#[test]
fn a_session_that_a_call_is_about_to_use_is_not_evicted() {
    let mut table = Table::default();
    open(&mut table, &key(None, 0), peer(1), false).unwrap();
    let waiting = table.place(&key(None, 0), peer(1)).0.unwrap();
    for number in 1..PER_PEER {
        open(&mut table, &key(None, number), peer(1), true).unwrap();
    }
    assert!(open(&mut table, &key(None, PER_PEER), peer(1), true).is_none());
    drop(waiting);
    assert_eq!(open(&mut table, &key(None, PER_PEER), peer(1), true).unwrap().len(), 1);
}
