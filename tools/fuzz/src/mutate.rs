//! Ways to damage an input.

/// A small generator of numbers: the same seed, the same numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (SplitMix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; nothing but zero is below one.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.number() % limit).unwrap_or(0)
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..start + self.below(length - start + 1)
    }
}

/// Numbers at which readers go wrong.
const NUMBERS: [u64; 14] = [
    0,
    1,
    7,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];
/// The same for those who write numbers as text, and what else breaks texts.
const TEXTS: [&str; 18] = [
    "-1",
    "0",
    "00000000000000000001",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "4294967296",
    "1e999",
    "0x10",
    "\0",
    "\r\n",
    "\r\n\r\n",
    "../../",
    "%00",
    "\"",
    "{",
    "\u{fffd}",
    "ÿ",
];
/// An input grows no further.
const LONGEST: usize = 1 << 17;
/// How many damages one input has at most.
const MOST_DAMAGES: usize = 6;

/// Makes bad inputs of good ones.
#[derive(Debug)]
pub struct Mutator {
    corpus: Vec<Vec<u8>>,
    random: Random,
}

impl Mutator {
    /// A mutator of these inputs.
    pub fn new(corpus: Vec<Vec<u8>>, seed: u64) -> Self {
        Self { corpus, random: Random::new(seed) }
    }

    /// The next bad input; now and then it is a good one after all.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.random.one_of(&self.corpus).cloned().unwrap_or_default();
        for _ in 0..=self.random.below(MOST_DAMAGES) {
            self.damage(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn damage(&mut self, input: &mut Vec<u8>) {
        let random = &mut self.random;
        let at = random.below(input.len());
        match random.below(11) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = random.number().to_le_bytes()[0];
                }
            }
            2 => self.put_number(input, at),
            3 => input.truncate(at),
            4 => {
                let range = random.range(input.len());
                input.drain(range);
            }
            5 => {
                let piece = input[random.range(input.len())].to_vec();
                input.splice(at..at, piece);
            }
            6 => {
                let byte = random.number().to_le_bytes()[0];
                let length = 1 << random.below(15);
                input.splice(at..at, std::iter::repeat_n(byte, length));
            }
            7 => self.splice(input, at),
            8 => self.put_text_over_digits(input),
            9 => {
                let text = random.one_of(&TEXTS).copied().unwrap_or_default();
                input.splice(at..at, text.bytes());
            }
            _ => {
                let piece = input[random.range(input.len().min(64))].to_vec();
                let times = random.below(256);
                input.splice(at..at, piece.repeat(times));
            }
        }
        input.truncate(LONGEST);
    }

    /// Writes a number over bytes, in one of the ways that numbers are written in.
    fn put_number(&mut self, input: &mut [u8], at: usize) {
        let random = &mut self.random;
        let number = random.one_of(&NUMBERS).copied().unwrap_or_default();
        let width = 1 << random.below(4);
        let mut bytes = number.to_le_bytes();
        let bytes = &mut bytes[..width];
        if random.below(2) == 0 {
            bytes.reverse();
        }
        for (place, byte) in input.iter_mut().skip(at).zip(bytes) {
            *place = *byte;
        }
    }

    /// Goes on as another input does.
    fn splice(&mut self, input: &mut Vec<u8>, at: usize) {
        let Some(other) = self.random.one_of(&self.corpus).cloned() else { return };
        let from = self.random.below(other.len());
        input.truncate(at);
        input.extend_from_slice(other.get(from..).unwrap_or_default());
    }

    /// Puts something else in the place of a number that is written as text.
    fn put_text_over_digits(&mut self, input: &mut Vec<u8>) {
        let from = self.random.below(input.len());
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let Some(start) = input.iter().skip(from).position(is_digit).map(|offset| from + offset) else { return };
        let end = input[start..].iter().position(|byte| !is_digit(byte)).map_or(input.len(), |length| start + length);
        let text = self.random.one_of(&TEXTS).copied().unwrap_or_default();
        input.splice(start..end, text.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_inputs_and_they_are_bounded() {
        let inputs = |seed| {
            let mut mutator = Mutator::new(vec![b"length 12 of {\"a\": [1, 2]}".to_vec(), Vec::new()], seed);
            (0..2000).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        let first = inputs(1);
        assert_eq!(first, inputs(1));
        assert_ne!(first, inputs(2));
        assert!(first.iter().all(|input| input.len() <= LONGEST));
    }
}
