//! An object as the API server sends it: its metadata read, the rest as it came.
//!
//! `managedFields` are about half of an object and of no use to a plan, so they are skipped. Nor is what is nested deeper than anything of ours: the reader of JSON gives up at some depth, and one object that it cannot
//! read would cost us the whole list that it is in. Of more values than a spec of ours can have only those texts are kept that could
//! be names of what it refers to: an object takes a hundred times the bytes that it was sent in.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use skep_plan::canonical;

use crate::possible_names::PossibleNames;
use crate::write::MANAGER;

/// The field managers of an object.
const MANAGED_FIELDS: &str = "managedFields";

/// How deep lists and objects in an object are read. The reader's own limit is 128, for all that an object is in as well.
pub const DEEPEST: usize = skep_bounds::OBJECT_DEPTH;

/// How many scalars, lists and objects of an object are kept, beside those of its metadata and its status.
pub const MOST_VALUES: usize = skep_bounds::OBJECT_VALUES;

/// An object of any kind, with what the API server notes about the fields that the operator applied, and no other manager's.
#[derive(Clone, Debug)]
pub struct Tracked(Object);

/// An object of any kind.
#[derive(Clone, Debug)]
pub struct Object {
    metadata: ObjectMeta,
    value: Value,
    excess: Option<LimitError>,
    names: PossibleNames,
}

/// The metadata of an object of any kind, which is all that is requested of it: of its managers only which fields the operator
/// applied.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The metadata.
    pub metadata: ObjectMeta,
}

/// The metadata of an object of any kind with all its managers, to change them.
#[derive(Clone, Debug)]
pub struct FullMetadata {
    /// The metadata, without managers.
    pub metadata: ObjectMeta,
    /// The metadata as it was sent, with managers.
    pub value: Value,
}

/// What a Secret or a ConfigMap holds.
#[derive(Clone, Debug)]
pub struct Content<T> {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its values by key.
    pub data: BTreeMap<String, T>,
}

/// Which limit an object exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// It is nested too deep.
    #[error("it is nested deeper than {DEEPEST} levels")]
    Depth,
    /// It has too many values.
    #[error("it has more than {MOST_VALUES} values (texts, numbers, lists and objects)")]
    Values,
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

    /// The limit that it exceeds, if it does. What is deeper is missing then, and so are too many values.
    pub const fn excess(&self) -> Option<LimitError> {
        self.excess
    }

    /// What every object has, all of it, and the texts of values that were too many, as far as they could be names.
    pub fn into_parts(self) -> (ObjectMeta, Value, PossibleNames) {
        (self.metadata, self.value, self.names)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(deserializer, Managers::None)
    }
}

impl<'de> Deserialize<'de> for Tracked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Object::read(deserializer, Managers::Ours).map(Self)
    }
}

impl Tracked {
    /// The object.
    pub const fn object(&self) -> &Object {
        &self.0
    }
}

impl Object {
    fn read<'de, D: Deserializer<'de>>(deserializer: D, managers: Managers) -> Result<Self, D::Error> {
        let limits = Limits::default();
        let value = deserializer.deserialize_map(Members { of: Part::Whole, managers, limits: &limits })?;
        let metadata = value.get("metadata").map(metadata_of).unwrap_or_default();
        let (value, excess) = (Value::Object(value), limits.excess.get());
        Ok(Self { metadata, value, excess, names: limits.names.into_inner() })
    }
}

// === impl Metadata, FullMetadata, Content ===

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let limits = Limits::default();
        let members = Members { of: Part::WholeMetadata, managers: Managers::Ours, limits: &limits };
        let value = deserializer.deserialize_map(members)?;
        Ok(Self { metadata: value.get("metadata").map(metadata_of).unwrap_or_default() })
    }
}

impl<'de> Deserialize<'de> for FullMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let limits = Limits::default();
        let members = Members { of: Part::WholeMetadata, managers: Managers::All, limits: &limits };
        let mut value = deserializer.deserialize_map(members)?;
        let value = value.remove("metadata").unwrap_or_default();
        Ok(Self { metadata: metadata_of(&value), value })
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Content<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire<T> {
            #[serde(default)]
            metadata: OwnMetadata,
            data: Option<BTreeMap<String, T>>,
        }
        let Wire { metadata: OwnMetadata(metadata), data } = Wire::deserialize(deserializer)?;
        Ok(Self { metadata, data: data.unwrap_or_default() })
    }
}

/// Metadata without managers.
#[derive(Default)]
struct OwnMetadata(ObjectMeta);

impl<'de> Deserialize<'de> for OwnMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let limits = Limits::default();
        let members = Members { of: Part::Metadata, managers: Managers::None, limits: &limits };
        let value = deserializer.deserialize_map(members)?;
        Ok(Self(metadata_of(&Value::Object(value))))
    }
}

/// The metadata in a value. A member that cannot be read is left out; a time that is later than any that we can represent is the latest.
///
/// One object that cannot be read would cost the whole list that it is in, and with it the reconciliation of every namespace.
fn metadata_of(value: &Value) -> ObjectMeta {
    if let Ok(metadata) = ObjectMeta::deserialize(value) {
        return metadata;
    }
    let is_readable = |name: &str, member: &Value| ObjectMeta::deserialize(&json!({ name: member })).is_ok();
    let members = value.as_object().into_iter().flatten().filter_map(|(name, member)| {
        let is_time = matches!(name.as_str(), "creationTimestamp" | "deletionTimestamp");
        match is_readable(name, member) {
            true => Some((name.clone(), member.clone())),
            false if is_time => Some((name.clone(), json!(jiff::Timestamp::MAX.to_string()))),
            false => None,
        }
    });
    ObjectMeta::deserialize(Value::Object(members.collect())).unwrap_or_default()
}

