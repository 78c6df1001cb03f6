//! The programs of a Kubernetes, as files on this machine.
//!
//! Each is looked for in `$KUBEBUILDER_ASSETS`, then in the cache, and is otherwise built into the cache from the Go
//! module proxy, once per machine. The cache is `$SKEP_CACHE`, else `$XDG_CACHE_HOME/skep`, else `~/.cache/skep`; its
//! sub-directory is named after the versions, so another version never passes for the requested one.

mod build;
mod recipe;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The version of Kubernetes.
pub const KUBERNETES: &str = "v1.34.4";
/// The version of etcd.
pub const ETCD: &str = "v3.6.16";
/// The version of CoreDNS.
pub const COREDNS: &str = "v1.15.0";
/// The version of Helm.
pub const HELM: &str = "v3.21.4";

/// A program that tests or the test cluster need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// The store behind the API server.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The controllers of Kubernetes itself.
    KubeControllerManager,
    /// The scheduler.
    KubeScheduler,
    /// The node agent.
    Kubelet,
    /// The node's implementation of Services.
    KubeProxy,
    /// The command line client.
    Kubectl,
    /// The cluster's name server.
    CoreDns,
    /// The chart installer.
    Helm,
}

/// What tests against an API server need.
pub const FOR_TESTS: &[Tool] = &[Tool::Etcd, Tool::KubeApiserver, Tool::Kubectl, Tool::Helm];

/// What a whole cluster needs.
pub const FOR_CLUSTER: &[Tool] = &[
    Tool::Etcd,
    Tool::KubeApiserver,
    Tool::KubeControllerManager,
    Tool::KubeScheduler,
    Tool::Kubelet,
    Tool::KubeProxy,
    Tool::Kubectl,
    Tool::CoreDns,
    Tool::Helm,
];

/// Where the programs are on this machine.
#[derive(Clone, Debug)]
pub struct Assets {
    given: Option<PathBuf>,
    cache: PathBuf,
}

impl Tool {
    /// The file name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Kubectl => "kubectl",
            Self::CoreDns => "coredns",
            Self::Helm => "helm",
        }
    }

    /// The version that is built.
    pub const fn version(self) -> &'static str {
        match self {
            Self::Etcd => ETCD,
            Self::CoreDns => COREDNS,
            Self::Helm => HELM,
            _ => KUBERNETES,
        }
    }
}

impl Assets {
    /// The places that this process's environment names. Reads no file yet.
    pub fn from_env() -> Result<Self> {
        Self::from_vars(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn from_vars(var: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let root = if let Some(cache) = var("SKEP_CACHE") {
            PathBuf::from(cache)
        } else if let Some(cache) = var("XDG_CACHE_HOME") {
            Path::new(&cache).join("skep")
        } else if let Some(home) = var("HOME") {
            Path::new(&home).join(".cache/skep")
        } else {
            bail!("no place for a cache: set SKEP_CACHE to a directory, or HOME")
        };
        let versions = format!("kube-{KUBERNETES}-etcd-{ETCD}-coredns-{COREDNS}-helm-{HELM}");
        Ok(Self { given: var("KUBEBUILDER_ASSETS").map(PathBuf::from), cache: root.join(versions) })
    }

    /// The directory that programs are built into.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The program's file. Builds it when it is nowhere, which takes minutes and says so on standard error.
    pub fn find(&self, tool: Tool) -> Result<PathBuf> {
        self.ensure(&[tool])?;
        match self.existing(tool) {
            Some(path) => Ok(path),
            None => bail!("`{}` vanished from `{}`; was the cache cleaned?", tool.name(), self.cache.display()),
        }
    }

    /// Builds those of the programs that are nowhere yet.
    pub fn ensure(&self, tools: &[Tool]) -> Result<()> {
        if self.missing(tools).is_empty() {
            return Ok(());
        }
        let _lock = build::lock(&self.cache)?;
        // The process that held the lock before us may have built them.
        build::build(&self.cache, &self.missing(tools))
    }

    fn missing(&self, tools: &[Tool]) -> Vec<Tool> {
        tools.iter().copied().filter(|tool| self.existing(*tool).is_none()).collect()
    }

    fn existing(&self, tool: Tool) -> Option<PathBuf> {
        let places = self.given.iter().chain([&self.cache]);
        places.map(|place| place.join(tool.name())).find(|path| path.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assets(vars: &[(&str, &str)]) -> Result<Assets> {
        Assets::from_vars(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_cache_is_the_nearest_one_named() {
        let all = [("SKEP_CACHE", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        assert!(assets(&all).unwrap().cache.starts_with("/a/"));
        assert!(assets(&all[1..]).unwrap().cache.starts_with("/b/skep"));
        assert!(assets(&all[2..]).unwrap().cache.starts_with("/c/.cache/skep"));
        assert!(assets(&[]).unwrap_err().to_string().contains("SKEP_CACHE"));
    }

    #[test]
    fn given_programs_win_and_absent_ones_come_from_the_cache() {
        let place = tempfile::tempdir().unwrap();
        let (given, cache) = (place.path().join("given"), place.path().join("cache"));
        let assets = Assets { given: Some(given.clone()), cache: cache.clone() };
        for (directory, tool) in [(&given, "etcd"), (&cache, "etcd"), (&cache, "helm")] {
            std::fs::create_dir_all(directory).unwrap();
            std::fs::write(directory.join(tool), "").unwrap();
        }
        assert_eq!(assets.existing(Tool::Etcd), Some(given.join("etcd")));
        assert_eq!(assets.existing(Tool::Helm), Some(cache.join("helm")));
        assert_eq!(assets.missing(FOR_TESTS), [Tool::KubeApiserver, Tool::Kubectl]);
    }
}
