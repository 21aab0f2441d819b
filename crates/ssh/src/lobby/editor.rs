//! A line that is typed: keys in, what to write to the terminal out.

/// What was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Letter(char),
    Enter,
    Tab,
    Backspace,
    Delete,
    Left,
    Right,
    Up,
    Down,
    Home,
    End,
    /// To the end of the line.
    Kill,
    /// To the beginning of the line.
    KillBack,
    /// To the beginning of the word.
    KillWord,
    Redraw,
    /// Ctrl-C: forget the line.
    Cancel,
    /// Ctrl-D: leave if the line is empty, delete otherwise.
    Leave,
}

/// Makes keys of bytes, which may come in pieces.
#[derive(Debug, Default)]
pub(super) struct Keys {
    waiting: Vec<u8>,
}

impl Keys {
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.waiting.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut at = 0;
        while let Some(rest) = self.waiting.get(at..).filter(|rest| !rest.is_empty()) {
            let Some((key, length)) = key(rest) else { break };
            keys.extend(key);
            at += length;
        }
        self.waiting.drain(..at);
        keys
    }
}

/// The first key and how many bytes it has; nothing if it is not whole yet.
fn key(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let key = match *bytes.first()? {
        b'\r' | b'\n' => Key::Enter,
        b'\t' => Key::Tab,
        0x7f | 8 => Key::Backspace,
        1 => Key::Home,
        2 => Key::Left,
        3 => Key::Cancel,
        4 => Key::Leave,
        5 => Key::End,
        6 => Key::Right,
        11 => Key::Kill,
        12 => Key::Redraw,
        14 => Key::Down,
        16 => Key::Up,
        21 => Key::KillBack,
        23 => Key::KillWord,
        0x1b => return sequence(bytes),
        control if control < b' ' => return Some((None, 1)),
        first => {
            let length = match first {
                0..0x80 => 1,
                0xc0..0xe0 => 2,
                0xe0..0xf0 => 3,
                0xf0.. => 4,
                _ => return Some((None, 1)),
            };
            let letter = std::str::from_utf8(bytes.get(..length)?).ok().and_then(|text| text.chars().next());
            return Some((letter.map(Key::Letter), length));
        }
    };
    Some((Some(key), 1))
}

/// What arrows and their neighbours send.
fn sequence(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    if !matches!(bytes.get(1)?, b'[' | b'O') {
        return Some((None, 2));
    }
    let end = bytes.iter().skip(2).position(|byte| (b'@'..=b'~').contains(byte))? + 2;
    let key = match bytes.get(2..=end)? {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"C" => Some(Key::Right),
        b"D" => Some(Key::Left),
        b"H" | b"1~" | b"7~" => Some(Key::Home),
        b"F" | b"4~" | b"8~" => Some(Key::End),
        b"3~" => Some(Key::Delete),
        _ => None,
    };
    Some((key, end + 1))
}

/// Lines that can be had again.
const HISTORY: usize = 200;

/// The line, and those before it.
#[derive(Debug)]
pub(super) struct Editor {
    prompt: &'static str,
    letters: Vec<char>,
    /// Where the next letter goes.
    at: usize,
    history: Vec<String>,
    /// Which line of the history is shown; its length for the one that is typed.
    shown: usize,
    /// What was typed before an older line was shown.
    set_aside: Vec<char>,
}