impl Serialize for Object {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// All are addressed by a resource that is known at run time. Of some only the metadata is requested.
macro_rules! dynamic_resource {
    ($type:ty, $is_metadata:literal, $($metadata:tt).+) => {
        impl kube::Resource for $type {
            type DynamicType = ApiResource;
            type Scope = DynamicResourceScope;

            fn metadata_api() -> bool {
                $is_metadata
            }

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
                &self.$($metadata).+
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.$($metadata).+
            }
        }
    };
}

dynamic_resource!(Object, false, metadata);
dynamic_resource!(Tracked, false, 0.metadata);
dynamic_resource!(Metadata, true, metadata);
dynamic_resource!(FullMetadata, true, metadata);

/// Whether the API server notes here which fields the operator applied.
pub fn is_applied_by_us(entry: &Value) -> bool {
    let is = |member: &str, text: &str| entry.get(member).and_then(Value::as_str).unwrap_or_default() == text;
    is("manager", MANAGER) && is("operation", "Apply") && is("subresource", "")
}

/// Digest of the fields of an object that the operator applied and that are still as it applied them; empty for none.
///
/// A field that another manager sets to another value, or removes, is no longer noted as ours. So this changes when another manager
/// changed a field of ours, and stays when one changed the rest.
pub fn owned_fields(metadata: &ObjectMeta) -> String {
    let entries = metadata.managed_fields.iter().flatten().filter_map(|entry| serde_json::to_value(entry).ok());
    let ours = entries.filter(is_applied_by_us).find_map(|mut entry| entry.get_mut("fieldsV1").map(Value::take));
    ours.map(|fields| canonical::sha256_hex(canonical::to_string(&fields).as_bytes())).unwrap_or_default()
}

/// Reads the members of an object, or of its metadata, but those that are of no use.
struct Members<'a> {
    of: Part,
    managers: Managers,
    limits: &'a Limits,
}

/// Which entries of `managedFields` are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Managers {
    None,
    /// The one that says which fields the operator applied, without its time: any client may have written it.
    Ours,
    All,
}

/// What was read of an object, and which limit that exceeded first.
#[derive(Debug, Default)]
struct Limits {
    values: Cell<usize>,
    excess: Cell<Option<LimitError>>,
    /// What could be names among the values that were not kept.
    names: RefCell<PossibleNames>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// The whole object, of which only the metadata is kept.
    WholeMetadata,
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
                (Part::Whole | Part::WholeMetadata, "metadata") => {
                    let metadata = access.next_value_seed(Members { of: Part::Metadata, ..self })?;
                    members.insert(name, Value::Object(metadata));
                }
                (Part::Metadata, MANAGED_FIELDS) if self.managers != Managers::None => {
                    // What is too deep in there is left out, and does not make the object itself too deep: any client may write it.
                    let limits = Limits::default();
                    let part = Within { left: DEEPEST, is_counted: false, limits: &limits };
                    let entries = access.next_value_seed(part)?;
                    members.insert(name, self.managers.keep(entries));
                }
                (Part::Metadata, MANAGED_FIELDS) | (Part::WholeMetadata, _) => {
                    access.next_value::<IgnoredAny>()?;
                }
                (of, member) => {
                    // Users write the spec. The metadata is bounded by the API server, and the status by who writes it; and both are needed
                    // even of an object with too large a spec.
                    let is_counted = of == Part::Whole && member != "status";
                    let part = Within { left: DEEPEST, is_counted, limits: self.limits };
                    members.insert(name, access.next_value_seed(part)?);
                }
            }
        }
        Ok(members)
    }
}

impl Managers {
    fn keep(self, entries: Value) -> Value {
        let Value::Array(mut entries) = entries else { return Value::Array(Vec::new()) };
        if self == Self::Ours {
            entries.retain(is_applied_by_us);
            for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
                entry.remove("time");
            }
        }
        Value::Array(entries)
    }
}

/// Reads any value, so many levels of it. What is deeper is passed over, which takes no stack.
#[derive(Clone, Copy)]
struct Within<'a> {
    left: usize,
    /// Whether its values count.
    is_counted: bool,
    limits: &'a Limits,
}

impl Within<'_> {
    /// One level further down, if there is one left.
    fn inner(self) -> Option<Self> {
        let left = self.left.checked_sub(1);
        if left.is_none() {
            self.exceed(LimitError::Depth);
        }
        left.map(|left| Self { left, ..self })
    }

    /// Counts one more value.
    fn count(self) {
        let values = self.limits.values.get() + usize::from(self.is_counted);
        self.limits.values.set(values);
        if values > MOST_VALUES {
            self.exceed(LimitError::Values);
        }
    }

    /// A value that is kept. Of too many none is, nor what holds them: only the names in them.
    fn keep(self, value: Value) -> Option<Value> {
        if !self.is_counted || self.limits.values.get() <= MOST_VALUES {
            return Some(value);
        }
        self.limits.names.borrow_mut().collect(&value);
        None
    }

    fn exceed(self, excess: LimitError) {
        self.limits.excess.set(self.limits.excess.get().or(Some(excess)));
    }
}

impl<'de> DeserializeSeed<'de> for Within<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.count();
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
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        while let Some(value) = access.next_element_seed(inner)? {
            list.extend(self.keep(value));
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        let Some(inner) = self.inner() else {
            while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        while let Some(name) = access.next_key::<String>()? {
            let value = access.next_value_seed(inner)?;
            members.extend(self.keep(value).map(|value| (name, value)));
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
mod tests;
