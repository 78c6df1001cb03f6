//! What is wrong with a spec, collected: every problem with its place, all of them at once.

use std::fmt::Display;

use skep_api::reference::{CaBundleRef, SecretKeyRef};
use skep_runconfig::GoDuration;

use crate::error::PlanError;

/// Problems of one spec, in the order of its fields.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<String>);

// === impl Problems ===

impl Problems {
    /// Something is wrong at a place, and what to do about it.
    pub(crate) fn add(&mut self, place: impl Display, problem: impl Display) {
        self.0.push(format!("{place}: {problem}"));
    }

    /// As [`Self::add`], where a condition does not hold.
    pub(crate) fn unless(&mut self, holds: bool, place: impl Display, problem: impl Display) {
        if !holds {
            self.add(place, problem);
        }
    }

    /// The problems of a part of the spec that stands at a place; their own places are told from there.
    pub(crate) fn under(&mut self, place: impl Display, part: Self) {
        self.0.extend(part.0.into_iter().map(|problem| format!("{place}{problem}")));
    }

    /// What a check of one field found.
    pub(crate) fn check<E: Display>(&mut self, place: impl Display, result: Result<(), E>) {
        if let Err(problem) = result {
            self.add(place, problem);
        }
    }

    /// A text that must not be empty; `advice` says what to write.
    pub(crate) fn filled(&mut self, place: impl Display, text: &str, advice: &str) {
        self.unless(!text.trim().is_empty(), place, format_args!("it is empty; {advice}"));
    }

    /// A reference to a key of a Secret, if there is one.
    pub(crate) fn secret(&mut self, place: impl Display, secret: Option<&SecretKeyRef>) {
        let Some(secret) = secret else { return };
        self.filled(format_args!("{place}.name"), &secret.name, "name the Secret");
        self.filled(format_args!("{place}.key"), &secret.key, "name the key inside the Secret");
    }

    /// A reference to a bundle of certificate authorities, if there is one.
    pub(crate) fn ca_bundle(&mut self, place: impl Display, bundle: Option<&CaBundleRef>) {
        let Some(bundle) = bundle else { return };
        let name = bundle.config_map_ref.as_ref().map(|reference| reference.name.as_str()).unwrap_or_default();
        let problem = "it names no ConfigMap; set configMapRef.name, or remove caBundleRef";
        self.unless(!name.is_empty(), place, problem);
    }

    /// A duration between two bounds, given in seconds, if there is one.
    pub(crate) fn duration(&mut self, place: impl Display, text: Option<&str>, shortest: i64, longest: i64) {
        let Some(text) = text else { return };
        let (shortest, longest) = (GoDuration::from_seconds(shortest), GoDuration::from_seconds(longest));
        match text.parse::<GoDuration>() {
            Err(problem) => self.add(place, problem),
            Ok(duration) if duration < shortest || duration > longest => {
                self.add(place, format_args!("`{text}` is out of bounds; choose from {shortest} to {longest}"));
            }
            Ok(_) => {}
        }
    }

    /// A duration above zero, if there is one.
    pub(crate) fn some_time(&mut self, place: impl Display, text: Option<&str>) {
        let Some(text) = text else { return };
        match text.parse::<GoDuration>() {
            Err(problem) => self.add(place, problem),
            Ok(duration) if duration.nanoseconds <= 0 => {
                self.add(place, format_args!("`{text}` is no time at all; write a duration above zero, such as `30s`"));
            }
            Ok(_) => {}
        }
    }

    /// All problems.
    pub(crate) fn list(self) -> Vec<String> {
        self.0
    }

    /// All problems in one line, or none.
    pub(crate) fn result(self) -> Result<(), PlanError> {
        if self.0.is_empty() { Ok(()) } else { Err(PlanError::InvalidSpec(in_one_line(&self.0))) }
    }
}

/// Problems in one line. A condition has no room for all of very many, and nobody reads them all.
pub(crate) fn in_one_line(problems: &[String]) -> String {
    const SHOWN: usize = 10;
    let rest = problems.len().saturating_sub(SHOWN);
    let rest = (rest > 0).then(|| format!("and {rest} more"));
    problems.iter().take(SHOWN).cloned().chain(rest).collect::<Vec<_>>().join("; ")
}
