use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::*;

fn map(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

/// RunConfigs of the original, the resource that each was made for, and the checksum on its ConfigMap.
const RECORDED: &[(&str, &str, &str, &str)] = &[
    ("01-plain-http", "mcp-server", "plain-http", "7b7a4d365d6acbf37a08dbb25f8b89d264df0dede562ca86b846d099eda44e8a"),
    ("02-plain-stdio", "mcp-server", "plain-stdio", "40221ca269cf6ec1c580dd54a61df8a32229e2f55bac20a68e304b1824852b78"),
    ("03-plain-sse", "mcp-server", "plain-sse", "0d1eba6925da7a086514c47ffdc72b62fecd95fc976ade9d156231a90459a6ce"),
    ("04-overrides", "mcp-server", "overrides", "7d375da6f6fddb29f06caa195418059f7bd020d2e2aec0f74e297d4ab2f3d44a"),
    ("05-secrets", "mcp-server", "secrets", "66576e46c3b324283c2133d494c89f487bb6721038f36e531fee01c520cd5761"),
    ("06-oidc", "mcp-server", "oidc", "5044881666f7b67a8e8340ca6d4718964e74bce0e616b5cbc989064671cd05f8"),
    ("07-oidc-sa", "mcp-server", "oidc-sa", "59516a08b13ce95ff3cb671e728ca8152be241f5d1ba8d64c8c8c456758da9ac"),
    ("08-tools", "mcp-server", "tools", "5bd43344c1847f5d13fbe2262bdce2899ff3f153a6126821a308cb2a5373a3cc"),
    ("09-telemetry", "mcp-server", "telemetry", "75d37ea1f6df7f5a346336f64ea666a027b44d19c4629ce135140b864dd5178e"),
    ("10-webhooks", "mcp-server", "webhooks", "6f0c2fa83711d6337c591ccaa2ef6a30ea5750976bc60cbbbadf27ad9f99220a"),
    (
        "11-authz-inline",
        "mcp-server",
        "authz-inline",
        "8ef852f8f54f7cb6fd1c3d948edf05c0aec4969166e3f150477da558aab3822f",
    ),
    ("11-authz-ref", "mcp-server", "authz-ref", "b9b22d0329434e3d94ef947e6111f6cb3f71d9b2e94990dbeffe9db7cd41fbd8"),
    (
        "12-external-auth",
        "mcp-server",
        "external-auth",
        "94ea6471b92a1e2e94dd666a13478ad5bc1e42573e5374bcc1552cd7ae0b5eed",
    ),
    ("13-scaling", "mcp-server", "scaling", "8ccf4521bbf5725c37e1eb7997f4edeec4861ff6538cd882e48136c23f5469f8"),
    ("14-remote", "mcp-remote-proxy", "remote", "11ee321784c62b92d0bfaab3ead4993ef364c39718b52dbdbf0181e684f9cdb2"),
    ("15-member", "mcp-server", "member", "c998e33b5f8a812dec6845012fb8f61203c6087238871aea96668b2943f930d1"),
];

fn here(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "recorded objects are read from files")]
fn the_checksum_of_a_config_map_is_that_of_the_original() {
    for (file, kind, name, expected) in RECORDED {
        let text = std::fs::read_to_string(here(&format!("../runconfig/tests/golden/run_config/{file}.json"))).unwrap();
        let labels = map(&json!({
            "toolhive.stacklok.io/component": "run-config",
            "toolhive.stacklok.io/managed-by": "toolhive-operator",
            format!("toolhive.stacklok.io/{kind}"): name,
        }));
        let annotations = BTreeMap::from([(CONTENT_CHECKSUM.to_owned(), "whatever".to_owned())]);
        let data = BTreeMap::from([("runconfig.json".to_owned(), text)]);
        assert_eq!(content_checksum(&data, &labels, &annotations), *expected, "{file}");
    }
}

/// The same for what was recorded beside this repository, where that is at hand.
#[test]
#[expect(clippy::disallowed_methods, reason = "recorded objects are read from files")]
fn checksums_on_recorded_objects_are_reproduced() {
    let Ok(entries) = std::fs::read_dir(here("../../../shared/compat/objects/out")) else { return };
    let mut compared = 0;
    for entry in entries {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for object in skep_api::manifest::parse(&text).unwrap() {
            let metadata = &object["metadata"];
            let Some(expected) = metadata["annotations"][CONTENT_CHECKSUM].as_str() else { continue };
            // The registry's is the short hash of a Go value, which only Go can print.
            if expected.len() < 64 {
                continue;
            }
            let (data, labels) = (map(&object["data"]), map(&metadata["labels"]));
            assert_eq!(content_checksum(&data, &labels, &map(&metadata["annotations"])), expected, "{metadata}");
            compared += 1;
        }
    }
    assert_eq!(compared, 17);
}

#[test]
fn other_annotations_count() {
    let none = BTreeMap::new();
    let other = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    assert_ne!(content_checksum(&none, &none, &none), content_checksum(&none, &none, &other));
}

#[test]
fn members_are_sorted_whatever_order_they_came_in() {
    let value: Value = serde_json::from_str(r#"{"b":[{"z":1,"a":2.0}],"a":{"y":"<&>","x":null},"é":true}"#).unwrap();
    let expected = r#"{"a":{"x":null,"y":"\u003c\u0026\u003e"},"b":[{"a":2,"z":1}],"é":true}"#;
    assert_eq!(to_string(&value), expected);
    assert_eq!(value_hash(&value), sha256_hex(expected.as_bytes()));
}

#[test]
fn hashes_are_the_known_ones() {
    assert_eq!(sha256_hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(fnv32a_hex(b""), "811c9dc5");
    assert_eq!(fnv32a_hex(b"foobar"), "bf9cf968");
    // Leading zeros are not written.
    assert_eq!(fnv32a_hex(b"skep-294"), "d7ae24");
}

/// From the file and volume names of the original's webhooks.
#[test]
fn the_short_hash_of_a_text_is_that_of_the_original() {
    assert_eq!(text_hash("hook/ca.crt"), "8b8a2222");
    assert_eq!(text_hash("hook/hmac"), "81e1ee2c");
    assert_eq!(text_hash("WEBHOOK_MUTATING_CHANGE_TLS_CA_8B8A2222"), "65534bce");
}
