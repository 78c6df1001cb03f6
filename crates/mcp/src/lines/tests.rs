use super::*;

fn lines(reader: &mut Reader) -> Vec<Bytes> {
    std::iter::from_fn(|| reader.next_line().unwrap()).collect()
}

#[test]
fn lines_are_complete_in_any_chunks() {
    let mut reader = Reader::new(100);
    reader.feed(b"{\"a\"");
    assert!(lines(&mut reader).is_empty());
    reader.feed(b":1}\r\n\n{}\nha");
    assert_eq!(lines(&mut reader), ["{\"a\":1}\r", "", "{}"]);
    reader.space().put_slice(b"lf");
    assert!(lines(&mut reader).is_empty());
    assert_eq!(reader.finish().unwrap(), "half");
    assert_eq!(Reader::new(1).finish(), None);
}

#[test]
fn an_oversized_line_is_reported_once_and_skipped() {
    let mut reader = Reader::new(4);
    for piece in [b"1234".as_slice(), b"5678", b"9\n"] {
        reader.feed(piece);
        let line = reader.next_line();
        assert_eq!(line.is_err(), piece == b"9\n", "{line:?}");
    }
    reader.feed(b"12345\nabcd\n");
    assert_eq!(reader.next_line().unwrap_err().limit, 4);
    assert_eq!(reader.next_line(), Ok(Some(Bytes::from_static(b"abcd"))));
    reader.feed(b"too long again");
    assert_eq!(reader.next_line(), Ok(None));
    assert_eq!(reader.finish(), None);
}

#[test]
fn a_long_line_in_small_pieces_is_not_read_again_and_again() {
    const LENGTH: usize = 8 << 20;
    let mut reader = Reader::new(LENGTH);
    for _ in 0..LENGTH / 1024 {
        reader.feed(&[b'x'; 1024]);
        assert_eq!(reader.next_line(), Ok(None));
        assert_eq!(reader.scanned, reader.buffer.len());
    }
    reader.feed(b"\n");
    assert_eq!(reader.next_line().unwrap().unwrap().len(), LENGTH);
}

#[test]
fn a_message_is_found_between_other_things() {
    for (line, found) in [
        ("{\"a\":1}", Some("{\"a\":1}")),
        ("INFO {\"a\":{}} done", Some("{\"a\":{}}")),
        ("[12:00] {\"a\":1}\r", Some("{\"a\":1}")),
        ("[{\"a\":1}]", Some("{\"a\":1}")),
        ("starting", None),
        ("} {", None),
        ("{", None),
        ("", None),
    ] {
        assert_eq!(message(line.as_bytes()), found.map(str::as_bytes), "{line}");
    }
}

#[test]
fn no_character_of_a_message_is_lost() {
    let text =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"a\u{a0}b\u{200d}c\u{3000}d\u{ad}e\u{e000}f\u{fffd}g\u{7f}\"}";
    let line = format!("log: {text}");
    assert_eq!(message(line.as_bytes()), Some(text.as_bytes()));
    let read = Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap();
    assert_eq!(frame(read), format!("{text}\n"));
}

#[test]
fn a_message_over_several_lines_becomes_one() {
    let text = "{\r\n  \"jsonrpc\": \"2.0\",\n  \"method\": \"a\\nb\"\n}\n";
    let read = Message::parse(Bytes::from_static(text.as_bytes())).unwrap();
    assert_eq!(frame(read), "{    \"jsonrpc\": \"2.0\",   \"method\": \"a\\nb\" } \n");
}

#[test]
fn there_is_room_for_a_line_as_long_as_the_last_one() {
    let mut reader = Reader::new(1 << 20);
    assert!(reader.space().chunk_mut().len() >= CHUNK);
    let mut long = vec![b'x'; 3 * CHUNK];
    long.push(b'\n');
    reader.feed(&long);
    assert_eq!(reader.next_line().unwrap().unwrap().len(), 3 * CHUNK);
    assert!(reader.space().chunk_mut().len() > 3 * CHUNK);
    reader.feed(&long[..2 * CHUNK]);
    let room = reader.buffer.capacity();
    reader.space();
    assert_eq!(reader.buffer.capacity(), room, "half of a line makes no more room");
}

#[test]
fn what_is_kept_does_not_keep_more_than_itself() {
    let mut reader = Reader::new(8 * KEPT);
    reader.space().put_slice(b"short\n");
    let (room, short) = (reader.buffer.capacity(), reader.next_line().unwrap().unwrap());
    assert_eq!(short, "short");
    reader.space().put_slice(&vec![b'x'; CHUNK]);
    assert!(reader.buffer.capacity() <= room, "a short line that is still held costs no new room");
    let mut long = vec![b'x'; 4 * KEPT];
    long.push(b'\n');
    reader.feed(&long);
    drop(reader.next_line());
    reader.space();
    assert!(reader.buffer.capacity() <= 2 * KEPT, "{}", reader.buffer.capacity());
}

#[test]
fn a_malformed_line_may_still_name_the_request_it_responds_to() {
    for (found, id) in [
        (r#"{"jsonrpc":"2.0","id":7}"#, Some(7)),
        (r#"{"id":7,"result":{},"error":{}}"#, Some(7)),
        (r#"{"id":"7","result":{}}"#, None),
        (r#"{"id":7.0,"result":{}}"#, None),
        (r#"{"id":7,"method":"ping"}"#, None),
        (r#"{"result":{}}"#, None),
        (r#"{"id":7"#, None),
        ("[7]", None),
    ] {
        assert_eq!(answered(found.as_bytes()), id, "{found}");
    }
}

#[test]
fn no_memory_of_a_line_that_is_too_long_is_kept() {
    let mut reader = Reader::new(1 << 20);
    reader.feed(br#"{"id":7,"result":""#);
    for _ in 0..100 {
        reader.feed(&vec![b'x'; 100_000]);
        assert_eq!(reader.next_line(), Ok(None));
    }
    assert!(reader.buffer.capacity() < 1 << 18, "{}", reader.buffer.capacity());
    reader.feed(b"end\"}\nshort\n");
    assert_eq!(reader.next_line().unwrap_err().responded(), Responded::Request(7));
    assert_eq!(reader.next_line().unwrap().as_deref(), Some(&b"short"[..]));
}
