//! One mutant at a time, with a build of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, bail};

use super::build::{Build, Diagnostic};
use super::witness::Witness;
use super::{Baseline, Mutant, Session};
use crate::ui;

// === impl Session ===

impl Session {
    /// Tries mutants one at a time, whose tests did that with nothing taken out.
    pub(super) fn alone(&self, mutants: Vec<(Mutant<'_>, Baseline)>) -> Result<()> {
        let without = self.baseline_without_mutants(&mutants)?;
        for (mutant, baseline) in mutants {
            match without.get(&mutant.witness).copied().unwrap_or(baseline) {
                Ok(usual) => self.try_alone(&mutant, usual)?,
                Err(why) => {
                    let why = format!("`cargo test {}` {why} with nothing taken out", mutant.mutation.test);
                    self.report.refuse(&mutant, &why);
                }
            }
        }
        Ok(())
    }

    /// What tests do that fail while all mutants are in the sources, even though none is active.
    fn baseline_without_mutants(&self, mutants: &[(Mutant<'_>, Baseline)]) -> Result<BTreeMap<Witness, Baseline>> {
        let red: BTreeSet<_> =
            mutants.iter().filter(|(_, baseline)| baseline.is_err()).map(|(mutant, _)| &mutant.witness).collect();
        if red.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.workspace.write(&BTreeMap::new())?;
        let Build::Done(executables) = self.builder.build("build without mutants", None)? else {
            bail!("the workspace does not build");
        };
        red.into_iter().map(|witness| Ok((witness.clone(), self.run_baseline(witness, &executables)?))).collect()
    }

    fn try_alone(&self, mutant: &Mutant<'_>, usual: Duration) -> Result<()> {
        self.workspace.write(&[(mutant.place.file.clone(), mutant.text(&self.workspace))].into())?;
        let executables = match self.builder.build(&mutant.mutation.title(), Some(&mutant.witness.target))? {
            Build::Done(executables) => executables,
            Build::Failed(errors) => {
                errors.iter().filter_map(shown).for_each(ui::progress);
                self.report.refuse(mutant, "it does not build any more: a compiler is not the test that is meant");
                return Ok(());
            }
        };
        let tested = self.run_mutant(mutant, &executables, None, usual)?;
        if tested.is_red() {
            self.report.notice(mutant, &tested);
        } else {
            self.report.refuse(mutant, "no test noticed that this was taken out");
        }
        Ok(())
    }
}

fn shown(error: &Diagnostic) -> Option<&str> {
    error.rendered.as_deref().map(str::trim_end)
}
