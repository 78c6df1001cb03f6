//! Running Helm, and finding things in what it rendered.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use skep_testkit::assets::{Assets, Tool};

/// The release and the namespace that everything here is rendered for.
pub(crate) const RELEASE: &str = "rel";
pub(crate) const HOME: &str = "home";

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn chart(name: &str) -> PathBuf {
    repository().join("charts").join(name)
}

/// The values files that must work, and the defaults as an empty one: name and text.
pub(crate) fn values_files() -> Vec<(String, String)> {
    let mut files = vec![("defaults".to_owned(), String::new())];
    for entry in chart("skep").join("ci").read_dir().unwrap() {
        let path = entry.unwrap().path();
        files.push((path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap()));
    }
    files.sort();
    assert!(files.len() > 5, "the values files are gone");
    files
}

pub(crate) fn values_file(name: &str) -> String {
    values_files().into_iter().find(|file| file.0 == name).unwrap().1
}

/// Runs Helm with a text on its standard input: its standard output, or else its standard error.
pub(crate) fn helm(arguments: &[&str], input: &str) -> Result<String, String> {
    let program = Assets::from_env().unwrap().find(Tool::Helm).unwrap();
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// What `helm template` makes of a chart with these values.
pub(crate) fn template(chart: &Path, values: &str) -> Result<String, String> {
    helm(&["template", RELEASE, chart.to_str().unwrap(), "--namespace", HOME, "--values", "-"], values)
}

/// The objects of the chart `skep` with these values, as long as it is installed.
pub(crate) fn objects(values: &str) -> Objects {
    rendered(values, false)
}

/// The objects that exist only while the chart is uninstalled.
pub(crate) fn hooks(values: &str) -> Objects {
    rendered(values, true)
}

fn rendered(values: &str, hooks: bool) -> Objects {
    let mut objects = Objects::parse(&template(&chart("skep"), values).unwrap());
    objects.0.retain(|object| object.pointer("/metadata/annotations/helm.sh~1hook").is_some() == hooks);
    objects
}

/// What a chart rendered.
#[derive(Debug)]
pub(crate) struct Objects(pub(crate) Vec<Value>);

impl Objects {
    pub(crate) fn parse(text: &str) -> Self {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        Self(documents.into_iter().filter(|document| !document.is_null()).collect())
    }

    /// `Kind/name` of each, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self
            .0
            .iter()
            .map(|object| format!("{}/{}", text(object, "/kind"), text(object, "/metadata/name")))
            .collect();
        names.sort();
        names
    }

    pub(crate) fn of_kind<'a, 'b>(&'a self, kind: &'b str) -> impl Iterator<Item = &'a Value> + use<'a, 'b> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    /// The only object of a kind.
    pub(crate) fn only(&self, kind: &str) -> &Value {
        let found: Vec<_> = self.of_kind(kind).collect();
        assert_eq!(found.len(), 1, "{kind}: {:?}", self.names());
        found[0]
    }

    pub(crate) fn named(&self, kind: &str, name: &str) -> &Value {
        self.of_kind(kind).find(|object| object["metadata"]["name"] == name).unwrap()
    }

    /// The operator's Deployment.
    pub(crate) fn operator(&self) -> &Value {
        self.of_kind("Deployment")
            .find(|object| object["metadata"]["labels"]["app.kubernetes.io/component"] == "operator")
            .unwrap()
    }

    /// The operator's pod.
    pub(crate) fn pod(&self) -> &Value {
        &self.operator()["spec"]["template"]["spec"]
    }

    pub(crate) fn container(&self) -> &Value {
        &self.pod()["containers"][0]
    }

    /// Name and value of the operator's environment, in order.
    pub(crate) fn env(&self) -> Vec<(&str, &str)> {
        let env = self.container()["env"].as_array().unwrap();
        env.iter().map(|entry| (text(entry, "/name"), entry["value"].as_str().unwrap_or("<reference>"))).collect()
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.env().into_iter().find(|entry| entry.0 == name).map(|entry| entry.1)
    }
}

/// The text at a JSON pointer.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no text at {pointer} of {value}"))
}
