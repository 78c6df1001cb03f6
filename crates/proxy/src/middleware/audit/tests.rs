use std::collections::BTreeMap;

use super::*;

fn recorder(parameters: &str) -> Result<Recorder, String> {
    let parameters = parameters::Audit::read(Json::from_yaml(parameters).unwrap()).unwrap();
    let context = Context { server: "srv".to_owned(), environment: BTreeMap::new(), ..Context::default() };
    Recorder::new(&parameters, &context)
}

#[test]
fn settings_come_from_the_document_or_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.yaml");
    std::fs::write(&path, "component: mine\nincludeRequestData: true\nmaxDataSize: 10\nmaxDelegationDepth: 2\n")
        .unwrap();
    let from_file = recorder(&format!("{{config_path: '{}', transport_type: sse}}", path.display())).unwrap();
    assert_eq!((from_file.component.as_str(), from_file.transport, from_file.delegation_depth), ("mine", "sse", 2));
    assert_eq!((from_file.request_data, from_file.response_data), (Some(10), None));
    let plain = recorder("{config_data: {}, transport_type: stdio}").unwrap();
    assert_eq!((plain.component.as_str(), plain.transport), (COMPONENT, "http"));
    assert_eq!((plain.server.as_str(), plain.detects_errors, plain.delegation_depth), ("srv", true, 10));
    assert_eq!(recorder("{component: outer, config_data: {component: inner}}").unwrap().component, "outer");
}

#[test]
fn what_cannot_be_read_is_an_error_that_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.yaml");
    std::fs::write(&path, "enabled: [").unwrap();
    for (parameters, part) in [
        ("{config_path: /no/such}".to_owned(), "config_path: cannot read `/no/such`"),
        (format!("{{config_path: '{}'}}", path.display()), "the audit configuration `"),
        ("{config_data: {excludeEventTypes: [nonsense]}}".to_owned(), "excludeEventTypes[0]: `nonsense`"),
        ("{config_data: {logFile: /no/such/file}}".to_owned(), "logFile: cannot open `/no/such/file`"),
    ] {
        let error = recorder(&parameters).unwrap_err();
        assert!(error.contains(part), "{parameters}: {error}");
    }
}

#[test]
fn the_size_of_data_has_a_default_and_a_limit() {
    for (configured, size) in [(0, DATA), (-5, DATA), (10, 10), (i64::MAX, MOST_DATA)] {
        assert_eq!(data_size(configured), size, "{configured}");
    }
}
