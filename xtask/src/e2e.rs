//! `cargo xtask e2e`: images of this source, in real pods.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::cluster::{self, Layout};
use crate::image::{self, VERSION, binary::Binary};
use crate::program::{self, cargo};
use crate::ui;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Stop our own cluster afterwards; otherwise it stays up for the next run.
    #[arg(long)]
    down: bool,
    /// The cargo profile of the product's image.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Build no images: those of the last run are in the cluster.
    #[arg(long)]
    no_images: bool,
    /// Passed to `cargo test`, such as a part of a test's name.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    passed_on: Vec<String>,
}

/// An image that the tests use: its content, and the variable with its name.
struct Subject<'a> {
    binary: Binary<'a>,
    name: String,
    variable: &'static str,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let product = format!("localhost/skep:{VERSION}");
    let fixture = format!("localhost/skep-fixture:{VERSION}");
    let next = format!("localhost/skep-fixture:{VERSION}-next");
    let subjects = [
        Subject { binary: Binary::skep(&arguments.profile), name: product, variable: "SKEP_E2E_IMAGE" },
        Subject { binary: Binary::fixture(), name: fixture, variable: "SKEP_E2E_FIXTURE_IMAGE" },
        // The same under another name: what a server is changed to.
        Subject { binary: Binary::fixture(), name: next, variable: "SKEP_E2E_NEXT_IMAGE" },
    ];
    let archives = if arguments.no_images { Vec::new() } else { build(&subjects)? };
    // Compiled before the network is left: in the cluster's there is nothing to fetch from.
    program::build("building the tests", cargo().args(["test", "--package", "skep-e2e", "--no-run"]))?;
    let tests = ["test", "--package", "skep-e2e", "--offline"];
    let variables = subjects.iter().map(|subject| (subject.variable, &subject.name));

    if let Some(theirs) = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
        ui::progress(&format!("testing in the cluster of `{}`", theirs.display()));
        for archive in &archives {
            ui::progress(&format!("its nodes must have `{}`, as by `kind load image-archive`", archive.display()));
        }
        let mut command = cargo();
        command.args(tests).args(&arguments.passed_on).env("SKEP_E2E_KUBECONFIG", theirs).envs(variables);
        return program::run(&mut command);
    }

    let layout = Layout::from_env();
    cluster::up(&layout)?;
    for archive in &archives {
        cluster::load(&layout, archive)?;
    }
    let mut command = cluster::inside(&layout, &cargo().get_program().to_string_lossy())?;
    command.args(tests).args(&arguments.passed_on).current_dir(crate::root());
    command.env("SKEP_E2E_KUBECONFIG", layout.kubeconfig()).envs(variables);
    // A program that can restart parts of it.
    command.env("SKEP_E2E_CLUSTER", std::env::current_exe().context("cannot find this program's file")?);
    let tested = program::run(&mut command);
    if arguments.down {
        cluster::down(&layout)?;
    } else {
        ui::progress(&format!("the cluster stays up, with kubeconfig {}", layout.kubeconfig().display()));
        ui::progress(
            "look around with `cargo xtask cluster exec kubectl get pods -A`; stop it with `cargo xtask cluster down`",
        );
    }
    tested
}

/// Builds the images and returns their archives.
fn build(subjects: &[Subject<'_>]) -> Result<Vec<PathBuf>> {
    let build = |subject: &Subject<'_>| {
        let output = image::default_output(subject.name.rsplit('/').next().unwrap_or(subject.binary.name))?;
        ui::progress(&image::build(&subject.binary, &subject.name, &output)?);
        Ok(output)
    };
    subjects.iter().map(build).collect()
}
