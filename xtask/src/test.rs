//! `cargo xtask test`: plain `cargo test`, with the programs of a control plane at hand.

use std::process::Command;

use anyhow::Result;
use skep_testkit::assets::{Assets, FOR_TESTS};

use crate::host;
use crate::program::{self, cargo};

/// Runs the tests of the workspace, or of the packages that the arguments name.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    program::run(&mut command(arguments)?)
}

/// The `cargo test` of those, once all that the tests need is installed.
pub(crate) fn command(arguments: &[String]) -> Result<Command> {
    let assets = prepare()?;
    let mut command = cargo();
    command.arg("test");
    if !names_packages(arguments) {
        command.args(["--workspace", "--exclude", "skep-e2e"]);
    }
    command.args(arguments);
    if std::env::var_os("KUBEBUILDER_ASSETS").is_none_or(|given| given.is_empty()) {
        command.env("KUBEBUILDER_ASSETS", assets.cache());
    }
    Ok(command)
}

/// Installs all that the tests need.
pub(crate) fn prepare() -> Result<Assets> {
    let assets = Assets::from_env()?;
    assets.ensure(FOR_TESTS)?;
    if !program::is_installed("redis-server") {
        host::install(&["redis-server"])?;
    }
    Ok(assets)
}

/// Whether the user chose packages. Behind `--` are the arguments of the test binaries.
fn names_packages(arguments: &[String]) -> bool {
    let choices = ["-p", "--package", "--workspace", "--all"];
    arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| choices.contains(&argument.as_str()) || argument.starts_with("--package="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> bool {
        names_packages(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn only_arguments_of_cargo_choose_packages() {
        assert!(names(&["-p", "skep-api"]));
        assert!(names(&["--package=skep-api", "status"]));
        assert!(!names(&["status"]));
        assert!(!names(&["--", "-p"]));
    }
}
