//! Running Go: one build at a time on the machine, and a program appears in the cache whole or not at all.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use super::recipe::{self, Module};
use super::{KUBERNETES, Tool};

/// Waits until no other process builds into this cache. The lock ends with the returned file, also when we are killed.
pub(super) fn lock(cache: &Path) -> Result<File> {
    fs::create_dir_all(cache)
        .with_context(|| format!("cannot make `{}`; set SKEP_CACHE to a writable directory", cache.display()))?;
    let path = cache.join("build.lock");
    let file = File::create(&path).with_context(|| format!("cannot open `{}`", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => say("another process is building test programs, waiting for it…"),
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock `{}`", path.display()));
        }
    }
    file.lock().with_context(|| format!("cannot lock `{}`", path.display()))?;
    Ok(file)
}

/// Builds the programs into the cache. The caller holds the lock.
pub(super) fn build(cache: &Path, tools: &[Tool]) -> Result<()> {
    if tools.is_empty() {
        return Ok(());
    }
    match Command::new("go").arg("version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(recipe::go_is_missing(tools)),
        found => found.context("cannot run `go`")?,
    };
    // Inside the cache: the finished program moves by a rename, which needs one file system.
    let work = TempDir::new_in(cache).context("cannot make a directory to build in")?;
    for module in [Some(Module::Etcd), Some(Module::Kubernetes), None] {
        let members: Vec<Tool> = tools.iter().copied().filter(|tool| recipe::module(*tool) == module).collect();
        if members.is_empty() {
            continue;
        }
        if let Some(module) = module {
            say(&format!(
                "fetching the sources of {}…",
                members.iter().map(|m| m.name()).collect::<Vec<_>>().join(", ")
            ));
            prepare(module, work.path())?;
        }
        for tool in members {
            say(&recipe::announcement(tool));
            compile(tool, module, work.path())?;
            let target = cache.join(tool.name());
            fs::rename(work.path().join("bin").join(tool.name()), &target)
                .with_context(|| format!("cannot put `{}` in place", target.display()))?;
        }
    }
    Ok(())
}

/// Writes the throw-away module and lets Go complete it.
fn prepare(module: Module, work: &Path) -> Result<()> {
    let go_mod = match module {
        Module::Etcd => recipe::etcd_go_mod(),
        Module::Kubernetes => recipe::kubernetes_go_mod(&kubernetes_sources_go_mod(work)?),
    };
    write(work, "go.mod", &go_mod)?;
    write(work, "tools.go", &module.tools_go())?;
    go(work, &["mod", "tidy"])?;
    Ok(())
}

fn kubernetes_sources_go_mod(work: &Path) -> Result<String> {
    write(work, "go.mod", recipe::EMPTY_GO_MOD)?;
    go(work, &["mod", "download", &format!("k8s.io/kubernetes@{KUBERNETES}")])?;
    let modules = go(work, &["env", "GOMODCACHE"])?;
    let path = Path::new(modules.trim()).join(format!("k8s.io/kubernetes@{KUBERNETES}/go.mod"));
    fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))
}

fn compile(tool: Tool, module: Option<Module>, work: &Path) -> Result<()> {
    let package = recipe::package(tool);
    match module {
        Some(module) => {
            let output = format!("bin/{}", tool.name());
            go(work, &["build", "-trimpath", "-ldflags", &module.linker_flags(), "-o", &output, package])
        }
        None => go(work, &["install", &format!("{package}@{}", tool.version())]),
    }
    .map(drop)
}

/// Runs Go to its end and returns its standard output. What it says on the way is shown only when it fails.
fn go(work: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("go")
        .args(arguments)
        .current_dir(work)
        .env("CGO_ENABLED", "0")
        .env("GOBIN", work.join("bin"))
        .output()
        .context("cannot run `go`")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = errors.lines().filter(|line| !line.starts_with("go: downloading")).collect();
        bail!("`go {}` ended with {}: {}", arguments.join(" "), output.status, errors.join("\n"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn write(work: &Path, name: &str, text: &str) -> Result<()> {
    fs::write(work.join(name), text).with_context(|| format!("cannot write `{name}` to build with"))
}

/// A line of progress. Written past the test harness's capture: minutes of silence look like a hang.
fn say(line: &str) {
    // Standard error may be closed; the build goes on.
    let _unheard = writeln!(std::io::stderr(), "{line}");
}
