//! What is wrong with a spec, collected: every problem with its place, all of them at once.
//!
//! A spec can have as many problems as it has values, and a place can be as long as the names of its members together. So at most
//! [`MOST`] problems are kept, each clipped to [`LONGEST`] bytes, the others are counted; and a place is written only where something is
//! wrong there.

use std::fmt::{self, Display, Write as _};

use skep_api::reference::{CaBundleRef, SecretKeyRef};
use skep_runconfig::GoDuration;

use crate::error::PlanError;

/// How many problems of one spec are kept.
const MOST: usize = 20;
/// The longest problem, in bytes.
const LONGEST: usize = 1024;
/// The longest place of a problem, in bytes. What is wrong there must be read, too.
const LONGEST_PLACE: usize = 512;
/// The longest name of a member in a place, in bytes.
const LONGEST_MEMBER: usize = 64;

/// Problems of one spec, in the order of its fields.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    kept: Vec<String>,
    /// How many there are beside those that are kept.
    more: usize,
}

/// Where a value is, from the outside in. It is borrowed all along and costs nothing until it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// Where the value is that all others are in.
    Root(&'a str),
    /// A member of an object.
    Member(&'a Self, &'a str),
    /// An element of a list.
    Element(&'a Self, usize),
}

/// A text that takes as many bytes as it may have, and no more.
struct Clipped {
    text: String,
    longest: usize,
}

// === impl Problems ===

impl Problems {
    /// Something is wrong at a place, and what to do about it.
    pub(crate) fn add(&mut self, place: impl Display, problem: impl Display) {
        if self.kept.len() < MOST {
            let place = clipped(&place, LONGEST_PLACE);
            self.kept.push(clipped(&format_args!("{place}: {problem}"), LONGEST));
        } else {
            self.more += 1;
        }
    }

    /// As [`Self::add`], where a condition does not hold.
    pub(crate) fn unless(&mut self, holds: bool, place: impl Display, problem: impl Display) {
        if !holds {
            self.add(place, problem);
        }
    }

    /// The problems of a part of the spec that stands at a place; their own places are relative to it.
    pub(crate) fn under(&mut self, place: impl Display, part: Self) {
        let room = MOST.saturating_sub(self.kept.len());
        self.more += part.more + part.kept.len().saturating_sub(room);
        for problem in part.kept.into_iter().take(room) {
            let place = clipped(&place, LONGEST_PLACE);
            self.kept.push(clipped(&format_args!("{place}{problem}"), LONGEST));
        }
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
                self.add(place, format_args!("`{text}` is not above zero; write a duration such as `30s`"));
            }
            Ok(_) => {}
        }
    }

    /// All problems that are kept, and how many more there are.
    pub(crate) fn list(self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("and {} more", self.more));
        self.kept.into_iter().chain(more).collect()
    }

    /// All problems in one line, or none.
    pub(crate) fn result(self) -> Result<(), PlanError> {
        self.message().map_or(Ok(()), |message| Err(PlanError::InvalidSpec(message)))
    }

    /// The same, while they are still needed one by one.
    pub(crate) fn message(&self) -> Option<String> {
        (!self.kept.is_empty()).then(|| one_line(&self.kept, self.more))
    }
}

// === impl Place ===

impl Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => formatter.write_str(name),
            Self::Member(outer, name) => write!(formatter, "{outer}.{}", clipped(name, LONGEST_MEMBER)),
            Self::Element(outer, index) => write!(formatter, "{outer}[{index}]"),
        }
    }
}

// === impl Clipped ===

impl fmt::Write for Clipped {
    /// Fails when the text is full, so that nothing more is formatted.
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = self.longest - self.text.len();
        let end = part.floor_char_boundary(room);
        self.text.push_str(part.get(..end).unwrap_or_default());
        if end < part.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// What something says, in at most so many bytes.
fn clipped(said: &dyn Display, longest: usize) -> String {
    const MARK: char = '…';
    let mut clipped = Clipped { text: String::new(), longest: longest - MARK.len_utf8() };
    if write!(clipped, "{said}").is_err() {
        clipped.text.push(MARK);
    }
    clipped.text
}

/// A text in at most so many bytes.
pub(crate) fn clipped_to(text: &str, longest: usize) -> String {
    clipped(&text, longest)
}

/// Problems in one line: the first of them, and how many more there are. A condition has no room for very many.
pub fn in_one_line(problems: &[String]) -> String {
    one_line(problems, 0)
}

/// As [`in_one_line`], with `more` problems that are not among these.
fn one_line(problems: &[String], more: usize) -> String {
    const SHOWN: usize = 10;
    let rest = problems.len().saturating_sub(SHOWN) + more;
    let rest = (rest > 0).then(|| format!("and {rest} more"));
    problems.iter().take(SHOWN).cloned().chain(rest).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_counted_and_clipped() {
        let mut part = Problems::default();
        for index in 0..30_000 {
            part.add(format_args!(".a[{index}]"), "é".repeat(10_000));
        }
        let mut problems = Problems::default();
        problems.add("first", "it is wrong");
        problems.under("p".repeat(100_000), part);
        problems.add("last", "it is wrong");
        let list = problems.list();
        assert_eq!((list.len(), list[0].as_str()), (MOST + 1, "first: it is wrong"));
        assert!(list.iter().all(|one| one.len() <= LONGEST), "{list:?}");
        assert!(
            list[1].starts_with("ppp") && list[1].contains("…a[0]: éé") | list[1].contains("….a[0]: éé"),
            "{list:?}"
        );
        assert_eq!(list[MOST], "and 29982 more");
    }

    #[test]
    fn all_problems_are_counted_in_one_line() {
        let mut problems = Problems::default();
        (0..100).for_each(|index| problems.add(index, "wrong"));
        let line = problems.result().unwrap_err().to_string();
        assert!(line.starts_with("0: wrong; 1: wrong; ") && line.ends_with("9: wrong; and 90 more"), "{line}");
    }

    /// A value that fails the test when it is written.
    struct Untold;

    impl Display for Untold {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("it is written though nothing is wrong, or nothing more is kept")
        }
    }

    #[test]
    fn places_are_written_only_for_problems_that_are_kept() {
        let mut problems = Problems::default();
        problems.unless(true, Untold, Untold);
        problems.check(Untold, Ok::<(), Untold>(()));
        (0..MOST).for_each(|index| problems.add(index, "wrong"));
        problems.add(Untold, Untold);
        let mut part = Problems::default();
        part.add("a", "wrong");
        problems.under(Untold, part);
        assert_eq!(problems.more, 2);
    }

    #[test]
    fn a_place_has_clipped_names() {
        let (root, long) = (Place::Root(".a"), "x".repeat(700_000));
        let member = Place::Member(&root, &long);
        let place = Place::Element(&member, 7).to_string();
        assert!(place.starts_with(".a.xxx") && place.ends_with("x…[7]") && place.len() < 80, "{place}");
    }
}
