//! What the files say: resources of ours, admitted as an API server would, and the Secrets and ConfigMaps beside them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use skep_api::admission::{Admission, Admitted};
use skep_api::manifest;
use skep_api::resource::{KindName, Resource};
use skep_plan::canonical::sha256_hex;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::world::Found;

use super::report::{Entry, State};
use crate::files;

/// The namespace of an object that names none.
pub(super) const NAMESPACE: &str = "default";

/// What the files say.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    /// Our resources, in the order of the files.
    pub(super) resources: Vec<Arc<Resource>>,
    /// Everything that a plan may see.
    pub(super) found: BTreeMap<Key, Found>,
    /// What is not run, and why.
    pub(super) told: Vec<Entry>,
    values: Values,
}

/// The values of Secrets and ConfigMaps. They go into the memory of proxies and nowhere else.
#[derive(Default)]
struct Values(BTreeMap<Key, Keys>);

/// What a Secret or ConfigMap holds, by key.
type Keys = BTreeMap<String, Vec<u8>>;

/// Without the values.
impl fmt::Debug for Values {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

// === impl Manifests ===

impl Manifests {
    /// Reads files and directories.
    pub(super) fn load(paths: &[PathBuf]) -> Result<Self> {
        let admission = Admission::new()?;
        let mut manifests = Self::default();
        let mut is_empty = true;
        for (file, text) in files::read_all(paths)? {
            let objects = manifest::parse(&text).with_context(|| format!("cannot read `{file}`"))?;
            is_empty &= objects.is_empty();
            manifests.add(&admission, &file, &objects);
        }
        if is_empty {
            return Err(anyhow!("there is nothing to run: no file holds a manifest"));
        }
        Ok(manifests)
    }

    /// Takes objects that are in no file; `origin` says where they come from.
    pub(super) fn of(origin: &str, objects: &[Value]) -> Result<Self> {
        let mut manifests = Self::default();
        manifests.add(&Admission::new()?, origin, objects);
        Ok(manifests)
    }

    /// Adds the objects of a file. One that is wrong is told, and the others count.
    fn add(&mut self, admission: &Admission, file: &str, objects: &[Value]) {
        for object in objects {
            let object = in_namespace(object);
            let added = match admission.admit(&object) {
                Ok(Admitted::Ours(admitted)) => self.add_resource(admitted),
                Ok(Admitted::Foreign) => self.add_foreign(&object),
                Err(problems) => {
                    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                    Err(State::Refused(format!("{} (in {file})", problems.join("; "))))
                }
            };
            if let Err(state) = added {
                self.told.push(entry(&object, state));
            }
        }
    }

    /// The value of a key of a Secret or ConfigMap. Nothing if it may be missing, and is.
    pub(super) fn value(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
        key: &str,
        optional: bool,
    ) -> Result<Option<String>, String> {
        let place = Key { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        let Some(value) = self.values.0.get(&place).map(|keys| keys.get(key)) else {
            let missing = format!("{kind} `{name}` is not in the files; add it with the key `{key}`");
            return if optional { Ok(None) } else { Err(missing) };
        };
        match value.map(|value| String::from_utf8(value.clone())) {
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(format!("key `{key}` of {kind} `{name}` is not text, and so cannot be a variable")),
            None if optional => Ok(None),
            None => Err(format!("{kind} `{name}` has no key `{key}`; add it")),
        }
    }

    fn add_resource(&mut self, object: Value) -> Result<(), State> {
        let kind = object.get("kind").and_then(Value::as_str).and_then(KindName::parse);
        let kind = kind.ok_or_else(|| State::Skipped("it is of no kind that is known here".to_owned()))?;
        let resource = Resource::from_value(kind, object).map_err(|error| State::Refused(error.to_string()))?;
        let resource = Arc::new(resource);
        self.insert(Key::of(&resource), Found::Resource(resource.clone()))?;
        self.resources.push(resource);
        Ok(())
    }

    fn add_foreign(&mut self, object: &Value) -> Result<(), State> {
        let kind = match object.get("kind").and_then(Value::as_str) {
            Some("Secret") => ObjectKind::Secret,
            Some("ConfigMap") => ObjectKind::ConfigMap,
            _ => return Err(State::Skipped("it is no kind of Skep's".to_owned())),
        };
        let (key, found, values) = read_foreign(kind, object).map_err(State::Refused)?;
        self.insert(key.clone(), found)?;
        self.values.0.insert(key, values);
        Ok(())
    }

    fn insert(&mut self, key: Key, found: Found) -> Result<(), State> {
        if self.found.contains_key(&key) {
            return Err(State::Refused("it is written down twice; keep one".to_owned()));
        }
        self.found.insert(key, found);
        Ok(())
    }
}

/// What is said about an object that is not run.
fn entry(object: &Value, state: State) -> Entry {
    let part = |field: &str| named(object, field).unwrap_or("?").to_owned();
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or("?").to_owned();
    Entry { kind, namespace: part("namespace"), name: part("name"), transport: None, url: None, state }
}

/// The object, with the namespace that `kubectl` would put it into.
fn in_namespace(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("namespace").is_none_or(|namespace| namespace.is_null() || namespace == "")
    {
        metadata.insert("namespace".to_owned(), json!(NAMESPACE));
    }
    object
}

/// Name or namespace of an object.
fn named<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field)?.as_str()
}

