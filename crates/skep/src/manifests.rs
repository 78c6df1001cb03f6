//! The content of the files: our resources, admitted as an API server would, and the Secrets and ConfigMaps beside
//! them.
//!
//! `skep check` and `skep run` read the same files in the same way. An error in one file, document or object is kept
//! beside the others, and hides none of them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use skep_api::admission::{Admission, Admitted};
use skep_api::manifest;
use skep_api::plain::plain;
use skep_api::resource::{KindName, Resource};
use skep_plan::canonical::sha256_hex;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::world::Found;

use crate::files;

/// How many documents of one file are reported that cannot be read.
const MOST_ERRORS: usize = 20;

/// The default namespace of an object.
pub(crate) const NAMESPACE: &str = "default";

/// The content of the files.
#[derive(Debug, Default)]
pub(crate) struct Manifests {
    /// Every object, in the order of the files.
    pub(crate) objects: Vec<Object>,
    /// Files and documents that cannot be read.
    pub(crate) unreadable: Vec<Unreadable>,
    /// All objects that a plan may see.
    pub(crate) found: BTreeMap<Key, Found>,
    places: BTreeMap<Identity, Place>,
    values: Values,
}

/// One object of the files.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// Where it is.
    pub(crate) place: Place,
    /// Its kind, namespace and name, as far as it has them.
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Whether it sets the port of its proxy.
    pub(crate) has_port: bool,
    /// Its content.
    pub(crate) content: Content,
}

/// The content of an object.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A resource of ours.
    Resource(Arc<Resource>),
    /// A Secret or ConfigMap, which resources may refer to.
    Data,
    /// An object of another API group, which is ignored.
    Foreign,
    /// An object that an API server would reject; all its errors.
    Invalid(Vec<String>),
}

/// Where an object starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    file: String,
    line: usize,
}

/// A file, or a document in it, that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    /// The file.
    pub(crate) file: String,
    /// The error, and where.
    pub(crate) problem: String,
}

/// The identity of an object: API group, kind, namespace and name.
type Identity = [String; 4];

/// The values of Secrets and ConfigMaps. They go into the memory of proxies and nowhere else.
#[derive(Default)]
struct Values(BTreeMap<Key, Keys>);

