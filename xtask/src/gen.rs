//! Writes what is generated from the code into the repository.

/// Writes every generated file; with `check`, changes nothing and fails when one is out of date.
#[expect(clippy::unnecessary_wraps, reason = "nothing is generated yet")]
pub(crate) fn run(_check: bool) -> anyhow::Result<()> {
    Ok(())
}