/// The name of a Secret or ConfigMap, what plans see of it, and what it holds.
fn read_foreign(kind: ObjectKind, object: &Value) -> Result<(Key, Found, Keys), String> {
    let part = |field: &str| {
        let text = named(object, field).map(str::to_owned);
        text.ok_or_else(|| format!("metadata.{field} must be a string; put quotes around it"))
    };
    let key = Key { kind, namespace: part("namespace")?, name: part("name")? };
    let data = texts(object, "data")?;
    if kind == ObjectKind::ConfigMap {
        let values = data.iter().map(|(name, text)| (name.clone(), text.as_bytes().to_vec())).collect();
        return Ok((key, Found::ConfigMap(data), values));
    }
    let mut values = Keys::new();
    for (name, encoded) in data {
        let plain: String = encoded.split_whitespace().collect();
        let value = BASE64.decode(plain).map_err(|_| format!("data.{name} is not base64; use stringData for text"))?;
        values.insert(name, value);
    }
    values.extend(texts(object, "stringData")?.into_iter().map(|(name, text)| (name, text.into_bytes())));
    let digests = values.iter().map(|(name, value)| (name.clone(), sha256_hex(value))).collect();
    Ok((key, Found::Secret(digests), values))
}

/// The members of a map of texts.
fn texts(object: &Value, field: &str) -> Result<BTreeMap<String, String>, String> {
    let members = object.get(field).and_then(Value::as_object).into_iter().flatten();
    let read = members.map(|(name, value)| match value {
        Value::String(text) => Ok((name.clone(), text.clone())),
        _ => Err(format!("{field}.{name} must be a string; put quotes around it")),
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifests(text: &str) -> Manifests {
        Manifests::of("f.yaml", &manifest::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn secrets_and_config_maps_are_found_and_their_values_are_not_shown() {
        let all = manifests(
            "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: 'aHVzaDE=', b: /w==}, stringData: {c: hush2}}\n\
             ---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: team}, data: {k: v}}\n",
        );
        let secret = |key: &str| all.value(ObjectKind::Secret, NAMESPACE, "s", key, false);
        assert_eq!(secret("a"), Ok(Some("hush1".to_owned())));
        assert_eq!(secret("c"), Ok(Some("hush2".to_owned())));
        assert!(secret("b").unwrap_err().contains("not text"));
        assert!(secret("d").unwrap_err().contains("has no key `d`"));
        assert_eq!(all.value(ObjectKind::Secret, NAMESPACE, "s", "d", true), Ok(None));
        assert!(all.value(ObjectKind::Secret, "team", "s", "a", false).unwrap_err().contains("not in the files"));
        assert_eq!(all.value(ObjectKind::ConfigMap, "team", "m", "k", false), Ok(Some("v".to_owned())));
        assert!(!format!("{all:?}").contains("hush"), "{all:?}");
    }

    #[test]
    fn what_is_wrong_is_told_and_the_rest_counts() {
        let all = manifests(
            "{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPServer, metadata: {name: a}, spec: {image: x}}\n\
             ---\n{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPServer, metadata: {name: a}, spec: {image: z}}\n\
             ---\n{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPServer, metadata: {name: b}, spec: {imag: x}}\n\
             ---\n{apiVersion: v1, kind: Namespace, metadata: {name: c}}\n\
             ---\n{apiVersion: v1, kind: Secret, metadata: {name: d}, data: {a: '?'}}\n\
             ---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: f}, data: {a: yes}}\n",
        );
        assert_eq!(all.resources.len(), 1);
        let told: Vec<_> = all.told.iter().map(|one| (one.name.as_str(), format!("{:?}", one.state))).collect();
        for ((name, state), (expected, words)) in told.iter().zip([
            ("a", "twice"),
            ("b", "did you mean `image`"),
            ("c", "Skipped"),
            ("d", "not base64"),
            ("f", "quotes"),
        ]) {
            assert!(*name == expected && state.contains(words), "{name}: {state}");
        }
        assert_eq!(told.len(), 5);
    }
}
