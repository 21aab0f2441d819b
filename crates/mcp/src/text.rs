//! Output in the size of a model's attention: tails, pieces, and where they end.

/// The last bytes of something longer.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    most: usize,
    seen: u64,
}

impl Tail {
    pub(crate) fn of(most: usize) -> Self {
        Self { bytes: Vec::new(), most, seen: 0 }
    }

    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.seen += piece.len() as u64;
        self.bytes.extend_from_slice(piece);
        // Not for every byte: what is cut off is moved.
        if self.bytes.len() > 2 * self.most {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let over = self.bytes.len().saturating_sub(self.most);
        self.bytes.drain(..over);
    }

    /// How much there was in all.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// How much of it is no longer here.
    pub(crate) fn lost(&mut self) -> u64 {
        self.cut();
        self.seen - self.bytes.len() as u64
    }

    /// What is here, from the beginning of a character on.
    pub(crate) fn text(&mut self) -> String {
        self.cut();
        let inside = if self.seen > self.bytes.len() as u64 { continuation(&self.bytes) } else { 0 };
        String::from_utf8_lossy(&self.bytes[inside..]).into_owned()
    }

    /// The last line that has something in it.
    pub(crate) fn last_line(&mut self) -> String {
        const LONGEST: usize = 200;
        let text = self.text();
        let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
        line.chars().take(LONGEST).collect()
    }
}

/// How many bytes at the front belong to a character whose beginning is missing.
fn continuation(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count()
}

/// How many of the bytes are whole characters; the rest is the beginning of one.
pub(crate) fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_the_end_and_knows_how_much_is_missing() {
        let mut tail = Tail::of(4);
        for piece in ["ab", "cdef", "ghijklmn", "o"] {
            tail.push(piece.as_bytes());
        }
        assert_eq!((tail.text().as_str(), tail.lost(), tail.seen()), ("lmno", 11, 15));
        let mut short = Tail::of(10);
        short.push("one\ntwo\n\n".as_bytes());
        assert_eq!((short.text().as_str(), short.lost(), short.last_line().as_str()), ("one\ntwo\n\n", 0, "two"));
    }

    #[test]
    fn characters_are_not_cut_in_two() {
        let mut tail = Tail::of(3);
        tail.push("aäb€".as_bytes());
        assert_eq!(tail.text(), "€");
        tail.push("x".as_bytes());
        assert_eq!(tail.text(), "x");
        let euro = "a€".as_bytes();
        assert_eq!((whole_characters(euro), whole_characters(&euro[..3]), whole_characters(&euro[..1])), (4, 1, 1));
        // What is no text at all is not held back for ever.
        assert_eq!(whole_characters(&[0xff, 0xfe]), 2);
    }
}
