//! Inputs from seeds: some bytes replaced, pieces repeated (which nests), dropped and mixed.

/// The maximum length of an input. The limits on size are tested elsewhere; here depth and shape matter.
const LONGEST: usize = 16 * 1024;
/// Tokens that matter to parsers of nested languages.
const WORDS: &[&[u8]] = &[
    b"(",
    b")",
    b"[",
    b"]",
    b"{",
    b"}",
    b"\"",
    b"\\",
    b"'",
    b"`",
    b"//",
    b"/*",
    b"\n",
    b"\r\n",
    b"\0",
    b",",
    b";",
    b":",
    b"::",
    b".",
    b"!",
    b"-",
    b"=",
    b"==",
    b"&&",
    b"||",
    b"if ",
    b" then ",
    b" else ",
    b" is A in B::\"b\"",
    b" has a.b",
    b" like ",
    b" in ",
    b".a",
    b"[\"a\"]",
    b"permit(principal,action,resource)",
    b" when {",
    b"{{",
    b"}}",
    b"{{if .a}}",
    b"{{end}}",
    b"- ",
    b"a: ",
    b"&a ",
    b"*a",
    b"\xff",
    b"\xef\xbb\xbf",
    b"null",
    b"1e400",
    b"\\ud800",
];

/// Makes inputs, always the same ones from the same seed.
#[derive(Debug)]
pub(crate) struct Mutator {
    state: u64,
    seeds: &'static [&'static [u8]],
}

// === impl Mutator ===

impl Mutator {
    pub(crate) fn new(seed: u64, seeds: &'static [&'static [u8]]) -> Self {
        Self { state: seed | 1, seeds }
    }

    pub(crate) fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.pick(self.seeds).to_vec();
        for _ in 0..=self.below(6) {
            self.mutate(&mut input);
            input.truncate(LONGEST);
        }
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let (start, end) = self.range(input.len());
        match self.below(6) {
            0 => {
                let word = self.pick(WORDS).to_vec();
                input.splice(start..start, word);
            }
            1 => {
                let word = self.pick(WORDS).repeat(self.below(200));
                input.splice(start..start, word);
            }
            2 => {
                let piece = input.get(start..end).unwrap_or_default().repeat(self.below(40));
                input.splice(start..start, piece);
            }
            3 => drop(input.drain(start..end)),
            4 => {
                let byte = u8::try_from(self.below(256)).unwrap_or_default();
                input.get_mut(start).into_iter().for_each(|at| *at = byte);
            }
            _ => {
                let other = self.pick(self.seeds);
                let (from, to) = self.range(other.len());
                input.splice(start..end, other.get(from..to).unwrap_or_default().iter().copied());
            }
        }
    }

    /// Two places in a text of this length, the first not behind the second.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let (one, other) = (self.below(length + 1), self.below(length + 1));
        (one.min(other), one.max(other))
    }

    fn pick(&mut self, from: &[&'static [u8]]) -> &'static [u8] {
        let at = self.below(from.len());
        from.get(at).copied().unwrap_or_default()
    }

    /// A number below `most`; 0 if there is none.
    fn below(&mut self, most: usize) -> usize {
        // xorshift64: good enough to choose, and no dependency.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let number = usize::try_from(self.state >> 16).unwrap_or_default();
        number.checked_rem(most).unwrap_or_default()
    }
}
