//! An object as the API server sends it: its metadata read, the rest as it came.
//!
//! What the API server notes about who wrote which field is about half of an object and of no use to a plan. It is not even
//! read. Nor is what is nested deeper than anything of ours: the reader of JSON gives up at some depth, and one object that it cannot
//! read would cost us the whole list that it is in.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Who wrote which field.
const MANAGED_FIELDS: &str = "managedFields";

/// How deep lists and objects in an object are read. The reader's own limit is 128, for all that an object is in as well.
pub const DEEPEST: usize = 100;

/// An object of any kind.
#[derive(Clone, Debug)]
pub struct Object {
    metadata: ObjectMeta,
    value: Value,
    is_too_deep: bool,
}

// === impl Object ===

impl Object {
    /// What every object has.
    pub const fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    /// All of it.
    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// Whether it is nested deeper than it is read. What is deeper is missing.
    pub const fn is_too_deep(&self) -> bool {
        self.is_too_deep
    }

    /// What every object has, and all of it.
    pub fn into_parts(self) -> (ObjectMeta, Value) {
        (self.metadata, self.value)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_too_deep = Cell::new(false);
        let value = deserializer.deserialize_map(Members { of: Part::Whole, is_too_deep: &is_too_deep })?;
        let metadata = value.get("metadata").map(ObjectMeta::deserialize).transpose().map_err(D::Error::custom)?;
        let value = Value::Object(value);
        Ok(Self { metadata: metadata.unwrap_or_default(), value, is_too_deep: is_too_deep.get() })
    }
}

impl Serialize for Object {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl kube::Resource for Object {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn api_version(of: &ApiResource) -> Cow<'_, str> {
        of.api_version.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Reads the members of an object, or of its metadata, but those that are of no use.
struct Members<'a> {
    of: Part,
    is_too_deep: &'a Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Metadata,
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            match (self.of, name.as_str()) {
                (Part::Whole, "metadata") => {
                    let metadata = access.next_value_seed(Members { of: Part::Metadata, ..self })?;
                    members.insert(name, Value::Object(metadata));
                }
                (Part::Metadata, MANAGED_FIELDS) => {
                    access.next_value::<IgnoredAny>()?;
                }
                _ => {
                    let part = Within { left: DEEPEST, is_too_deep: self.is_too_deep };
                    members.insert(name, access.next_value_seed(part)?);
                }
            }
        }
        Ok(members)
    }
}

/// Reads any value, so many levels of it. What is deeper is passed over, which takes no stack.
#[derive(Clone, Copy)]
struct Within<'a> {
    left: usize,
    is_too_deep: &'a Cell<bool>,
}

impl Within<'_> {
    /// One level further down, if there is one left.
    fn inner(self) -> Option<Self> {
        let left = self.left.checked_sub(1)?;
        Some(Self { left, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Within<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Within<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        let Some(inner) = self.inner() else {
            self.is_too_deep.set(true);
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        while let Some(value) = access.next_element_seed(inner)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        let Some(inner) = self.inner() else {
            self.is_too_deep.set(true);
            while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        while let Some(name) = access.next_key::<String>()? {
            members.insert(name, access.next_value_seed(inner)?);
        }
        Ok(Value::Object(members))
    }
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_kept_as_it_came_but_for_who_wrote_what() {
        let metadata = json!({ "name": "a", "uid": "u", "labels": { "managedFields": "mine" } });
        let mut sent =
            json!({ "kind": "K", "metadata": metadata, "spec": { "managedFields": [1, 2.5, null] }, "x": [] });
        let expected = sent.clone();
        sent["metadata"][MANAGED_FIELDS] = json!([{ "manager": "m", "fieldsV1": { "f:spec": {} } }]);
        let object: Object = serde_json::from_str(&sent.to_string()).unwrap();
        assert_eq!(object.metadata().uid.as_deref(), Some("u"));
        assert_eq!(object.metadata().managed_fields, None);
        assert_eq!(object.value(), &expected);
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
                    read["items"].iter().map(|one| (one.metadata().name.as_deref(), one.is_too_deep())).collect();
                assert_eq!(known, [(Some("a"), is_too_deep), (Some("b"), false)], "{levels}");
            }
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["[]", "null", r#"{"metadata":[]}"#, r#"{"metadata":{"name":1}}"#] {
            assert!(serde_json::from_str::<Object>(text).is_err(), "{text}");
        }
    }
}
