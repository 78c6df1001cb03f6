use proptest::prelude::*;

use super::*;
use crate::sse;

const LIMITS: Limits = Limits { line: 1 << 20, event: 1 << 20 };

fn items(reader: &mut Reader) -> Vec<Item> {
    std::iter::from_fn(|| reader.next_item().unwrap()).collect()
}

fn read(stream: &[u8]) -> Vec<Item> {
    let mut reader = Reader::new(LIMITS);
    reader.feed(stream);
    items(&mut reader)
}

/// Name, data, id and retry of an event.
type Meaning = (Option<String>, Option<String>, Option<String>, Option<u64>);

fn meaning(stream: &str) -> Vec<Meaning> {
    let text = |bytes: Option<Bytes>| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    let events = read(stream.as_bytes()).into_iter().filter_map(|item| match item {
        Item::Event(event) => Some((text(event.name), text(event.data), text(event.id), event.retry)),
        Item::Quiet(_) => None,
    });
    events.collect()
}

fn data(stream: &str) -> Vec<Option<String>> {
    meaning(stream).into_iter().map(|(_, data, ..)| data).collect()
}

#[test]
fn the_fields_of_an_event_are_read() {
    let text = Some("text".to_owned());
    for (stream, expected) in [
        ("data: text\n\n", (None, text.clone(), None, None)),
        ("event: message\ndata: text\n\n", (Some("message".to_owned()), text.clone(), None, None)),
        ("id:7\nretry: 1500\ndata:text\n\n", (None, text.clone(), Some("7".to_owned()), Some(1500))),
        (
            "event: a\nevent: b\nid: 1\nid: 2\ndata: text\n\n",
            (Some("b".to_owned()), text.clone(), Some("2".to_owned()), None),
        ),
        ("event:\ndata: text\n\n", (None, text.clone(), None, None)),
        ("other: x\n: note\ndata: text\n\n", (None, text.clone(), None, None)),
        ("id: a\0b\nretry: 1x\nretry: -1\ndata: text\n\n", (None, text, None, None)),
        ("id: 7\n\n", (None, None, Some("7".to_owned()), None)),
        ("id\ndata\n\n", (None, Some(String::new()), Some(String::new()), None)),
        ("retry: 99999999999999999999\n\n", (None, None, None, None)),
    ] {
        assert_eq!(meaning(stream), [expected], "{stream:?}");
    }
}

#[test]
fn lines_of_data_are_joined() {
    let one = |text: &str| [Some(text.to_owned())];
    assert_eq!(data("data: a\ndata: b\ndata:\ndata:  c\n\n"), one("a\nb\n\n c"));
    assert_eq!(data("data:\ndata\n\n"), one("\n"));
    assert_eq!(data("data: a:b\n\n"), one("a:b"));
}

#[test]
fn lines_end_in_three_ways() {
    let expected = [Some("a\nb".to_owned()), Some("c".to_owned())];
    for end in ["\n", "\r", "\r\n"] {
        let stream = format!("data: a{end}data: b{end}{end}data: c{end}{end}");
        assert_eq!(data(&stream), expected, "{end:?}");
    }
    assert_eq!(data("data: a\r\ndata: b\n\r\ndata: c\r\r"), expected);
}

#[test]
fn an_event_is_not_held_back_for_a_line_feed_that_may_follow() {
    let mut reader = Reader::new(LIMITS);
    reader.feed(b"data: a\r\r");
    assert!(matches!(items(&mut reader).as_slice(), [Item::Event(event)] if event.raw == "data: a\r\r"));
    reader.feed(b"\n");
    assert!(items(&mut reader).is_empty());
    reader.feed(b"data: b\r\n\r\n");
    assert!(matches!(items(&mut reader).as_slice(), [Item::Event(event)] if event.raw == "\ndata: b\r\n\r\n"));
    assert_eq!(reader.into_rest(), "");
}

#[test]
fn a_byte_order_mark_is_allowed_at_the_beginning_only() {
    assert_eq!(data("\u{feff}data: a\n\n\u{feff}data: b\n\n"), [Some("a".to_owned()), None]);
    assert_eq!(read("\u{feff}\n".as_bytes()).len(), 1);
}

#[test]
fn comments_are_handed_out_at_once() {
    let quiet = |text: &'static str| Item::Quiet(Bytes::from_static(text.as_bytes()));
    assert_eq!(read(b": keep-alive\n\n:\r\n"), [quiet(": keep-alive\n"), quiet("\n"), quiet(":\r\n")]);
}

#[test]
fn only_events_with_data_and_no_other_name_are_messages() {
    for (stream, expected) in [
        ("data: {}\n\n", true),
        ("event: message\ndata: {}\n\n", true),
        ("event: endpoint\ndata: /messages\n\n", false),
        ("event: message\n\n", false),
    ] {
        assert!(matches!(read(stream.as_bytes()).as_slice(), [Item::Event(event)] if event.is_message() == expected));
    }
}

