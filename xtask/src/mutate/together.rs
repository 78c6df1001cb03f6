//! All mutants in one build: the environment chooses which of them is active.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::build::{Build, Diagnostic};
use super::schemata::{Change, Schemata};
use super::witness::{Executables, Witness};
use super::workspace::Texts;
use super::{Baseline, Mutant, Session, in_parallel};
use crate::{test, ui};

/// The files that have mutants in them.
type Written = BTreeMap<PathBuf, Schemata>;

// === impl Session ===

impl Session {
    /// Tries the mutants that can be chosen as the program runs. Returns those that must be tried alone, with what their tests did:
    /// because they are no part of a function's body, do not build beside the others, or were not noticed, which may be due to a process
    /// that did not inherit the choice. Also returns the texts that were built.
    pub(super) fn together<'a>(&self, mutants: Vec<Mutant<'a>>) -> Result<(Vec<(Mutant<'a>, Baseline)>, Texts)> {
        let mut alone: BTreeSet<usize> =
            mutants.iter().filter(|mutant| mutant.place.block.is_none()).map(|mutant| mutant.number).collect();
        ui::progress(&format!("{} mutants in one build, {} alone", mutants.len() - alone.len(), alone.len()));
        let (executables, texts) = self.build_together(&mutants, &mut alone)?;
        test::prepare()?;
        let mut by_witness: BTreeMap<Witness, Vec<Mutant<'a>>> = BTreeMap::new();
        for mutant in mutants {
            by_witness.entry(mutant.witness.clone()).or_default().push(mutant);
        }
        let left = in_parallel(self.jobs, by_witness.into_iter().collect(), |(witness, mutants)| {
            let baseline = self.run_baseline(&witness, &executables)?;
            let mut left = Vec::new();
            for mutant in mutants {
                let is_alone = alone.contains(&mutant.number);
                if is_alone || !self.is_noticed(&mutant, &executables, baseline)? {
                    left.push((mutant, baseline));
                }
            }
            Ok(left)
        })?;
        Ok((left.into_iter().flatten().collect(), texts))
    }

    fn is_noticed(&self, mutant: &Mutant<'_>, of: &Executables, baseline: Baseline) -> Result<bool> {
        // What fails with all mutants in the build may not fail without them.
        let Ok(usual) = baseline else { return Ok(false) };
        let tested = self.run_mutant(mutant, of, Some(mutant.number), usual)?;
        if tested.is_red() {
            self.report.notice(mutant, &tested);
        } else {
            ui::progress(&format!("{}: not noticed, to be tried alone", mutant.mutation.title()));
        }
        Ok(tested.is_red())
    }

    /// Builds until every mutant that is still in the sources compiles. Those that do not are added to those that are tried alone.
    fn build_together(&self, mutants: &[Mutant<'_>], alone: &mut BTreeSet<usize>) -> Result<(Executables, Texts)> {
        loop {
            let written = self.schemata(mutants, alone);
            let texts = written.iter().map(|(file, schemata)| (file.clone(), schemata.text.clone())).collect();
            self.workspace.write(&texts)?;
            let errors = match self.builder.build("build of all mutants", None)? {
                Build::Done(executables) => return Ok((executables, texts)),
                Build::Failed(errors) => errors,
            };
            let blamed: BTreeSet<_> = errors.iter().flat_map(|error| blamed(&written, error)).collect();
            if blamed.is_empty() {
                let shown: Vec<_> = errors.iter().filter_map(Diagnostic::shown).collect();
                bail!("errors that no mutant is the cause of:\n{}", shown.join("\n"));
            }
            errors.iter().filter_map(Diagnostic::shown).for_each(ui::progress);
            for mutant in mutants.iter().filter(|mutant| blamed.contains(&mutant.number)) {
                ui::progress(&format!(
                    "{}: does not build with the others, to be tried alone",
                    mutant.mutation.title()
                ));
            }
            alone.extend(blamed);
        }
    }

    fn schemata(&self, mutants: &[Mutant<'_>], alone: &BTreeSet<usize>) -> Written {
        let mut changes: BTreeMap<&Path, Vec<Change<'_>>> = BTreeMap::new();
        for mutant in mutants.iter().filter(|mutant| !alone.contains(&mutant.number)) {
            let (place, with) = (&mutant.place, mutant.mutation.with.as_str());
            let Some(block) = place.block.clone() else { continue };
            let change = Change { number: mutant.number, block, range: place.range.clone(), with };
            changes.entry(&place.file).or_default().push(change);
        }
        let written = changes.into_iter();
        written.map(|(file, changes)| (file.to_owned(), Schemata::of(&self.workspace.text(file), &changes))).collect()
    }
}

/// The mutants that are the cause of an error: those of the first of its places that is of any.
fn blamed(written: &Written, error: &Diagnostic) -> BTreeSet<usize> {
    let places = error.places().into_iter();
    let mut blamed = places.filter_map(|(file, range)| Some(written.get(file)?.mutants_at(&range)));
    blamed.find(|blamed| !blamed.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_of_the_mutant_at_the_first_of_its_places() {
        let source = "fn one() { a }";
        let change = |number, with| Change { number, block: 9..14, range: 11..12, with };
        let schemata = Schemata::of(source, &[change(4, "b"), change(5, "c")]);
        let at = |text: &str| schemata.text.find(text).unwrap();
        let (b, c) = (at("{ b }"), at("{ c }"));
        let span = |file: &str, start: usize, is_primary: bool| {
            serde_json::json!({"file_name": file, "byte_start": start, "byte_end": start + 1, "is_primary": is_primary,
                "expansion": null})
        };
        let spans = [span("lib.rs", b + 2, false), span("lib.rs", c + 2, true), span("other.rs", b + 2, true)];
        let error = serde_json::json!({"level": "error", "spans": spans});
        let note = serde_json::json!({"level": "error", "spans": [span("other.rs", 1, true)], "children": [error]});
        let written: Written = [(PathBuf::from("lib.rs"), schemata)].into();
        for error in [error.clone(), note] {
            let error: Diagnostic = serde_json::from_value(error).unwrap();
            assert_eq!(blamed(&written, &error), [5].into());
        }
    }
}
