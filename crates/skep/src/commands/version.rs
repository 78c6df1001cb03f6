//! `skep version`

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::cli::Output;
use crate::terminal;

/// The output of `skep version -o json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct About {
    version: &'static str,
    api_group: &'static str,
    api_versions: [&'static str; 2],
    platform: String,
}

pub(super) fn run(output: Output) -> Result<ExitCode> {
    let about = About {
        version: env!("CARGO_PKG_VERSION"),
        api_group: skep_api::crd::GROUP,
        api_versions: [skep_api::crd::STORED_VERSION, skep_api::crd::OLDER_VERSION],
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    };
    match output {
        Output::Json => terminal::print_json(&about)?,
        Output::Text => terminal::print(&format!("skep {} ({})\n", about.version, about.platform))?,
    }
    Ok(ExitCode::SUCCESS)
}
