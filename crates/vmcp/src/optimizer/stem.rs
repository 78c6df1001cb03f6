//! The stem of an English word, by the algorithm of Martin Porter ("An algorithm for suffix stripping", 1980) with the two later rules of
//! his reference program (`bli`, `logi`). Words that are not lower-case ASCII letters have no other stem than themselves.

use std::borrow::Cow;

/// The longest word that has a stem of its own: nothing longer is a word of a language.
const LONGEST: usize = 64;

/// A suffix, and what stands in its place.
type Rule = (&'static str, &'static str);

/// The rules of step 2, of two that fit the longer one first. They hold for stems of a measure of 1 and more.
const STEP_2: [Rule; 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
];
/// The same for step 3.
const STEP_3: [Rule; 7] =
    [("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")];
/// The suffixes that step 4 removes from stems of a measure of 2 and more. `ion` goes only behind `s` or `t`.
const STEP_4: [&str; 19] = [
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ion", "ism", "ate", "iti", "ous", "ive", "ize",
    "al", "er", "ic", "ou",
];

/// The stem of a word in lower case.
pub(super) fn stem(word: &str) -> Cow<'_, str> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_lowercase());
    if !is_plain || word.len() <= 2 || word.len() > LONGEST {
        return Cow::Borrowed(word);
    }
    let mut word = word.to_owned();
    plurals(&mut word);
    past(&mut word);
    if let Some(stem) = word.strip_suffix('y').filter(|stem| has_vowel(stem)) {
        word = format!("{stem}i");
    }
    replace(&mut word, &STEP_2);
    replace(&mut word, &STEP_3);
    remove(&mut word);
    final_e(&mut word);
    Cow::Owned(word)
}

/// Step 1a.
fn plurals(word: &mut String) {
    if word.ends_with("sses") || word.ends_with("ies") {
        word.truncate(word.len() - 2);
    } else if word.ends_with('s') && !word.ends_with("ss") {
        word.truncate(word.len() - 1);
    }
}

/// Step 1b.
fn past(word: &mut String) {
    if let Some(stem) = word.strip_suffix("eed") {
        if measure(stem) > 0 {
            word.truncate(word.len() - 1);
        }
        return;
    }
    let stem = word.strip_suffix("ed").or_else(|| word.strip_suffix("ing")).filter(|stem| has_vowel(stem));
    let Some(length) = stem.map(str::len) else { return };
    word.truncate(length);
    if ["at", "bl", "iz"].iter().any(|end| word.ends_with(end)) {
        word.push('e');
    } else if ends_in_double_consonant(word) && !word.ends_with(['l', 's', 'z']) {
        word.truncate(word.len() - 1);
    } else if measure(word) == 1 && ends_short(word) {
        word.push('e');
    }
}

/// Steps 2 and 3: the first rule that fits, if the stem before it is long enough.
fn replace(word: &mut String, rules: &[Rule]) {
    let found = rules.iter().find_map(|(suffix, with)| Some((word.strip_suffix(suffix)?.len(), *with)));
    let Some((length, with)) = found else { return };
    if word.get(..length).is_some_and(|stem| measure(stem) > 0) {
        word.truncate(length);
        word.push_str(with);
    }
}

/// Step 4.
fn remove(word: &mut String) {
    let found = STEP_4.iter().find_map(|suffix| Some((*suffix, word.strip_suffix(suffix)?)));
    let Some((suffix, stem)) = found else { return };
    if measure(stem) > 1 && (suffix != "ion" || stem.ends_with(['s', 't'])) {
        let length = stem.len();
        word.truncate(length);
    }
}

/// Step 5.
fn final_e(word: &mut String) {
    if let Some(stem) = word.strip_suffix('e') {
        let measure = measure(stem);
        if measure > 1 || measure == 1 && !ends_short(stem) {
            word.truncate(word.len() - 1);
        }
    }
    if word.ends_with("ll") && measure(word) > 1 {
        word.truncate(word.len() - 1);
    }
}

/// Whether each letter is a consonant: `y` is one at the start and behind a vowel.
fn consonants(stem: &str) -> impl Iterator<Item = bool> {
    stem.bytes().scan(false, |before, letter| {
        *before = match letter {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            b'y' => !*before,
            _ => true,
        };
        Some(*before)
    })
}

