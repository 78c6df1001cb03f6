//! A container image as one archive, written without a container engine.
//!
//! The archive is an OCI image layout and carries the older `manifest.json` as well, so that `docker load`,
//! `podman load`, `ctr images import` and `kind load image-archive` all take it. The image is one layer on nothing: the
//! program, the certificates that it trusts and an empty `/tmp`. Equal input gives equal bytes: no clock, user or path of this machine is in it.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::roots;

/// The allocator's configuration in the image. Huge pages would make memory of 2 MiB out of each little bit: 29 MiB instead of 36 for
/// the operator with 200 servers, 9 instead of 14 for a proxy.
pub(crate) const ALLOCATOR: (&str, &str) = ("MIMALLOC_ALLOW_THP", "0");

/// The `nobody` user: an identity without a name, rights or files.
const USER: &str = "65532:65532";

/// One program to run, and its image.
pub(crate) struct Image<'a> {
    /// The image's reference, such as `localhost/skep:1.0.0`.
    pub(crate) name: &'a str,
    /// The processor as images name it, such as `amd64`.
    pub(crate) architecture: &'a str,
    /// The bytes of the static program.
    pub(crate) program: &'a [u8],
    /// Its file name in the root directory.
    pub(crate) program_name: &'a str,
    /// The image's labels.
    pub(crate) labels: BTreeMap<String, String>,
}

impl Image<'_> {
    /// Writes the archive.
    pub(crate) fn write(&self, out: impl Write) -> Result<()> {
        let tag = tag(self.name)?;
        let layer = self.layer()?;
        let config = self.config(&digest(&layer)).to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": digest(&manifest),
                "size": manifest.len(),
                "annotations": {
                    "io.containerd.image.name": self.name,
                    "org.opencontainers.image.ref.name": tag,
                },
            }],
        });
        let docker = json!([{
            "Config": blob(&config),
            "RepoTags": [self.name],
            "Layers": [blob(&layer)],
        }]);

        let mut archive = Archive::new(out);
        archive.directory("blobs/", 0o755)?;
        archive.directory("blobs/sha256/", 0o755)?;
        for content in [&config, &layer, &manifest] {
            archive.file(&blob(content), 0o644, content)?;
        }
        archive.file("index.json", 0o644, index.to_string().as_bytes())?;
        archive.file("manifest.json", 0o644, docker.to_string().as_bytes())?;
        archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        archive.finish()
    }

    /// The files of the image.
    fn layer(&self) -> Result<Vec<u8>> {
        let mut layer = Vec::new();
        let mut archive = Archive::new(&mut layer);
        for (at, _) in roots::FILE.match_indices('/') {
            archive.directory(roots::FILE.get(..=at).unwrap_or_default(), 0o755)?;
        }
        archive.file(roots::FILE, 0o644, roots::pem().as_bytes())?;
        archive.file(self.program_name, 0o755, self.program)?;
        archive.directory("tmp/", 0o1777)?;
        archive.finish()?;
        Ok(layer)
    }

    fn config(&self, layer: &str) -> Value {
        json!({
            "architecture": self.architecture,
            "os": "linux",
            "config": {
                "User": USER,
                "WorkingDir": "/",
                "Entrypoint": [format!("/{}", self.program_name)],
                // So that a pod can use `command: [skep, …]`, in this image and in any other that has it on its PATH.
                "Env": ["PATH=/:/usr/local/bin:/usr/bin:/bin", format!("{}={}", ALLOCATOR.0, ALLOCATOR.1)],
                "Labels": self.labels,
            },
            "rootfs": { "type": "layers", "diff_ids": [layer] },
        })
    }
}

/// A tar archive in which every entry has the same owner and age.
struct Archive<W: Write>(tar::Builder<W>);

impl<W: Write> Archive<W> {
    fn new(out: W) -> Self {
        Self(tar::Builder::new(out))
    }

    fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.entry(path, tar::EntryType::Regular, mode, content)
    }

    fn directory(&mut self, path: &str, mode: u32) -> Result<()> {
        self.entry(path, tar::EntryType::Directory, mode, &[])
    }

    fn entry(&mut self, path: &str, kind: tar::EntryType, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        self.0.append_data(&mut header, path, content).with_context(|| format!("cannot write `{path}` to the archive"))
    }

    fn finish(self) -> Result<()> {
        self.0.into_inner().and_then(|mut out| out.flush()).context("cannot finish the archive")
    }
}

