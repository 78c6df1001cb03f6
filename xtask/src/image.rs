//! `cargo xtask image`: the static binary, and around it the smallest image there is.

pub(crate) mod archive;
pub(crate) mod binary;
pub(crate) mod order;
mod roots;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use archive::Image;
use binary::Binary;

use crate::{host, target_dir, ui};

/// The version of everything in this workspace.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where to write the archive [default: image/skep.tar in cargo's target directory].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The image's name and tag.
    #[arg(long, default_value_t = format!("localhost/skep:{VERSION}"))]
    name: String,
    /// The cargo profile to build with; `release` is quicker to build, `dist` is what ships.
    #[arg(long, default_value = "dist")]
    profile: String,
    /// A list of functions to link in this order, as `cargo xtask order` records it [default: the order of the linker].
    #[arg(long, value_name = "FILE")]
    order: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None => default_output("skep")?,
    };
    let mut binary = Binary::skep(&arguments.profile);
    binary.order = arguments.order.as_deref().map(order::file).transpose()?;
    ui::result(&build(&binary, &arguments.name, &output)?);
    Ok(())
}

/// The default path of the archive of a binary.
pub(crate) fn default_output(binary: &str) -> Result<PathBuf> {
    Ok(target_dir()?.join("image").join(format!("{binary}.tar")))
}

/// Builds a binary, writes its image, and returns a line about it.
pub(crate) fn build(binary: &Binary<'_>, name: &str, output: &Path) -> Result<String> {
    // Before the build: a wrong name should not cost minutes.
    archive::tag(name)?;
    let path = binary.build()?;
    let program = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let labels = BTreeMap::from([
        ("org.opencontainers.image.title".to_owned(), binary.name.to_owned()),
        ("org.opencontainers.image.version".to_owned(), VERSION.to_owned()),
        ("org.opencontainers.image.licenses".to_owned(), env!("CARGO_PKG_LICENSE").to_owned()),
    ]);
    let architecture = host::processor()?.image;
    let image = Image { name, architecture, program: &program, program_name: binary.name, labels };
    if let Some(parent) = output.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot make `{}`", parent.display()))?;
    }
    let file = File::create(output).with_context(|| format!("cannot write `{}`", output.display()))?;
    let mut file = BufWriter::new(file);
    image.write(&mut file)?;
    file.flush().with_context(|| format!("cannot write `{}`", output.display()))?;
    let written = fs::metadata(output).with_context(|| format!("cannot read `{}`", output.display()))?.len();
    let (written, program) = (ui::size(written), ui::size(program.len() as u64));
    Ok(format!("{name}: {} (archive {written}, program {program})", output.display()))
}
