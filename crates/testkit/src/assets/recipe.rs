//! The input of Go, as text. Pure: the next file runs it.
//!
//! `go install package@version` refuses modules that carry `replace` directives, and Kubernetes and etcd do. For those a
//! throw-away module requires them instead.

use super::{ETCD, KUBERNETES, Tool};

/// The import path behind a program.
pub(super) const fn package(tool: Tool) -> &'static str {
    match tool {
        Tool::Etcd => "go.etcd.io/etcd/server/v3",
        Tool::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
        Tool::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
        Tool::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
        Tool::Kubelet => "k8s.io/kubernetes/cmd/kubelet",
        Tool::KubeProxy => "k8s.io/kubernetes/cmd/kube-proxy",
        Tool::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
        Tool::CoreDns => "github.com/coredns/coredns",
        Tool::Helm => "helm.sh/helm/v3/cmd/helm",
    }
}

/// Which throw-away module builds a program; none for those that `go install` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Module {
    Kubernetes,
    Etcd,
}

pub(super) const fn module(tool: Tool) -> Option<Module> {
    match tool {
        Tool::Etcd => Some(Module::Etcd),
        Tool::CoreDns | Tool::Helm => None,
        _ => Some(Module::Kubernetes),
    }
}

impl Module {
    /// All programs of the module. All are always imported, so that the chosen versions never depend on what is requested.
    const fn tools(self) -> &'static [Tool] {
        match self {
            Self::Etcd => &[Tool::Etcd],
            Self::Kubernetes => &[
                Tool::KubeApiserver,
                Tool::KubeControllerManager,
                Tool::KubeScheduler,
                Tool::Kubelet,
                Tool::KubeProxy,
                Tool::Kubectl,
            ],
        }
    }

    /// A file that imports the programs, for `go mod tidy` to find what they need.
    pub(super) fn tools_go(self) -> String {
        let imports: Vec<String> = self.tools().iter().map(|tool| format!("\t_ \"{}\"", package(*tool))).collect();
        format!("//go:build tools\n\npackage skeptools\n\nimport (\n{}\n)\n", imports.join("\n"))
    }

    /// Stamps the version into the programs that report one.
    pub(super) fn linker_flags(self) -> String {
        match self {
            Self::Etcd => "-s -w".to_owned(),
            Self::Kubernetes => {
                let variable = "k8s.io/component-base/version";
                let minor = KUBERNETES.split('.').nth(1).unwrap_or_default();
                format!(
                    "-s -w -X {variable}.gitVersion={KUBERNETES} -X {variable}.gitMajor=1 -X {variable}.gitMinor={minor}"
                )
            }
        }
    }
}

/// A module that requires nothing yet.
pub(super) const EMPTY_GO_MOD: &str = "module skeptools\n\ngo 1.26\n";

pub(super) fn etcd_go_mod() -> String {
    format!("{EMPTY_GO_MOD}\nrequire {} {ETCD}\n", package(Tool::Etcd))
}

/// Kubernetes requires its staging modules at `v0.0.0`, a version that does not exist outside its own repository: each is
/// pointed at the release of the same minor. `theirs` is the text of its `go.mod`.
pub(super) fn kubernetes_go_mod(theirs: &str) -> String {
    let staged = KUBERNETES.replacen("v1.", "v0.", 1);
    let replacements: Vec<String> = theirs
        .lines()
        .filter_map(|line| line.trim().strip_suffix(" v0.0.0"))
        .map(|line| line.trim_start_matches("require").trim())
        .filter(|module| module.starts_with("k8s.io/"))
        .map(|module| format!("\t{module} => {module} {staged}"))
        .collect();
    format!("{EMPTY_GO_MOD}\nrequire k8s.io/kubernetes {KUBERNETES}\nreplace (\n{}\n)\n", replacements.join("\n"))
}

/// One line for the wait that follows.
pub(super) fn announcement(tool: Tool) -> String {
    let duration = match tool {
        Tool::KubeApiserver => "about 4 min on two cores",
        Tool::Etcd | Tool::Kubectl => "about 1 min",
        _ => "about 2 min",
    };
    format!("building {} {} from source, once per machine, {duration}…", tool.name(), tool.version())
}

/// The whole message when Go is not installed.
pub(super) fn go_is_missing(tools: &[Tool]) -> String {
    let names: Vec<String> = tools.iter().map(|tool| format!("`{}`", tool.name())).collect();
    format!(
        "Go is not installed, so {} cannot be built: install Go 1.26 or newer (https://go.dev/dl) and put `go` on the \
         PATH, or set KUBEBUILDER_ASSETS to a directory that holds these programs",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_modules_are_pointed_at_their_release() {
        let theirs = "module k8s.io/kubernetes\n\nrequire (\n\tk8s.io/api v0.0.0\n\tk8s.io/klog/v2 v2.130.1\n\
                      \tk8s.io/cri-api v0.0.0\n)\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n";
        let ours = kubernetes_go_mod(theirs);
        assert!(ours.contains("require k8s.io/kubernetes v1.34.4\n"), "{ours}");
        assert!(ours.ends_with(
            "replace (\n\tk8s.io/api => k8s.io/api v0.34.4\n\tk8s.io/cri-api => k8s.io/cri-api v0.34.4\n)\n"
        ));
    }

    #[test]
    fn programs_know_their_version() {
        assert_eq!(
            Module::Kubernetes.linker_flags(),
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4 -X k8s.io/component-base/version.gitMajor=1 \
             -X k8s.io/component-base/version.gitMinor=34"
        );
    }

    #[test]
    fn without_go_the_message_names_both_ways_out() {
        let message = go_is_missing(&[Tool::Etcd, Tool::KubeApiserver]);
        assert!(message.contains("`etcd`, `kube-apiserver` cannot be built"), "{message}");
        assert!(message.contains("install Go 1.26"), "{message}");
        assert!(message.contains("KUBEBUILDER_ASSETS"), "{message}");
    }
}
