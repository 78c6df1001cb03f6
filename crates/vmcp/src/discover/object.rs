//! A resource as the API server sends it, read only as deep as any of ours is: the parser gives up at some depth, and one object that it cannot
//! read would cost the whole list that it is in.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use skep_api::crd::{GROUP, STORED_VERSION};
use skep_api::resource::KindName;
use skep_bounds::OBJECT_DEPTH;

/// The fields of metadata that nothing here needs, and that are about half of an object.
const MANAGED_FIELDS: &str = "managedFields";

/// An object of one of Skep's kinds.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    metadata: ObjectMeta,
    value: Value,
}

/// A kind of ours, in the version that is stored.
pub(crate) fn resource_of(kind: KindName) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: STORED_VERSION.to_owned(),
        api_version: format!("{GROUP}/{STORED_VERSION}"),
        kind: kind.as_str().to_owned(),
        plural: kind.plural().to_owned(),
    }
}

// === impl Watched ===

impl Watched {
    /// All of it.
    pub(crate) fn into_value(self) -> Value {
        self.value
    }
}

impl<'de> Deserialize<'de> for Watched {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Within(OBJECT_DEPTH).deserialize(deserializer)?;
        let metadata = value.get("metadata").map(ObjectMeta::deserialize).transpose().map_err(D::Error::custom)?;
        Ok(Self { metadata: metadata.unwrap_or_default(), value })
    }
}

impl Serialize for Watched {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl kube::Resource for Watched {
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

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Reads a value so many levels deep. What is deeper is null.
#[derive(Clone, Copy)]
struct Within(usize);

impl<'de> DeserializeSeed<'de> for Within {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.0 == 0 {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(|IgnoredAny| Value::Null);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Within {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(Self(self.0 - 1))? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            if name == MANAGED_FIELDS {
                access.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = access.next_value_seed(Self(self.0 - 1))?;
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_as_deep_as_ours_are_and_without_its_managers() {
        let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
        let text = format!(
            r#"{{"metadata":{{"name":"a","managedFields":[{{"manager":"m"}}]}},"spec":{{"image":"i","n":[1,-2,1.5,null,true],"deep":{deep}}}}}"#
        );
        let watched: Watched = serde_json::from_str(&text).unwrap();
        assert_eq!(kube::ResourceExt::name_any(&watched), "a");
        let value = watched.into_value();
        assert_eq!(value["spec"]["n"], serde_json::json!([1, -2, 1.5, null, true]));
        assert!(value["metadata"].get("managedFields").is_none());
        assert!(value["spec"]["deep"][0][0].is_array());
    }
}