/// The values of a Secret or ConfigMap, by key.
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
    pub(crate) fn load(paths: &[PathBuf]) -> Result<Self> {
        let admission = Admission::new()?;
        let mut manifests = Self::default();
        for source in files::read_all(paths) {
            match source.text {
                Ok(text) => manifests.add_text(&admission, &source.file, &text),
                Err(problem) => manifests.unreadable.push(Unreadable { file: source.file, problem }),
            }
        }
        Ok(manifests)
    }

    /// Parses a text that is in no file; `origin` is its name in messages.
    pub(crate) fn of(origin: &str, text: &str) -> Result<Self> {
        let mut manifests = Self::default();
        manifests.add_text(&Admission::new()?, origin, text);
        Ok(manifests)
    }

    /// The objects that an API server would reject, and where they are.
    pub(crate) fn rejected(&self) -> BTreeMap<Key, Place> {
        let invalid = self.objects.iter().filter(|object| matches!(object.content, Content::Invalid(_)));
        let keyed = invalid.filter_map(|object| {
            let kind = match object.kind.as_str() {
                "Secret" => ObjectKind::Secret,
                "ConfigMap" => ObjectKind::ConfigMap,
                kind => ObjectKind::Kind(KindName::ALL.iter().copied().find(|known| known.as_str() == kind)?),
            };
            let (namespace, name) = (object.namespace.clone(), object.name.clone());
            Some((Key { kind, namespace, name }, object.place.clone()))
        });
        keyed.collect()
    }

    /// Our resources, in the order of the files.
    pub(crate) fn resources(&self) -> impl Iterator<Item = (&Object, &Arc<Resource>)> {
        self.objects.iter().filter_map(|object| match &object.content {
            Content::Resource(resource) => Some((object, resource)),
            _ => None,
        })
    }

    fn add_text(&mut self, admission: &Admission, file: &str, text: &str) {
        let mut errors = 0;
        for document in manifest::documents(text) {
            let place = Place { file: file.to_owned(), line: document.line };
            match document.objects {
                Ok(objects) => objects.into_iter().for_each(|object| self.add(admission, &place, object)),
                Err(_) if errors == MOST_ERRORS => {
                    let problem = format!("more than {MOST_ERRORS} documents cannot be read; the rest is left out");
                    self.unreadable.push(Unreadable { file: file.to_owned(), problem });
                    return;
                }
                Err(error) => {
                    errors += 1;
                    self.unreadable.push(Unreadable { file: file.to_owned(), problem: error.to_string() });
                }
            }
        }
    }

    fn add(&mut self, admission: &Admission, place: &Place, object: Value) {
        let has_port = object.pointer("/spec/proxyPort").is_some_and(|port| !port.is_null());
        let object = in_namespace(object);
        let content = match self.read(admission, place, &object) {
            Ok(content) => content,
            Err(problems) => Content::Invalid(problems.iter().map(|problem| plain(problem)).collect()),
        };
        let part = |field: &str| named(&object, field).unwrap_or("?").to_owned();
        self.objects.push(Object {
            place: place.clone(),
            kind: object.get("kind").and_then(Value::as_str).unwrap_or("?").to_owned(),
            namespace: part("namespace"),
            name: part("name"),
            has_port,
            content,
        });
    }

    fn read(&mut self, admission: &Admission, place: &Place, object: &Value) -> Result<Content, Vec<String>> {
        let admitted = admission.admit(object);
        self.claim(place, object).map_err(|problem| vec![problem])?;
        match admitted {
            Ok(Admitted::Ours(admitted)) => self.add_resource(admitted).map_err(|problem| vec![problem]),
            Ok(Admitted::Foreign) => self.add_foreign(object).map_err(|problem| vec![problem]),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    /// Records where an object is. Its name must be unique: of two, it is unclear which one counts.
    fn claim(&mut self, place: &Place, object: &Value) -> Result<(), String> {
        let Some(name) = named(object, "name") else { return Ok(()) };
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
        let namespace = named(object, "namespace").unwrap_or_default();
        let identity = [group, text("kind"), namespace, name].map(str::to_owned);
        if let Some(first) = self.places.get(&identity) {
            let label = if namespace == NAMESPACE { name.to_owned() } else { format!("{namespace}/{name}") };
            let kind = text("kind");
            return Err(format!("{kind} `{label}` is defined twice: at {first} and at {place}; remove one of them"));
        }
        self.places.insert(identity, place.clone());
        Ok(())
    }

    /// The value of a key of a Secret or ConfigMap. `None` if it is optional and missing.
    pub(crate) fn value(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
        key: &str,
        optional: bool,
    ) -> Result<Option<String>, String> {
        match self.bytes(kind, namespace, name, key) {
            Ok(bytes) => String::from_utf8(bytes)
                .map(Some)
                .map_err(|_| format!("key `{key}` of {kind} `{name}` is not text, and so cannot be a variable")),
            Err(_) if optional => Ok(None),
            Err(missing) => Err(missing),
        }
    }

    /// The bytes under a key of a Secret or ConfigMap; or what is missing.
    pub(crate) fn bytes(&self, kind: ObjectKind, namespace: &str, name: &str, key: &str) -> Result<Vec<u8>, String> {
        let place = Key { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        let Some(keys) = self.values.0.get(&place) else {
            return Err(format!("{kind} `{name}` is not in the files; add it with the key `{key}`"));
        };
        keys.get(key).cloned().ok_or_else(|| format!("{kind} `{name}` has no key `{key}`; add it"))
    }

    fn add_resource(&mut self, object: Value) -> Result<Content, String> {
        let kind = object.get("kind").and_then(Value::as_str).and_then(KindName::parse);
        let kind = kind.ok_or_else(|| "its kind is unknown".to_owned())?;
        let resource = Resource::from_value(kind, as_if_running(kind, object)).map_err(|error| error.to_string())?;
        let resource = Arc::new(resource);
        self.found.insert(Key::of(&resource), Found::Resource(resource.clone()));
        Ok(Content::Resource(resource))
    }

    fn add_foreign(&mut self, object: &Value) -> Result<Content, String> {
        let kind = match object.get("kind").and_then(Value::as_str) {
            Some("Secret") => ObjectKind::Secret,
            Some("ConfigMap") => ObjectKind::ConfigMap,
            _ => return Ok(Content::Foreign),
        };
        let (key, found, values) = read_foreign(kind, object)?;
        self.found.insert(key.clone(), found);
        self.values.0.insert(key, values);
        Ok(Content::Data)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.file, self.line)
    }
}

// === impl Place, Object ===

impl Place {
    /// The file.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// The line that the object starts on.
    pub(crate) const fn line(&self) -> usize {
        self.line
    }
}

impl Object {
    /// The display name: without the default namespace.
    pub(crate) fn label(&self) -> String {
        if self.namespace == NAMESPACE { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }
}

/// The object, with the namespace that `kubectl` would put it into.
fn in_namespace(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("namespace").is_none_or(|namespace| namespace.is_null() || namespace == "")
    {
        metadata.insert("namespace".to_owned(), json!(NAMESPACE));
    }
    object
}

/// The object, as it would be once it runs: plans wait for an EmbeddingServer that does not, and nothing runs yet.
fn as_if_running(kind: KindName, mut object: Value) -> Value {
    let status = match kind {
        KindName::EmbeddingServer => json!({ "phase": "Ready" }),
        // Where it really is, is known once it runs.
        KindName::MCPServer | KindName::MCPRemoteProxy => json!({ "url": "http://localhost" }),
        _ => return object,
    };
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status".to_owned(), status);
    }
    object
}

/// Name or namespace of an object.
fn named<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field)?.as_str()
}