/// The tag of an image's name. Names without a registry mean different images to different tools, so they are refused.
pub(super) fn tag(name: &str) -> Result<&str> {
    let Some((registry, rest)) = name.split_once('/') else {
        bail!("image name `{name}` has no registry: write `localhost/{name}`");
    };
    if registry != "localhost" && !registry.contains(['.', ':']) {
        bail!("image name `{name}` has no registry: write `localhost/{name}`");
    }
    match rest.rsplit_once(':') {
        Some((repository, tag)) if !repository.is_empty() && !tag.is_empty() && !tag.contains('/') => Ok(tag),
        _ => bail!("image name `{name}` has no tag: write `{name}:TAG`"),
    }
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(content), "size": content.len() })
}

/// Where the layout keeps a content.
fn blob(content: &[u8]) -> String {
    format!("blobs/sha256/{}", sha256(content))
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", sha256(content))
}

fn sha256(content: &[u8]) -> String {
    let bytes: Vec<String> = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.concat()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn image(program: &[u8]) -> Image<'_> {
        let labels = BTreeMap::from([("org.opencontainers.image.version".to_owned(), "1.2.3".to_owned())]);
        Image { name: "localhost/skep:1.2.3", architecture: "amd64", program, program_name: "skep", labels }
    }

    fn written(image: &Image<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        image.write(&mut bytes).unwrap();
        bytes
    }

    fn entries(archive: &[u8]) -> BTreeMap<String, (tar::Header, Vec<u8>)> {
        let mut entries = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            entries.insert(entry.path().unwrap().to_string_lossy().into_owned(), (entry.header().clone(), content));
        }
        entries
    }

    #[test]
    fn equal_input_gives_equal_bytes() {
        let first = written(&image(b"program"));
        assert_eq!(first, written(&image(b"program")));
        assert_ne!(first, written(&image(b"another")));
    }

    #[test]
    fn nothing_of_this_machine_is_in_the_headers() {
        let archive = written(&image(b"program"));
        for (path, (header, _)) in entries(&archive) {
            assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 0), "{path}");
        }
    }

    #[test]
    fn both_manifests_lead_to_the_program() {
        let entries = entries(&written(&image(b"program")));
        let json = |path: &str| -> Value { serde_json::from_slice(&entries[path].1).unwrap() };
        let follow =
            |descriptor: &Value| descriptor["digest"].as_str().unwrap().replacen("sha256:", "blobs/sha256/", 1);

        let docker = json("manifest.json")[0].clone();
        assert_eq!(docker["RepoTags"], json!(["localhost/skep:1.2.3"]));
        let manifest = json(&follow(&json("index.json")["manifests"][0]));
        assert_eq!(docker["Config"], json!(follow(&manifest["config"])));
        assert_eq!(docker["Layers"], json!([follow(&manifest["layers"][0])]));

        let config = json(docker["Config"].as_str().unwrap());
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], json!(["/skep"]));
        assert_eq!(config["config"]["Labels"]["org.opencontainers.image.version"], "1.2.3");
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);

        let layer = self::entries(&entries[docker["Layers"][0].as_str().unwrap()].1);
        let certificates = "etc/ssl/certs/ca-certificates.crt";
        let files = ["etc/", "etc/ssl/", "etc/ssl/certs/", certificates, "skep", "tmp/"];
        assert_eq!(layer.keys().collect::<Vec<_>>(), files);
        assert_eq!(layer[certificates].0.mode().unwrap(), 0o644, "every user reads them");
        assert_eq!((layer["skep"].0.mode().unwrap(), layer["skep"].1.as_slice()), (0o755, b"program".as_slice()));
        assert_eq!(layer["tmp/"].0.mode().unwrap(), 0o1777);
    }

    #[test]
    fn ambiguous_names_are_refused() {
        assert_eq!(tag("localhost/skep:1.0").unwrap(), "1.0");
        assert_eq!(tag("registry.example:5000/team/skep:dev").unwrap(), "dev");
        for name in ["skep:dev", "team/skep:dev"] {
            assert!(tag(name).unwrap_err().to_string().contains(&format!("write `localhost/{name}`")));
        }
        assert!(tag("localhost/skep").unwrap_err().to_string().contains("has no tag"));
        assert!(tag("localhost:5000/skep").unwrap_err().to_string().contains("has no tag"));
    }
}
