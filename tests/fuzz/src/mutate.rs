//! Makes inputs from seeds.

/// Bytes on which parsers branch.
const SPECIAL: &[&str] = &[
    "\0",
    "\n",
    "\"",
    "\\",
    "/",
    "//",
    ".",
    "..",
    "*",
    "**",
    "?",
    "[",
    "]",
    "{",
    "}",
    "!",
    ":",
    "@",
    "#",
    "%2e",
    "%00",
    "$",
    "$workspace",
    "~",
    " ",
    "\t",
    "\r\n",
    "\u{202e}",
    "\u{feff}",
    "é",
    "\u{ff0e}",
    "xn--",
    "-",
    "_",
    "=",
    ",",
    "0",
    "1",
    "-1",
    "255",
    "256",
    "65535",
    "65536",
    "4294967296",
    "18446744073709551616",
    "1e999",
    "::",
    "::1",
    "0x7f",
    "null",
];

/// A deterministic source of inputs.
#[derive(Debug)]
pub(crate) struct Mutator {
    seeds: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    most: usize,
    state: u64,
}

impl Mutator {
    pub(crate) fn new(mut seeds: Vec<Vec<u8>>, most: usize, seed: u64) -> Self {
        if seeds.is_empty() {
            seeds.push(Vec::new());
        }
        let part = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_' && *byte != b'-';
        let mut words: Vec<Vec<u8>> = seeds
            .iter()
            .flat_map(|seed| seed.split(part))
            .filter(|word| (2..40).contains(&word.len()))
            .map(<[u8]>::to_vec)
            .collect();
        words.sort();
        words.dedup();
        words.extend(SPECIAL.iter().map(|text| text.as_bytes().to_vec()));
        Self { seeds, words, most, state: seed | 1 }
    }

    /// A number below `most` (xorshift; the bias is negligible because `most` is small).
    fn below(&mut self, most: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state % most.max(1) as u64).unwrap_or(0)
    }

    fn seed(&mut self) -> Vec<u8> {
        let n = self.below(self.seeds.len());
        self.seeds[n].clone()
    }

    /// A range of `of`.
    fn part(&mut self, of: usize) -> (usize, usize) {
        let from = self.below(of + 1);
        let most = if self.below(4) == 0 { of - from } else { (of - from).min(16) };
        (from, from + self.below(most + 1))
    }

    /// The next input.
    pub(crate) fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.seed();
        for _ in 0..=self.below(5) {
            self.mutate(&mut input);
            input.truncate(self.most);
        }
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let (from, to) = self.part(input.len());
        match self.below(8) {
            0 => drop(input.drain(from..to)),
            // In most cases a word overwrites bytes, which keeps lengths unchanged.
            1 if to > from => {
                let bit = 1u8 << self.below(8);
                input[from] ^= bit;
            }
            2 if to > from => {
                let special = [0, 1, 0x7f, 0x80, 0xff, b'0', b'a', b' '];
                input[from] = special[self.below(special.len())];
            }
            3 => {
                let part = input[from..to].to_vec();
                let times = if self.below(20) == 0 { 2000 } else { 1 + self.below(4) };
                let repeated: Vec<u8> = part.iter().copied().cycle().take(part.len() * times).collect();
                input.splice(from..from, repeated.into_iter().take(self.most));
            }
            4 => {
                let other = self.seed();
                let (first, last) = self.part(other.len());
                input.splice(from..to, other[first..last].iter().copied());
            }
            5 => {
                let other = self.seed();
                let (first, _) = self.part(other.len());
                input.truncate(from);
                input.extend_from_slice(&other[first..]);
            }
            _ => {
                let n = self.below(self.words.len());
                let word = self.words[n].clone();
                let end = if self.below(2) == 0 { from } else { to };
                input.splice(from..end, word);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_makes_the_same_inputs_within_the_bound() {
        let make = |seed| {
            let mut mutator = Mutator::new(vec![b"one two".to_vec(), b"{\"a\":1}".to_vec()], 100, seed);
            (0..2000).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        let (a, b) = (make(1), make(1));
        assert_eq!(a, b);
        assert_ne!(a, make(3));
        assert!(a.iter().all(|input| input.len() <= 100));
        let different: std::collections::BTreeSet<_> = a.iter().collect();
        assert!(different.len() > 1000, "{}", different.len());
    }
}
