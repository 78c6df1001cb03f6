//! Mutant schemata: one source text that holds a function in its own form and in all of its mutants, of which the environment chooses
//! one as the program runs. So one build serves all mutants.
//!
//! ```text
//!   fn f() { BODY }  ─▶  fn f() { match CHOSEN { 17 => { BODY 17 } 18 => { BODY 18 } _ => { BODY } } }
//! ```
//!
//! The signature stays as it is, and with it all that others see of the function.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

/// The variable that chooses a mutant by its number. Without it, no mutant is active.
pub(super) const CHOICE: &str = "SKEP_MUTANT";

/// One mutant of a source text.
#[derive(Clone, Debug)]
pub(super) struct Change<'a> {
    pub(super) number: usize,
    /// The piece that is written twice, in bytes of the source.
    pub(super) block: Range<usize>,
    /// The part of that piece that is replaced.
    pub(super) range: Range<usize>,
    /// What stands there instead.
    pub(super) with: &'a str,
}

/// A source text with all mutants in it.
#[derive(Debug)]
pub(super) struct Schemata {
    pub(super) text: String,
    groups: Vec<Group>,
}

/// The variants of one piece, by where they stand in the new text.
#[derive(Debug)]
struct Group {
    range: Range<usize>,
    variants: Vec<(usize, Range<usize>)>,
}

// === impl Change ===

impl Change<'_> {
    /// A piece of the source, which has the mutant's range in it, as the mutant has it.
    fn apply(&self, source: &str, piece: &Range<usize>) -> String {
        let part = |range: Range<usize>| source.get(range).unwrap_or_default();
        format!("{}{}{}", part(piece.start..self.range.start), self.with, part(self.range.end..piece.end))
    }
}

// === impl Schemata ===

impl Schemata {
    /// Writes the mutants into a source.
    pub(super) fn of(source: &str, mutants: &[Change<'_>]) -> Self {
        let mut schemata = Self { text: String::with_capacity(source.len() * 2), groups: Vec::new() };
        let mut written = 0;
        for (block, mutants) in pieces(mutants) {
            schemata.text.push_str(source.get(written..block.start).unwrap_or_default());
            schemata.add(source, &block, &mutants);
            written = block.end;
        }
        schemata.text.push_str(source.get(written..).unwrap_or_default());
        schemata
    }

    fn add(&mut self, source: &str, block: &Range<usize>, mutants: &[&Change<'_>]) {
        let start = self.text.len();
        let text = &mut self.text;
        text.push_str("{ static CHOSEN_MUTANT: ::std::sync::OnceLock<usize> = ::std::sync::OnceLock::new(); ");
        text.push_str("match *CHOSEN_MUTANT.get_or_init(|| ::std::env::var(\"");
        text.push_str(CHOICE);
        text.push_str("\").ok().and_then(|number| number.parse().ok()).unwrap_or_default()) {\n");
        let mut variants = Vec::new();
        for mutant in mutants {
            text.push_str(&mutant.number.to_string());
            text.push_str(" => { ");
            let from = text.len();
            text.push_str(&mutant.apply(source, block));
            variants.push((mutant.number, from..text.len()));
            text.push_str("\n}\n");
        }
        text.push_str("_ => { ");
        text.push_str(source.get(block.clone()).unwrap_or_default());
        text.push_str("\n} } }");
        self.groups.push(Group { range: start..self.text.len(), variants });
    }

    /// The mutants that a place of the text is of: the one that has it, or all for which the piece around it is written twice.
    pub(super) fn mutants_at(&self, place: &Range<usize>) -> BTreeSet<usize> {
        let has = |range: &Range<usize>| range.start <= place.start && place.end <= range.end;
        let Some(group) = self.groups.iter().find(|group| has(&group.range)) else { return BTreeSet::new() };
        let own = group.variants.iter().find(|(_, range)| has(range));
        own.map_or_else(|| group.variants.iter().map(|(number, _)| *number).collect(), |(number, _)| [*number].into())
    }
}

/// The pieces that are written several times, from the first to the last, each with its mutants. A piece in another one is part of it.
fn pieces<'a, 'b>(mutants: &'a [Change<'b>]) -> Vec<(Range<usize>, Vec<&'a Change<'b>>)> {
    let mut sorted: Vec<_> = mutants.iter().collect();
    sorted.sort_by_key(|mutant| (mutant.block.start, Reverse(mutant.block.end)));
    let mut pieces: Vec<(Range<usize>, Vec<_>)> = Vec::new();
    for mutant in sorted {
        match pieces.last_mut() {
            Some((block, known)) if mutant.block.start < block.end => known.push(mutant),
            _ => pieces.push((mutant.block.clone(), vec![mutant])),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn one() -> u8 { 1 }\nfn two() -> u8 { call(|x| x + 2) }\n";

    fn mutant(number: usize, block: &str, marker: &str, with: &'static str) -> Change<'static> {
        let find = |text: &str| {
            let start = SOURCE.find(text).unwrap();
            start..start + text.len()
        };
        Change { number, block: find(block), range: find(marker), with }
    }

    /// The text, without what reads the environment.
    fn short(schemata: &Schemata) -> String {
        let text = schemata.text.split("static ").map(|part| part.split_once("()) {").map_or(part, |(_, rest)| rest));
        text.collect::<Vec<_>>().join("match {").replace('\n', " ")
    }

    #[test]
    fn one_text_holds_all_mutants() {
        let mutants = [
            mutant(4, "{ call(|x| x + 2) }", "+ 2", ""),
            mutant(7, "{ 1 }", "1", "3"),
            mutant(9, "{ call(|x| x + 2) }", "call", "{ \"ä\" }; call"),
        ];
        let schemata = Schemata::of(SOURCE, &mutants);
        assert_eq!(
            short(&schemata),
            "fn one() -> u8 { match { 7 => { { 3 } } _ => { { 1 } } } } \
             fn two() -> u8 { match { 4 => { { call(|x| x ) } } 9 => { { { \"ä\" }; call(|x| x + 2) } } \
             _ => { { call(|x| x + 2) } } } } "
        );
        assert!(syn::parse_file(&schemata.text).is_ok());
        assert_eq!(Schemata::of(SOURCE, &[]).text, SOURCE);
    }

    #[test]
    fn a_piece_in_another_one_is_part_of_it() {
        let mutants = [mutant(4, "x + 2", "+ 2", "+ 3"), mutant(5, "{ call(|x| x + 2) }", "call", "send")];
        let text = short(&Schemata::of(SOURCE, &mutants));
        assert!(text.contains("{ match { 5 => { { send(|x| x + 2) } } 4 => { { call(|x| x + 3) } } _ =>"), "{text}");
    }

    #[test]
    fn a_place_is_of_the_mutant_that_has_it() {
        let mutants =
            [mutant(4, "{ call(|x| x + 2) }", "+ 2", "+ four"), mutant(9, "{ call(|x| x + 2) }", "2", "nine")];
        let schemata = Schemata::of(SOURCE, &mutants);
        let at = |text: &str| {
            let start = schemata.text.find(text).unwrap();
            Vec::from_iter(schemata.mutants_at(&(start..start + text.len())))
        };
        assert_eq!(at("four"), [4]);
        assert_eq!(at("nine"), [9]);
        assert_eq!(at("+ 2"), [4, 9], "the piece without a mutant");
        assert_eq!(at("match"), [4, 9]);
        assert!(at("one").is_empty());
    }
}
