//! Ambiguous names in JSON objects.
//!
//! Some JSON parsers read the first of two members of one name, most read the last, and some ignore case. Where a name
//! decides something, all of them must see the same member, so an ambiguous message is rejected.

use std::borrow::Cow;

use crate::message_error::MessageError;

/// Objects with more members than this are rejected unchecked, so that the effort is bounded.
const MOST_MEMBERS: usize = 65_536;

/// An object whose names are checked.
#[derive(Debug)]
pub(crate) struct Level {
    /// The name of the object in errors.
    pub(crate) place: &'static str,
    /// The known names: at most 64.
    pub(crate) known: &'static [&'static str],
}

/// The names seen so far in one object.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    level: &'static Level,
    /// One bit for each known name.
    seen: u64,
    /// Unknown names. Most messages have none, and then nothing is allocated.
    others: Vec<Cow<'a, str>>,
}

// === impl Names ===

impl<'a> Names<'a> {
    pub(crate) fn new(level: &'static Level) -> Self {
        Self { level, seen: 0, others: Vec::new() }
    }

    /// Records a name. Returns the position of a known one in its table.
    pub(crate) fn note(&mut self, name: Cow<'a, str>) -> Result<Option<usize>, MessageError> {
        let place = self.level.place;
        if let Some(position) = self.level.known.iter().position(|known| *known == name) {
            let bit = 1 << position;
            if self.seen & bit != 0 {
                return Err(MessageError::Duplicate { place });
            }
            self.seen |= bit;
            return Ok(Some(position));
        }
        if let Some(known) = self.level.known.iter().find(|known| equal_but_for_case(&name, known)) {
            return Err(MessageError::OtherCase { place, known });
        }
        if self.others.len() == MOST_MEMBERS {
            return Err(MessageError::TooManyMembers { place });
        }
        self.others.push(name);
        Ok(None)
    }

    /// Checks that unknown names are not duplicated either.
    pub(crate) fn finish(mut self) -> Result<(), MessageError> {
        self.others.sort_unstable();
        let twice = self.others.iter().zip(self.others.iter().skip(1)).any(|(one, next)| one == next);
        if twice { Err(MessageError::Duplicate { place: self.level.place }) } else { Ok(()) }
    }
}

/// Compares as case-insensitive parsers do. Two characters beyond ASCII have an ASCII letter as their other case: the
/// kelvin sign, and the long s.
pub(crate) fn equal_but_for_case(name: &str, known: &str) -> bool {
    if name.is_ascii() {
        return name.eq_ignore_ascii_case(known);
    }
    let folded = name.chars().map(|character| match character {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(known.chars().map(|character| character.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    static LEVEL: Level = Level { place: "here", known: &["params", "kind"] };

    fn check(names: &[&'static str]) -> Result<(), MessageError> {
        let mut level = Names::new(&LEVEL);
        for name in names {
            level.note(Cow::Borrowed(name))?;
        }
        level.finish()
    }

    #[test]
    fn a_name_may_occur_once() {
        assert_eq!(check(&["params", "a", "kind", "A"]), Ok(()));
        assert_eq!(check(&["params", "a", "params"]), Err(MessageError::Duplicate { place: "here" }));
        assert_eq!(check(&["a", "b", "a"]), Err(MessageError::Duplicate { place: "here" }));
    }

    #[test]
    fn a_known_name_has_one_case_in_any_alphabet() {
        for name in ["Params", "PARAMS", "param\u{17f}"] {
            assert_eq!(check(&[name]), Err(MessageError::OtherCase { place: "here", known: "params" }), "{name}");
        }
        assert_eq!(check(&["\u{212a}ind"]), Err(MessageError::OtherCase { place: "here", known: "kind" }));
        assert_eq!(check(&["p\u{e4}rams", "params2", ""]), Ok(()));
    }

    #[test]
    fn the_number_of_members_has_a_bound() {
        let mut names = Names::new(&LEVEL);
        let refused = (0..).find_map(|number: usize| names.note(Cow::Owned(number.to_string())).err());
        assert_eq!(refused, Some(MessageError::TooManyMembers { place: "here" }));
    }
}
