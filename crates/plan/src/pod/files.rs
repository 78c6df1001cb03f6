//! The files of a container with their sources: volumes, and where they are mounted.

use serde_json::{Value, json};

/// The files of one container, in the order of the contract.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    mounts: Vec<Mount>,
}

/// A volume and where it is mounted, read-only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The name of the volume.
    pub volume: String,
    /// Where its content comes from.
    pub source: FileSource,
    /// Where it is mounted.
    pub path: String,
    /// The one file of it that is mounted, as `subPath` names it; none where it is mounted as a directory.
    pub file: Option<String>,
    /// Whether the RunConfig holds the content as well, so that a process needs no file.
    pub is_in_run_config: bool,
}

/// Where the content of a volume comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSource {
    /// A ConfigMap, whole or one key of it under a file name.
    ConfigMap {
        /// Its name.
        name: String,
        /// The key and the name of the file.
        item: Option<(String, String)>,
        /// Whether a pod starts without it.
        optional: bool,
    },
    /// One key of a Secret under a file name.
    Secret {
        /// Its name.
        name: String,
        /// The key.
        key: String,
        /// The name of the file.
        file: String,
        /// The mode of the file; none for the API server's default.
        mode: Option<u32>,
    },
}

// === impl Files ===

impl Files {
    /// Adds a volume.
    pub(crate) fn add(&mut self, mount: Mount) -> &mut Self {
        self.mounts.push(mount);
        self
    }

    /// Adds several volumes.
    pub(crate) fn extend(&mut self, mounts: impl IntoIterator<Item = Mount>) -> &mut Self {
        self.mounts.extend(mounts);
        self
    }

    /// Adds a ConfigMap, whole or one key of it under a file name.
    pub(crate) fn config_map(&mut self, volume: &str, map: &str, item: Option<(&str, &str)>, path: &str) -> &mut Self {
        self.add(Mount::config_map(volume, map, item, path))
    }

    /// Every volume and where it is mounted, in order.
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The volumes of a pod.
    pub(crate) fn volume_list(&self) -> Vec<Value> {
        self.mounts.iter().map(Mount::volume_entry).collect()
    }

    /// The mounts of a container.
    pub(crate) fn mount_list(&self) -> Vec<Value> {
        self.mounts.iter().map(Mount::mount_entry).collect()
    }
}

// === impl FileSource ===

impl FileSource {
    /// The same, without which a pod starts.
    pub(crate) fn optional(self) -> Self {
        match self {
            Self::ConfigMap { name, item, .. } => Self::ConfigMap { name, item, optional: true },
            secret @ Self::Secret { .. } => secret,
        }
    }
}

// === impl Mount ===

impl Mount {
    /// A ConfigMap as a directory, whole or one key of it under a file name.
    pub(crate) fn config_map(volume: &str, map: &str, item: Option<(&str, &str)>, path: &str) -> Self {
        let item = item.map(|(key, file)| (key.to_owned(), file.to_owned()));
        let source = FileSource::ConfigMap { name: map.to_owned(), item, optional: false };
        Self { volume: volume.to_owned(), source, path: path.to_owned(), file: None, is_in_run_config: false }
    }

    /// The same, whose content the RunConfig holds as well.
    pub(crate) fn in_run_config(self) -> Self {
        Self { is_in_run_config: true, ..self }
    }

    fn volume_entry(&self) -> Value {
        match &self.source {
            FileSource::ConfigMap { name, item, optional } => {
                let mut source = json!({ "name": name });
                if let Some(source) = source.as_object_mut() {
                    if let Some((key, file)) = item {
                        source.insert("items".into(), json!([{ "key": key, "path": file }]));
                    }
                    if *optional {
                        source.insert("optional".into(), json!(true));
                    }
                }
                json!({ "name": self.volume, "configMap": source })
            }
            FileSource::Secret { name, key, file, mode } => {
                let mut source = json!({ "secretName": name, "items": [{ "key": key, "path": file }] });
                if let (Some(mode), Some(source)) = (mode, source.as_object_mut()) {
                    source.insert("defaultMode".into(), json!(mode));
                }
                json!({ "name": self.volume, "secret": source })
            }
        }
    }

    fn mount_entry(&self) -> Value {
        match &self.file {
            None => json!({ "name": self.volume, "mountPath": self.path, "readOnly": true }),
            Some(file) => {
                json!({ "name": self.volume, "mountPath": self.path, "subPath": file, "readOnly": true })
            }
        }
    }
}
