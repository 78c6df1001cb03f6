//! Whether a registry's volumes and mounts leave ours alone and fit together.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Volume, VolumeMount};
use serde_json::Value;
use skep_api::kinds::MCPRegistrySpec;

use super::children::{
    CONFIG_PATH, CONFIG_VOLUME, CONTAINER, PASSWORD_INIT, PASSWORD_PATH, PASSWORD_SOURCE, PASSWORD_VOLUME,
};
use crate::validate::Problems;

/// What the user adds to the pod, each with its place: from the spec, and from the pod template.
#[derive(Default)]
struct Additions {
    volumes: Vec<(String, String)>,
    mounts: Vec<(String, VolumeMount)>,
}

/// What is wrong with a spec whose pod template can be read.
pub(super) fn problems(spec: &MCPRegistrySpec, template: Option<&Value>) -> Problems {
    let mut problems = Problems::default();
    problems.filled("spec.configYAML", &spec.config_yaml, "write the configuration of the registry server");
    if let Some(secret) = &spec.pgpass_secret_ref {
        problems.filled("spec.pgpassSecretRef.name", &secret.name, "name the Secret");
        problems.filled("spec.pgpassSecretRef.key", &secret.key, "name the key inside the Secret");
    }
    let additions = Additions::of(spec, template, &mut problems);
    let with_password = spec.pgpass_secret_ref.is_some();
    let (volumes, paths): (&[&str], &[&str]) = if with_password {
        (&[CONFIG_VOLUME, PASSWORD_SOURCE, PASSWORD_VOLUME], &[CONFIG_PATH, PASSWORD_PATH])
    } else {
        (&[CONFIG_VOLUME], &[CONFIG_PATH])
    };
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (place, name) in &additions.volumes {
        problems.unless(
            !volumes.contains(&name.as_str()),
            place,
            format_args!("`{name}` is a volume of Skep's own; choose another name"),
        );
        problems.unless(
            names.insert(name),
            place,
            format_args!("there is another volume `{name}`; give each its own name"),
        );
    }
    names.extend(volumes);
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    for (place, mount) in &additions.mounts {
        let path = bare(&mount.mount_path);
        problems.unless(
            !paths.contains(&path),
            place,
            format_args!("Skep mounts `{path}` itself; choose another mountPath"),
        );
        problems.unless(
            taken.insert(path),
            place,
            format_args!("something else is mounted at `{path}`; choose another mountPath"),
        );
        let advice = "add it to spec.volumes, or correct the name";
        problems.unless(
            names.contains(mount.name.as_str()),
            place,
            format_args!("there is no volume `{}`; {advice}", mount.name),
        );
    }
    let inits = list(template, "initContainers");
    if with_password && inits.iter().any(|init| init.get("name").is_some_and(|name| name == PASSWORD_INIT)) {
        let problem = format_args!("`{PASSWORD_INIT}` is an init container of Skep's own; choose another name");
        problems.add("spec.podTemplateSpec.spec.initContainers", problem);
    }
    problems
}

// === impl Additions ===

impl Additions {
    /// Reads what the user adds; what cannot be read is a problem.
    fn of(spec: &MCPRegistrySpec, template: Option<&Value>, problems: &mut Problems) -> Self {
        let mut all = Self::default();
        for (index, volume) in spec.volumes.iter().enumerate() {
            let place = format!("spec.volumes[{index}]");
            match serde_json::from_value::<Volume>(volume.0.clone()) {
                Ok(volume) => all.volumes.push((place, volume.name)),
                Err(problem) => problems.add(place, format_args!("it is not a volume: {problem}")),
            }
        }
        for (index, mount) in spec.volume_mounts.iter().enumerate() {
            let place = format!("spec.volumeMounts[{index}]");
            match serde_json::from_value::<VolumeMount>(mount.0.clone()) {
                Ok(mount) => all.mounts.push((place, mount)),
                Err(problem) => problems.add(place, format_args!("it is not a volume mount: {problem}")),
            }
        }
        // INVARIANT: the template as a whole can be read, so its parts can.
        for (index, volume) in list(template, "volumes").iter().enumerate() {
            let name = volume.get("name").and_then(Value::as_str).unwrap_or_default();
            all.volumes.push((format!("spec.podTemplateSpec.spec.volumes[{index}]"), name.to_owned()));
        }
        let containers = list(template, "containers");
        let ours = containers.iter().find(|container| container.get("name").is_some_and(|name| name == CONTAINER));
        let mounts = ours.and_then(|container| container.get("volumeMounts")).and_then(Value::as_array);
        for (index, mount) in mounts.into_iter().flatten().enumerate() {
            if let Ok(mount) = serde_json::from_value(mount.clone()) {
                all.mounts
                    .push((format!("spec.podTemplateSpec.spec.containers[{CONTAINER}].volumeMounts[{index}]"), mount));
            }
        }
        all
    }
}

fn list<'a>(template: Option<&'a Value>, member: &str) -> &'a [Value] {
    let spec = template.and_then(|template| template.get("spec"));
    spec.and_then(|spec| spec.get(member)).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A path without slashes at its end.
fn bare(path: &str) -> &str {
    if path == "/" { path } else { path.trim_end_matches('/') }
}
