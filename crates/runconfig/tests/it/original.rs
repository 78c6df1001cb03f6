use std::fs;
use std::path::{Path, PathBuf};

use skep_runconfig::parameters as of;
use skep_runconfig::run_config::MiddlewareConfig;
use skep_runconfig::{Field, Json, RunConfig, VirtualDocument};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The texts in a directory, by file name.
fn texts(directory: &Path) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect()
}

fn run_configs() -> Vec<(String, String)> {
    let found = texts(&here("tests/golden/run_config"));
    assert!(found.len() >= 16, "golden documents are missing");
    found
}

#[test]
fn every_run_config_comes_back_byte_for_byte() {
    for (name, text) in run_configs() {
        let config = RunConfig::from_slice(text.as_bytes()).unwrap();
        assert!(config.other.is_empty(), "{name} has members that are not known: {:?}", config.other);
        assert_eq!(config.to_json_pretty(), text, "{name}");
        assert_eq!(RunConfig::from_slice(config.to_json_compact().as_bytes()).unwrap(), config, "{name}");
    }
}

/// Reads the settings of a middleware as the document of its kind, and writes that.
fn rewrite(middleware: &MiddlewareConfig) -> Json {
    fn through<T: Field>(json: &Json) -> Json {
        T::read(json.clone()).unwrap().write()
    }
    let parameters = &middleware.parameters;
    match middleware.kind.as_str() {
        "bodylimit" => through::<of::BodyLimit>(parameters),
        "audit" => through::<of::Audit>(parameters),
        "auth" => through::<of::Auth>(parameters),
        "tokenexchange" => through::<of::TokenExchange>(parameters),
        "tool-filter" | "tool-call-filter" => through::<of::ToolFilter>(parameters),
        "mcp-parser" => through::<of::NoParameters>(parameters),
        "telemetry" => through::<of::Telemetry>(parameters),
        "ratelimit" => through::<of::RateLimit>(parameters),
        "mutating-webhook" | "validating-webhook" => through::<of::Webhooks>(parameters),
        "authorization" => through::<of::Authorization>(parameters),
        "header-forward" => through::<of::HeaderForward>(parameters),
        "recovery" => parameters.clone(),
        other => panic!("no document for the settings of `{other}`"),
    }
}

#[test]
fn the_settings_of_every_middleware_come_back_as_they_were() {
    for (name, text) in run_configs() {
        for middleware in RunConfig::from_slice(text.as_bytes()).unwrap().middleware_configs {
            assert_eq!(rewrite(&middleware), middleware.parameters, "{name}, {}", middleware.kind);
        }
    }
}

/// The same for what was recorded beside this repository, where that is at hand.
#[test]
fn recorded_documents_come_back_byte_for_byte() {
    let mut compared = 0;
    let recorded = texts(&here("../../../shared/compat/objects/out"));
    for (name, text) in &recorded {
        let objects: Vec<serde_json::Value> = serde_saphyr::from_multiple(text).unwrap();
        for object in objects.iter().filter(|object| object["kind"] == "ConfigMap") {
            if let Some(text) = object["data"]["runconfig.json"].as_str() {
                assert_eq!(RunConfig::from_slice(text.as_bytes()).unwrap().to_json_pretty(), text, "{name}");
                compared += 1;
            }
            let labels = &object["metadata"]["labels"];
            if let Some(text) = object["data"]["config.yaml"].as_str()
                && labels["toolhive.stacklok.io/component"] == "vmcp-config"
            {
                assert_eq!(VirtualDocument::from_yaml(text).unwrap().to_yaml(), text, "{name}");
                compared += 1;
            }
        }
    }
    assert!(recorded.is_empty() || compared >= 17, "only {compared} documents were found");
}
