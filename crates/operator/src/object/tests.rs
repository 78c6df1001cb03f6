use proptest::prelude::*;

use super::*;

#[test]
fn an_object_is_kept_as_it_came_but_for_who_wrote_what() {
    let metadata = json!({ "name": "a", "uid": "u", "labels": { "managedFields": "mine" } });
    let mut sent = json!({ "kind": "K", "metadata": metadata, "spec": { "managedFields": [1, 2.5, null] }, "x": [] });
    let expected = sent.clone();
    sent["metadata"][MANAGED_FIELDS] = json!([{ "manager": "m", "fieldsV1": { "f:spec": {} } }]);
    let object: Object = serde_json::from_str(&sent.to_string()).unwrap();
    assert_eq!(object.metadata().uid.as_deref(), Some("u"));
    assert_eq!(object.metadata().managed_fields, None);
    assert_eq!(object.value(), &expected);
}

#[test]
fn the_digest_of_applied_fields_changes_only_with_fields_of_ours() {
    let entry = |manager: &str, operation: &str, fields: Value| json!({ "manager": manager, "operation": operation, "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields });
    let digest = |entries: Value| {
        let sent = json!({ "metadata": { "name": "a", "managedFields": entries } }).to_string();
        let tracked: Tracked = serde_json::from_str(&sent).unwrap();
        let partial: Metadata = serde_json::from_str(&sent).unwrap();
        // With all of its managers, unlike those.
        let all: ObjectMeta = serde_json::from_value(json!({ "name": "a", "managedFields": entries })).unwrap();
        let [digest, same, still] = [tracked.object().metadata(), &partial.metadata, &all].map(owned_fields);
        assert!(digest == same && digest == still, "{digest}, {same}, {still}");
        digest
    };
    let ours = json!({ "f:data": { "f:a": {} } });
    let before = digest(json!([entry(MANAGER, "Apply", ours.clone())]));
    let foreign = entry("kubectl", "Update", json!({ "f:metadata": { "f:labels": { "f:theirs": {} } } }));
    assert_eq!(digest(json!([foreign, entry(MANAGER, "Apply", ours)])), before);
    let taken = entry("kubectl", "Update", json!({ "f:data": { "f:a": {} } }));
    assert_ne!(digest(json!([taken, entry(MANAGER, "Apply", json!({}))])), before);
    assert_eq!(digest(json!([taken])), "");
}

#[test]
fn one_that_is_nested_too_deep_is_known_as_such_and_costs_no_other_one() {
    let lists = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let maps = |levels: usize| format!("{}1{}", r#"{"x":"#.repeat(levels), "}".repeat(levels));
    for (levels, is_too_deep) in [(DEEPEST, false), (DEEPEST + 1, true), (9_000, true)] {
        for deep in [lists(levels), maps(levels)] {
            let first = format!(r#"{{"metadata":{{"name":"a"}},"spec":{deep}}}"#);
            let text = format!(r#"{{"items":[{first},{{"metadata":{{"name":"b"}}}}]}}"#);
            let read: std::collections::BTreeMap<String, Vec<Object>> = serde_json::from_str(&text).unwrap();
            let known: Vec<_> =
                read["items"].iter().map(|one| (one.metadata().name.as_deref(), one.excess().is_some())).collect();
            assert_eq!(known, [(Some("a"), is_too_deep), (Some("b"), false)], "{levels}");
        }
    }
}

#[test]
fn one_with_too_many_values_is_known_as_such_and_costs_no_other_one() {
    let list = |values: usize| format!("[{}0]", "0,".repeat(values - 2));
    let map = |values: usize| (0..values - 1).map(|n| (n.to_string(), 0)).collect::<std::collections::BTreeMap<_, _>>();
    let of = |values: usize| [list(values), serde_json::to_string(&map(values)).unwrap()];
    for (values, excess) in
        [(MOST_VALUES, None), (MOST_VALUES + 1, Some(LimitError::Values)), (500_000, Some(LimitError::Values))]
    {
        for many in of(values) {
            // The metadata comes behind, and does not count; nor does the status.
            let text = format!(
                r#"[{{"spec":{many},"metadata":{{"name":"a"}},"status":[1,2]}},{{"metadata":{{"name":"b"}}}}]"#
            );
            let read: Vec<Object> = serde_json::from_str(&text).unwrap();
            let known: Vec<_> = read.iter().map(|one| (one.metadata().name.as_deref(), one.excess())).collect();
            assert_eq!(known, [(Some("a"), excess), (Some("b"), None)], "{values}");
            assert_eq!(read[0].value()["status"], json!([1, 2]));
            let kept = &read[0].value()["spec"];
            assert!(kept.as_array().map_or_else(|| kept.as_object().unwrap().len(), Vec::len) < MOST_VALUES);
        }
    }
}

/// They were kept for the texts in them: 300,000 small objects took 200 MB.
#[test]
fn of_too_many_values_only_names_are_kept_whatever_holds_them() {
    let texts: Vec<String> = (0..2 * MOST_VALUES).map(|number| format!("n{number}")).collect();
    let nested: Vec<Value> = texts.iter().map(|text| json!({ "a": [text] })).collect();
    for spec in [json!(texts), json!([{ "a": nested }]), json!({ "a": { "first": "n0" }, "b": { "c": nested } })] {
        let object: Object = serde_json::from_str(&json!({ "spec": spec }).to_string()).unwrap();
        assert_eq!(object.excess(), Some(LimitError::Values));
        let (_, value, mut names) = object.into_parts();
        assert!(value.to_string().len() < 10 * MOST_VALUES);
        names.collect(&value);
        assert!(texts.iter().step_by(999).chain(texts.last()).all(|text| names.contains(text)));
    }
}

#[test]
fn malformed_objects_are_refused() {
    for text in ["[]", "null", r#"{"metadata":[]}"#] {
        assert!(serde_json::from_str::<Object>(text).is_err(), "{text}");
    }
}

/// `managedFields` as a client may write them into any object: times that we cannot represent, fields of any depth, and nonsense.
fn hostile() -> impl Strategy<Value = String> {
    let time = prop::sample::select(vec![
        r#""2026-01-01T00:00:00Z""#,
        r#""9999-12-31T23:59:59Z""#,
        r#""0001-01-01T00:00:00Z""#,
        "null",
    ]);
    let manager = prop::sample::select(vec![MANAGER, "kubectl", ""]);
    let entry = (manager, time, 0..300_usize).prop_map(|(manager, time, depth)| {
        let fields = format!("{}{{}}{}", r#"{"f:x":"#.repeat(depth), "}".repeat(depth));
        format!(
            r#"{{"manager":"{manager}","operation":"Apply","time":{time},"fieldsType":"FieldsV1","fieldsV1":{fields}}}"#
        )
    });
    let entries = prop::collection::vec(entry, 0..4).prop_map(|entries| format!("[{}]", entries.join(",")));
    prop_oneof![8 => entries, 1 => Just("null".to_owned()), 1 => Just("{}".to_owned())]
}

/// The name of each object of a list, and whether it is being deleted.
fn names<T: for<'de> Deserialize<'de>>(
    text: &str,
    metadata: impl Fn(&T) -> &ObjectMeta,
) -> Vec<(Option<String>, bool)> {
    #[derive(Deserialize)]
    struct List<T> {
        items: Vec<T>,
    }
    let list: List<T> = serde_json::from_str(text).unwrap();
    let of = |one: &T| (metadata(one).name.clone(), metadata(one).deletion_timestamp.is_some());
    list.items.iter().map(of).collect()
}

proptest! {
    #[test]
    fn every_reader_reads_a_list_with_any_metadata_that_clients_write(fields in hostile(), is_late in any::<bool>()) {
        let deleted = if is_late { r#","deletionTimestamp":"9999-12-31T23:59:59Z""# } else { "" };
        let hostile = format!(r#"{{"metadata":{{"name":"a","namespace":"ns","managedFields":{fields}{deleted}}}}}"#);
        let text = format!(r#"{{"metadata":{{}},"items":[{hostile},{{"metadata":{{"name":"b"}}}}]}}"#);
        let expected = vec![(Some("a".to_owned()), is_late), (Some("b".to_owned()), false)];
        prop_assert_eq!(names::<Object>(&text, Object::metadata), expected.clone());
        prop_assert_eq!(names::<Tracked>(&text, |one| one.object().metadata()), expected.clone());
        prop_assert_eq!(names::<Metadata>(&text, |one| &one.metadata), expected.clone());
        prop_assert_eq!(names::<FullMetadata>(&text, |one| &one.metadata), expected.clone());
        prop_assert_eq!(names::<Content<String>>(&text, |one| &one.metadata), expected);
    }
}