#[test]
fn an_incomplete_event_is_not_lost() {
    let mut reader = Reader::new(LIMITS);
    reader.feed(b"data: a\n\ndata: b\nda");
    assert_eq!(items(&mut reader).len(), 1);
    assert_eq!(reader.into_rest(), "data: b\nda");
}

#[test]
fn limits_hold_and_no_byte_is_lost() {
    let limits = Limits { line: 10, event: 20 };
    for (stream, expected) in [
        ("data: 1234\n\n", None),
        ("data: 12345\n\n", Some(EventStreamError::Line { limit: 10 })),
        ("data: 1234567890", Some(EventStreamError::Line { limit: 10 })),
        ("data: 123\ndata: 12\n\n", None),
        ("data: 123\ndata: 123\ndata\n\n", Some(EventStreamError::Event { limit: 20 })),
        ("data: 1234\n\ndata: 1234\n\n", None),
    ] {
        let mut reader = Reader::new(limits);
        reader.feed(stream.as_bytes());
        let error = std::iter::from_fn(|| reader.next_item().transpose()).find_map(Result::err);
        assert_eq!(error, expected, "{stream:?}");
        if expected.is_some() {
            assert_eq!(reader.next_item().err(), expected, "the reader stays where it is");
            assert_eq!(reader.into_rest(), stream);
        }
    }
}

#[test]
fn a_long_event_in_small_chunks_is_scanned_once() {
    let mut reader = Reader::new(Limits { line: 8 << 20, event: 16 << 20 });
    reader.feed(b"data: ");
    for _ in 0..8000 {
        reader.feed(&[b'x'; 1024]);
        assert_eq!(reader.next_item(), Ok(None));
        assert_eq!(reader.scanned, reader.buffer.len());
    }
    reader.feed(b"\n\n");
    assert!(
        matches!(reader.next_item(), Ok(Some(Item::Event(event))) if event.data.as_ref().unwrap().len() == 8000 * 1024)
    );
}

#[test]
fn one_line_of_data_is_not_copied() {
    let items = read(b"data: {}\n\n");
    let [Item::Event(event)] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!(event.data.as_ref().unwrap().as_ptr(), event.raw[6..].as_ptr());
}

proptest! {
    #[test]
    fn what_is_written_is_read(name in "[^\\r\\n\0]{1,8}", id in "[^\\r\\n\0]{0,8}", lines in prop::collection::vec("[^\\r\\n]{0,8}", 1..5)) {
        let joined = lines.join("\n");
        let expected = (Some(name.clone()), Some(joined.clone()), Some(id.clone()), None);
        let stream = sse::event(Some(&name), Some(&id), joined.as_bytes());
        prop_assert_eq!(meaning(std::str::from_utf8(&stream).unwrap()), [expected]);
    }

    #[test]
    fn any_chunks_give_the_same_events(
        parts in prop::collection::vec(prop::sample::select(vec!["data: a", "data", "id: 1", "event: e", ":", ": c", "\r", "\n", "\r\n", "\n\n", "\u{feff}", " "]), 0..30),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let stream = parts.concat();
        let bytes = stream.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut reader = Reader::new(LIMITS);
        let (mut events, mut raw) = (Vec::new(), Vec::new());
        for piece in cuts.windows(2) {
            reader.feed(&bytes[piece[0]..piece[1]]);
            for item in items(&mut reader) {
                match item {
                    Item::Quiet(bytes) => raw.extend_from_slice(&bytes),
                    Item::Event(event) => {
                        raw.extend_from_slice(&event.raw);
                        events.push((event.name, event.data, event.id, event.retry));
                    }
                }
            }
        }
        raw.extend_from_slice(&reader.into_rest());
        let whole = read(bytes).into_iter().filter_map(|item| match item {
            Item::Event(event) => Some((event.name, event.data, event.id, event.retry)),
            Item::Quiet(_) => None,
        });
        prop_assert_eq!(events, whole.collect::<Vec<_>>());
        prop_assert_eq!(raw, bytes);
    }
}

#[test]
fn a_stream_keeps_no_memory_of_a_long_event() {
    let mut reader = Reader::new(Limits { line: 1 << 22, event: 1 << 22 });
    reader.feed(format!("data: {}\n\ndata: ne", "x".repeat(1 << 20)).as_bytes());
    let Ok(Some(Item::Event(event))) = reader.next_item() else { panic!("no event") };
    assert!(event.raw.len() > 1 << 20);
    assert!(reader.buffer.capacity() < KEPT, "{}", reader.buffer.capacity());
    drop(event);
    reader.feed(b"xt\n\n");
    assert!(reader.buffer.capacity() < KEPT, "the memory of the long event is not used again");
    let Ok(Some(Item::Event(event))) = reader.next_item() else { panic!("no event") };
    assert_eq!(event.data.as_deref(), Some(&b"next"[..]));
}
