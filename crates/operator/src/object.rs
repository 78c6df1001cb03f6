//! An object as the API server sends it: its metadata read, the rest as it came.
//!
//! What the API server notes about who wrote which field is about half of an object and of no use to a plan. It is not even
//! read.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Who wrote which field.
const MANAGED_FIELDS: &str = "managedFields";

/// An object of any kind.
#[derive(Clone, Debug)]
pub struct Object {
    metadata: ObjectMeta,
    value: Value,
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

    /// What every object has, and all of it.
    pub fn into_parts(self) -> (ObjectMeta, Value) {
        (self.metadata, self.value)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = deserializer.deserialize_map(Members { of: Part::Whole })?;
        let metadata = value.get("metadata").map(ObjectMeta::deserialize).transpose().map_err(D::Error::custom)?;
        Ok(Self { metadata: metadata.unwrap_or_default(), value: Value::Object(value) })
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
struct Members {
    of: Part,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Metadata,
}

impl<'de> Visitor<'de> for Members {
    type Value = Map<String, Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            match (self.of, name.as_str()) {
                (Part::Whole, "metadata") => {
                    let metadata = access.next_value_seed(Members { of: Part::Metadata })?;
                    members.insert(name, Value::Object(metadata));
                }
                (Part::Metadata, MANAGED_FIELDS) => {
                    access.next_value::<IgnoredAny>()?;
                }
                _ => {
                    members.insert(name, access.next_value()?);
                }
            }
        }
        Ok(members)
    }
}

impl<'de> DeserializeSeed<'de> for Members {
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
    fn what_is_no_object_is_refused() {
        for text in ["[]", "null", r#"{"metadata":[]}"#, r#"{"metadata":{"name":1}}"#] {
            assert!(serde_json::from_str::<Object>(text).is_err(), "{text}");
        }
    }
}
