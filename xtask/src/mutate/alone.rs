//! One mutant at a time, with a build of its own.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::build::{Build, Diagnostic};
use super::witness::Witness;
use super::workspace::Texts;
use super::{Baseline, Mutant, Session};
use crate::ui;

// === impl Session ===

impl Session {
    /// Tries mutants one at a time, whose tests did that with nothing taken out. The other files keep the texts of `together`, in which
    /// no mutant is active, so that they are not built again; but a test that fails with those needs the workspace as it is.
    pub(super) fn alone(&self, mutants: Vec<(Mutant<'_>, Baseline)>, together: &Texts) -> Result<()> {
        let (green, red): (Vec<_>, Vec<_>) = mutants.into_iter().partition(|(_, baseline)| baseline.is_ok());
        for (mutant, baseline) in green {
            self.try_alone(&mutant, together, baseline)?;
        }
        let baselines = self.run_baselines_alone(red.iter().map(|(mutant, _)| &mutant.witness).collect())?;
        for (mutant, baseline) in red {
            let baseline = baselines.get(&mutant.witness).copied().unwrap_or(baseline);
            self.try_alone(&mutant, &Texts::new(), baseline)?;
        }
        Ok(())
    }

    /// What tests do in the workspace as it is.
    fn run_baselines_alone(&self, witnesses: BTreeSet<&Witness>) -> Result<BTreeMap<Witness, Baseline>> {
        if witnesses.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.workspace.write(&Texts::new())?;
        let Build::Done(executables) = self.builder.build("build without mutants", None)? else {
            bail!("the workspace does not build");
        };
        witnesses.into_iter().map(|one| Ok((one.clone(), self.run_baseline(one, &executables)?))).collect()
    }

    fn try_alone(&self, mutant: &Mutant<'_>, others: &Texts, baseline: Baseline) -> Result<()> {
        let usual = match baseline {
            Ok(usual) => usual,
            Err(why) => {
                let why = format!("`cargo test {}` {why} with nothing taken out", mutant.mutation.test);
                self.report.refuse(mutant, &why);
                return Ok(());
            }
        };
        let mut texts = others.clone();
        texts.insert(mutant.place.file.clone(), mutant.text(&self.workspace));
        self.workspace.write(&texts)?;
        let executables = match self.builder.build(&mutant.mutation.title(), Some(&mutant.witness.target))? {
            Build::Done(executables) => executables,
            Build::Failed(errors) => {
                errors.iter().filter_map(Diagnostic::shown).for_each(ui::progress);
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
