use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::VirtualDocument;

const GOLDEN: &str = include_str!("../../tests/golden/virtual_config/15-virtual.yaml");

fn read(text: &str) -> BTreeMap<String, Value> {
    VirtualDocument::from_yaml(text).unwrap().decode().unwrap()
}

#[test]
fn the_document_of_the_original_is_written_byte_for_byte() {
    assert_eq!(VirtualDocument::from_yaml(GOLDEN).unwrap().to_yaml(), GOLDEN);
}

#[test]
fn members_are_written_in_the_order_of_the_original() {
    let members = read(GOLDEN);
    let written = VirtualDocument::of(&members).unwrap().to_yaml();
    let top =
        |text: &str| -> Vec<String> { text.lines().filter(|line| !line.starts_with(' ')).map(str::to_owned).collect() };
    assert_eq!(top(&written), top(GOLDEN));
    assert_eq!(read(&written), members);
}

#[test]
fn unknown_members_follow_sorted() {
    let members = BTreeMap::from([("zeal", 1), ("audit", 2), ("extra", 3), ("name", 4)]);
    assert_eq!(VirtualDocument::of(&members).unwrap().to_yaml(), "name: 4\naudit: 2\nextra: 3\nzeal: 1\n");
}

#[test]
fn a_refill_period_is_wrapped_on_the_way_and_unwrapped_at_the_end() {
    let bucket = json!({ "maxTokens": 5, "refillPeriod": "90s" });
    let config = json!({ "rateLimiting": { "shared": bucket, "tools": [{ "name": "a", "perUser": bucket }] } });
    let document = VirtualDocument::of(&config).unwrap();
    let expected = "\
rateLimiting:
    shared:
        maxTokens: 5
        refillPeriod:
            duration: 1m30s
    tools:
        - name: a
          perUser:
            maxTokens: 5
            refillPeriod:
                duration: 1m30s
";
    assert_eq!(document.to_yaml(), expected);
    let back = read(&document.to_yaml());
    assert_eq!(back["rateLimiting"]["shared"]["refillPeriod"], "1m30s");
    assert_eq!(back["rateLimiting"]["tools"][0]["perUser"]["refillPeriod"], "1m30s");
    assert_eq!(read("rateLimiting: {shared: {refillPeriod: 5s}}")["rateLimiting"]["shared"]["refillPeriod"], "5s");
}