impl Editor {
    pub(super) fn new(prompt: &'static str) -> Self {
        Self { prompt, letters: Vec::new(), at: 0, history: Vec::new(), shown: 0, set_aside: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// The line as it stands, in place of what the terminal shows.
    pub(super) fn draw(&self) -> String {
        let line: String = self.letters.iter().collect();
        let back = self.letters.len() - self.at;
        let back = if back == 0 { String::new() } else { format!("\x1b[{back}D") };
        format!("\r{}{line}\x1b[K{back}", self.prompt)
    }

    /// Takes a key and returns what to write.
    pub(super) fn press(&mut self, key: Key) -> String {
        match key {
            Key::Letter(letter) => {
                self.letters.insert(self.at, letter);
                self.at += 1;
            }
            Key::Backspace if self.at > 0 => {
                self.at -= 1;
                self.letters.remove(self.at);
            }
            Key::Delete | Key::Leave if self.at < self.letters.len() => drop(self.letters.remove(self.at)),
            Key::Left => self.at = self.at.saturating_sub(1),
            Key::Right => self.at = (self.at + 1).min(self.letters.len()),
            Key::Home => self.at = 0,
            Key::End => self.at = self.letters.len(),
            Key::Kill => self.letters.truncate(self.at),
            Key::KillBack => drop(self.letters.drain(..std::mem::take(&mut self.at))),
            Key::KillWord => {
                let before = &self.letters[..self.at];
                let word_end = before.iter().rposition(|letter| *letter != ' ').map_or(0, |place| place + 1);
                let word = before[..word_end].iter().rposition(|letter| *letter == ' ').map_or(0, |place| place + 1);
                self.letters.drain(word..self.at);
                self.at = word;
            }
            Key::Up if self.shown > 0 => self.show(self.shown - 1),
            Key::Down if self.shown < self.history.len() => self.show(self.shown + 1),
            Key::Cancel => {
                (self.letters, self.at, self.shown) = (Vec::new(), 0, self.history.len());
                return format!("^C\r\n{}", self.draw());
            }
            Key::Redraw => return format!("\x1b[H\x1b[2J{}", self.draw()),
            _ => return String::new(),
        }
        self.draw()
    }

    fn show(&mut self, place: usize) {
        if self.shown == self.history.len() {
            self.set_aside = std::mem::take(&mut self.letters);
        }
        self.letters = match self.history.get(place) {
            Some(line) => line.chars().collect(),
            None => std::mem::take(&mut self.set_aside),
        };
        (self.shown, self.at) = (place, self.letters.len());
    }

    /// The line is done.
    pub(super) fn enter(&mut self) -> String {
        let line: String = std::mem::take(&mut self.letters).into_iter().collect();
        if !line.trim().is_empty() && self.history.last() != Some(&line) {
            self.history.push(line.clone());
            if self.history.len() > HISTORY {
                self.history.remove(0);
            }
        }
        (self.at, self.shown) = (0, self.history.len());
        line
    }

    /// Completes the word before the cursor; returns the choices if there are several that begin alike.
    pub(super) fn complete(&mut self, choices: impl FnOnce(&[&str], &str) -> Vec<String>) -> Option<Vec<String>> {
        let before: String = self.letters[..self.at].iter().collect();
        let start = before.rfind(' ').map_or(0, |place| place + 1);
        let (done, word) = before.split_at(start);
        let done: Vec<&str> = done.split_ascii_whitespace().collect();
        let found = choices(&done, word);
        let common = common_start(&found)?;
        let more: Vec<char> = common.strip_prefix(word)?.chars().collect();
        let whole = found.len() == 1;
        let grown = !more.is_empty();
        for letter in more.into_iter().chain(whole.then_some(' ')) {
            self.letters.insert(self.at, letter);
            self.at += 1;
        }
        (!whole && !grown).then_some(found)
    }
}

fn common_start(words: &[String]) -> Option<String> {
    let mut words = words.iter();
    let first = words.next()?.clone();
    Some(words.fold(first, |common, word| {
        common.chars().zip(word.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn typed(editor: &mut Editor, bytes: &[u8]) -> String {
        for key in Keys::default().read(bytes) {
            editor.press(key);
        }
        editor.letters.iter().collect()
    }

    #[test]
    fn a_line_is_edited_where_the_cursor_is() {
        let mut editor = Editor::new("> ");
        assert_eq!(typed(&mut editor, b"fork wb\x1b[De"), "fork web");
        assert_eq!(typed(&mut editor, b"\x01X\x05Y"), "Xfork webY");
        assert_eq!(typed(&mut editor, b"\x7f\x17"), "Xfork ");
        assert_eq!(typed(&mut editor, b"\x15"), "");
        assert_eq!(typed(&mut editor, "h\u{e9}\x02\x02\x0b".as_bytes()), "");
        assert_eq!(editor.draw(), "\r> \x1b[K");
    }

    #[test]
    fn older_lines_come_back_and_go_again() {
        let mut editor = Editor::new("> ");
        for line in ["ls", "why web"] {
            typed(&mut editor, line.as_bytes());
            assert_eq!(editor.enter(), line);
        }
        assert_eq!(typed(&mut editor, b"half\x1b[A"), "why web");
        assert_eq!(typed(&mut editor, b"\x1b[A\x1b[A"), "ls");
        assert_eq!(typed(&mut editor, b"\x1b[B\x1b[B"), "half");
    }

    #[test]
    fn words_are_completed_as_far_as_they_are_sure() {
        let names = |_: &[&str], word: &str| {
            ["web", "worker-1", "worker-2"]
                .iter()
                .filter(|name| name.starts_with(word))
                .map(|n| (*n).to_owned())
                .collect()
        };
        let mut editor = Editor::new("> ");
        typed(&mut editor, b"why wo");
        assert_eq!(editor.complete(names), None);
        assert_eq!(editor.letters.iter().collect::<String>(), "why worker-");
        assert_eq!(editor.complete(names).unwrap().len(), 2);
        typed(&mut editor, b"2");
        assert_eq!(editor.complete(names), None);
        assert_eq!(editor.letters.iter().collect::<String>(), "why worker-2 ");
        typed(&mut editor, b"x");
        assert_eq!(editor.complete(names), None);
    }

    proptest! {
        #[test]
        fn no_key_breaks_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut editor, mut keys) = (Editor::new("> "), Keys::default());
            for piece in bytes.chunks(3) {
                for key in keys.read(piece) {
                    if key == Key::Enter { editor.enter(); } else { editor.press(key); }
                    prop_assert!(editor.at <= editor.letters.len());
                }
            }
        }
    }
}