/// How many times a consonant follows a vowel.
fn measure(stem: &str) -> usize {
    let mut was_consonant = true;
    let follows = consonants(stem).filter(|is_consonant| {
        let was_consonant = std::mem::replace(&mut was_consonant, *is_consonant);
        *is_consonant && !was_consonant
    });
    follows.count()
}

fn has_vowel(stem: &str) -> bool {
    consonants(stem).any(|is_consonant| !is_consonant)
}

fn ends_in_double_consonant(stem: &str) -> bool {
    let mut letters = stem.bytes().rev();
    let is_double = letters.next().is_some_and(|last| letters.next() == Some(last));
    is_double && consonants(stem).last() == Some(true)
}

/// Whether it ends with consonant, vowel, consonant, and the last one is none of `w`, `x` and `y`.
fn ends_short(stem: &str) -> bool {
    let kinds: Vec<bool> = consonants(stem).collect();
    kinds.ends_with(&[true, false, true]) && !stem.ends_with(['w', 'x', 'y'])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the paper, through all steps.
    #[test]
    fn the_examples_of_the_paper_have_their_stems() {
        let examples = "caresses caress ponies poni ties ti caress caress cats cat feed feed agreed agre plastered plaster bled bled \
            motoring motor sing sing conflated conflat troubled troubl sized size hopping hop tanned tan falling fall hissing hiss \
            fizzed fizz failing fail filing file happy happi sky sky relational relat conditional condit rational ration \
            valenci valenc hesitanci hesit digitizer digit conformabli conform radicalli radic differentli differ vileli vile \
            analogousli analog vietnamization vietnam predication predic operator oper feudalism feudal decisiveness decis \
            hopefulness hope callousness callous formaliti formal sensitiviti sensit sensibiliti sensibl triplicate triplic \
            formative form formalize formal electriciti electr electrical electr hopeful hope goodness good revival reviv \
            allowance allow inference infer airliner airlin gyroscopic gyroscop adjustable adjust defensible defens \
            irritant irrit replacement replac adjustment adjust dependent depend adoption adopt homologou homolog \
            communism commun activate activ angulariti angular homologous homolog effective effect bowdlerize bowdler \
            probate probat rate rate cease ceas controll control roll roll generalizations gener oscillators oscil";
        let words: Vec<&str> = examples.split_whitespace().collect();
        for pair in words.chunks(2) {
            assert_eq!(stem(pair[0]), pair[1], "{}", pair[0]);
        }
    }

    /// Some of the reference program's vocabulary, whose letters the rules treat in other ways than the examples do.
    #[test]
    fn words_of_the_vocabulary_have_their_stems() {
        for (word, expected) in [
            ("abandoned", "abandon"),
            ("abilities", "abil"),
            ("apology", "apolog"),
            ("archeology", "archeolog"),
            ("by", "by"),
            ("crying", "cry"),
            ("dying", "dy"),
            ("employment", "employ"),
            ("enjoyed", "enjoi"),
            ("knightly", "knightli"),
            ("possibly", "possibl"),
            ("queries", "queri"),
            ("repositories", "repositori"),
            ("repository", "repositori"),
            ("yes", "ye"),
        ] {
            assert_eq!(stem(word), expected, "{word}");
        }
    }

    #[test]
    fn the_measure_counts_as_the_paper_says() {
        for (words, expected) in
            [("tr ee tree y by", 0), ("trouble oats trees ivy", 1), ("troubles private oaten orrery", 2)]
        {
            for word in words.split(' ') {
                assert_eq!(measure(word), expected, "{word}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_word_grows_or_fails(word in "\\PC{0,80}") {
            let stemmed = stem(&word);
            // A rule for `-ed` and `-ing` may add an `e` in the place of what it removes.
            proptest::prop_assert!(stemmed.len() <= word.len());
            if !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
                proptest::prop_assert_eq!(&*stemmed, &word);
            }
        }

        #[test]
        fn a_plural_has_the_stem_of_its_singular(word in "[a-z]{2,20}[bdgkmnprt]") {
            let plural = format!("{word}s");
            proptest::prop_assert_eq!(stem(&plural), stem(&word));
        }
    }
}