/// The name of a Secret or ConfigMap, what plans see of it, and its values.
fn read_foreign(kind: ObjectKind, object: &Value) -> Result<(Key, Found, Keys), String> {
    let part = |field: &str| {
        let text = named(object, field).map(str::to_owned);
        text.ok_or_else(|| format!("metadata.{field} must be a string; put quotes around it"))
    };
    let key = Key { kind, namespace: part("namespace")?, name: part("name")? };
    let data = texts(object, "data")?;
    if kind == ObjectKind::ConfigMap {
        let values = data.iter().map(|(name, text)| (name.clone(), text.as_bytes().to_vec())).collect();
        return Ok((key, Found::config_map(data), values));
    }
    let mut values = Keys::new();
    for (name, encoded) in data {
        let plain: String = encoded.split_whitespace().collect();
        let value = BASE64.decode(plain).map_err(|_| format!("data.{name} is not base64; use stringData for text"))?;
        values.insert(name, value);
    }
    values.extend(texts(object, "stringData")?.into_iter().map(|(name, text)| (name, text.into_bytes())));
    let digests: BTreeMap<String, String> =
        values.iter().map(|(name, value)| (name.clone(), sha256_hex(value))).collect();
    Ok((key, Found::Secret(digests.into()), values))
}

/// The entries of a map of strings.
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
        Manifests::of("f.yaml", text).unwrap()
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
    fn errors_are_reported_and_the_rest_counts() {
        let all = manifests(
            "{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPServer, metadata: {name: a}, spec: {image: x}}\n\
             ---\n{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPServer, metadata: {name: a}, spec: {image: z}}\n\
             ---\n{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPServer, metadata: {name: b}, spec: {imag: x}}\n\
             ---\n{apiVersion: v1, kind: Namespace, metadata: {name: c}}\n\
             ---\n{apiVersion: v1, kind: Secret, metadata: {name: d}, data: {a: '?'}}\n\
             ---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: f}, data: {a: yes}}\n\
             ---\n{apiVersion: v1, kind: [\n",
        );
        assert_eq!(all.resources().count(), 1);
        let said: Vec<_> = all.objects.iter().map(|one| (one.name.as_str(), format!("{:?}", one.content))).collect();
        let expected = [
            ("a", "Resource"),
            ("a", "at f.yaml:1 and at f.yaml:3"),
            ("b", "did you mean `image`"),
            ("c", "Foreign"),
            ("d", "not base64"),
            ("f", "quotes"),
        ];
        assert_eq!(said.len(), expected.len());
        for ((name, content), (wanted, words)) in said.iter().zip(expected) {
            assert!(*name == wanted && content.contains(words), "{name}: {content}");
        }
        let [broken] = &all.unreadable[..] else { panic!("{:?}", all.unreadable) };
        assert!(broken.problem.contains("line 13"), "{}", broken.problem);
    }

    /// A name in YAML is not always a string.
    #[test]
    fn a_value_that_is_no_string_is_refused_with_the_advice_to_quote_it() {
        for (text, words) in [
            ("apiVersion: v1\nkind: Secret\nmetadata: {name: 123}\n", "metadata.name"),
            (
                "apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: 123}\n",
                "put quotes around it",
            ),
            (
                "apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: on}\n",
                "put quotes around it",
            ),
            (
                "apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: a, namespace: 7}\n",
                "metadata.namespace: is a number, but must be a string; put quotes around it",
            ),
            (
                "apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: 0644}\n",
                "put quotes around it",
            ),
            (
                "apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: a, labels: {v: 1.10}}\n",
                "put quotes around it",
            ),
            (
                "apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: a, labels: {v: 1.5}}\n",
                "metadata.labels.v: is a number",
            ),
            ("apiVersion: 1\nkind: MCPGroup\nmetadata: {name: a}\n", "apiVersion: is a number, but must be a string"),
        ] {
            let all = manifests(text);
            let [Object { content: Content::Invalid(problems), .. }] = &all.objects[..] else {
                panic!("{:?}", all.objects)
            };
            assert!(problems.join("; ").contains(words), "{problems:?}");
            // Another value than was written would be bad advice.
            let values = ["123", "420", "1.1", "1.5", "true"];
            assert!(values.iter().all(|value| !problems.join("; ").contains(value)), "{problems:?}");
        }
    }
}
