use super::*;

const ID: &str = "0b0a5a0e-6a34-4a9c-8f4c-9f0f6a3a1b2c";

fn now() -> Timestamp {
    "2026-11-16T01:02:03.120456Z".parse().unwrap()
}

fn json(session: &Session) -> String {
    serde_json::to_string(session).unwrap()
}

#[test]
fn a_session_is_written_as_the_original_writes_it() {
    let mut session = Session::new(ID, Kind::Mcp, now(), None);
    let expected = format!(
        r#"{{"id":"{ID}","type":"mcp","created_at":"2026-11-16T01:02:03.120456Z","updated_at":"2026-11-16T01:02:03.120456Z"}}"#
    );
    assert_eq!(json(&session), expected);

    session.kind = Kind::Streamable;
    session.updated_at = "2026-11-16T01:02:04Z".parse().unwrap();
    session.data = Some(RawValue::from_string(r#"{"a": 1.0}"#.to_owned()).unwrap());
    session.metadata.insert("init_body".to_owned(), r#"{"x":"<&>"}"#.to_owned());
    session.metadata.insert("backend_url".to_owned(), "http://10.0.0.1:8080".to_owned());
    let expected = format!(
        r#"{{"id":"{ID}","type":"streamable","created_at":"2026-11-16T01:02:03.120456Z","updated_at":"2026-11-16T01:02:04Z","data":{{"a": 1.0}},"metadata":{{"backend_url":"http://10.0.0.1:8080","init_body":"{{\"x\":\"<&>\"}}"}}}}"#
    );
    assert_eq!(json(&session), expected);
}

#[test]
fn times_have_the_digits_that_go_prints() {
    for time in ["2026-11-16T01:02:03Z", "2026-11-16T01:02:03.1Z", "2026-11-16T01:02:03.000000001Z"] {
        let session = Session::new(ID, Kind::Sse, time.parse().unwrap(), None);
        assert!(json(&session).contains(&format!(r#""created_at":"{time}""#)), "{}", json(&session));
    }
}

#[test]
fn unknown_members_survive_a_change() {
    let written = format!(
        r#"{{"later":[1e3, 12345678901234567890123],"type":"sse","id":"{ID}","updated_at":"2026-11-16T03:02:03.5+02:00","created_at":"0001-01-01T00:00:00Z","metadata":{{"k":"v"}},"also":{{"b":1,"a":2}}}}"#
    );
    let mut session: Session = serde_json::from_str(&written).unwrap();
    session.metadata.insert("backend_sid".to_owned(), "7".to_owned());
    let expected = format!(
        r#"{{"id":"{ID}","type":"sse","created_at":"0001-01-01T00:00:00Z","updated_at":"2026-11-16T01:02:03.5Z","metadata":{{"backend_sid":"7","k":"v"}},"later":[1e3, 12345678901234567890123],"also":{{"b":1,"a":2}}}}"#
    );
    assert_eq!(json(&session), expected);
}

#[test]
fn empty_members_of_others_are_understood() {
    let written = format!(
        r#"{{"id":"{ID}","type":"mcp","created_at":"2026-11-16T01:02:03Z","updated_at":"2026-11-16T01:02:03Z","metadata":null}}"#
    );
    let session: Session = serde_json::from_str(&written).unwrap();
    assert!(session.metadata.is_empty() && session.data.is_none());
}

#[test]
fn a_damaged_session_is_an_error() {
    let whole = json(&Session::new(ID, Kind::Mcp, now(), None));
    for (there, instead) in
        [("\"id\"", "\"no\""), ("mcp", "ftp"), ("2026-11", "2026-13"), ("{", "["), ("updated", "up")]
    {
        let damaged = whole.replacen(there, instead, 1);
        assert!(serde_json::from_str::<Session>(&damaged).is_err(), "{damaged}");
    }
}

#[test]
fn ids_are_uuids_in_the_store() {
    for uuid in [ID, "0B0A5A0E-6A34-4A9C-8F4C-9F0F6A3A1B2C", "0b0a5a0e6a344a9c8f4c9f0f6a3a1b2c"] {
        assert_eq!(normalised(uuid), uuid);
    }
    // The first is RFC 9562's own example.
    assert_eq!(normalised("www.example.com"), "2ed6657d-e927-568b-95e1-2665a8aea6a2");
    assert_eq!(normalised(""), "4ebd0208-8328-5d69-8c44-ec50939c0967");
    assert_eq!(Session::new("www.example.com", Kind::Sse, now(), None).id, normalised("www.example.com"));
}

#[test]
fn a_session_has_its_identity() {
    assert_eq!(Session::new(ID, Kind::Mcp, now(), None).bound_to(), None);
    let session = Session::new(ID, Kind::Mcp, now(), Some("https://idp.test|alice"));
    let read: Session = serde_json::from_str(&json(&session)).unwrap();
    assert_eq!(read.bound_to(), Some("https://idp.test|alice"));
}
