//! Writing events.

use bytes::{BufMut, Bytes, BytesMut};

/// An event. Data of several lines is split as the format asks for.
pub fn event(name: Option<&str>, id: Option<&str>, data: &[u8]) -> Bytes {
    let mut text = BytesMut::with_capacity(data.len() + 48);
    for (field, value) in [("event", name), ("id", id)] {
        if let Some(value) = value {
            put(&mut text, field, &one_line(value));
        }
    }
    let mut rest = data;
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        put(&mut text, "data", rest.get(..end).unwrap_or_default());
        let length = if rest.get(end..).is_some_and(|end| end.starts_with(b"\r\n")) { 2 } else { 1 };
        rest = rest.get(end + length..).unwrap_or_default();
    }
    put(&mut text, "data", rest);
    text.put_u8(b'\n');
    text.freeze()
}

/// A comment, which keeps a connection alive and means nothing.
pub fn comment(text: &str) -> Bytes {
    let text = String::from_utf8_lossy(&one_line(text)).into_owned();
    format!(": {text}\n\n").into()
}

/// After how many milliseconds a client should connect again.
pub fn retry(milliseconds: u64) -> Bytes {
    format!("retry: {milliseconds}\n\n").into()
}

fn put(text: &mut BytesMut, field: &str, value: &[u8]) {
    text.put_slice(field.as_bytes());
    text.put_slice(b": ");
    text.put_slice(value);
    text.put_u8(b'\n');
}

/// A value without what would end its line, or make readers ignore it.
fn one_line(value: &str) -> Vec<u8> {
    value.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r' | b'\0')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_written_as_clients_expect_it() {
        assert_eq!(event(Some("message"), None, b"{}"), "event: message\ndata: {}\n\n");
        assert_eq!(event(None, Some("7"), b""), "id: 7\ndata: \n\n");
        assert_eq!(comment("keep-alive"), ": keep-alive\n\n");
        assert_eq!(retry(1500), "retry: 1500\n\n");
    }

    #[test]
    fn every_line_of_the_data_gets_a_field() {
        assert_eq!(event(None, None, b"a\nb\r\nc\rd\n"), "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
    }

    #[test]
    fn a_name_cannot_bring_a_field_of_its_own() {
        assert_eq!(event(Some("a\ndata: b"), Some("1\r\n\n"), b"c"), "event: adata: b\nid: 1\ndata: c\n\n");
        assert_eq!(comment("a\n\ndata: b"), ": adata: b\n\n");
    }
}
