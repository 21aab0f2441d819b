//! The little of the DNS format that a forwarder must know.

/// The most a UDP datagram or a TCP frame can carry.
pub(super) const MAX_MESSAGE: usize = 65_535;

const HEADER: usize = 12;
const IS_ANSWER: u8 = 0x80;
const RECURSION_AVAILABLE: u8 = 0x80;
const SERVER_FAILURE: u8 = 2;

/// Whether this can be a question.
pub(super) fn is_query(message: &[u8]) -> bool {
    message.len() >= HEADER && message[2] & IS_ANSWER == 0
}

/// Whether `message` answers `query`: the same number and, where it is repeated, the same question.
pub(super) fn answers(message: &[u8], query: &[u8]) -> bool {
    if message.len() < HEADER || message[..2] != query[..2] || message[2] & IS_ANSWER == 0 {
        return false;
    }
    let repeated = u16::from_be_bytes([message[4], message[5]]) > 0;
    let Some(end) = question_end(query).filter(|_| repeated) else {
        return true;
    };
    message.get(HEADER..end).is_some_and(|question| question.eq_ignore_ascii_case(&query[HEADER..end]))
}

/// The answer when nobody could be asked.
pub(super) fn server_failure(query: &[u8]) -> Vec<u8> {
    let end = question_end(query);
    let mut answer = query[..end.unwrap_or(HEADER)].to_vec();
    answer[2] |= IS_ANSWER;
    answer[3] = RECURSION_AVAILABLE | SERVER_FAILURE;
    answer[4..HEADER].fill(0);
    answer[5] = u8::from(end.is_some());
    answer
}

/// Where the only question ends; `None` if there is not exactly one or it is malformed.
fn question_end(query: &[u8]) -> Option<usize> {
    if query.get(4..6)? != [0, 1] {
        return None;
    }
    let mut at = HEADER;
    loop {
        match *query.get(at)? {
            0 => break,
            length @ 1..=63 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
    // The root label, then type and class.
    let end = at + 1 + 4;
    (end <= query.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &[u8] = b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\x01\x01a\x02bc\0\0\x01\0\x01\0\0\x29\x10";

    #[test]
    fn a_failure_repeats_number_and_question() {
        let answer = server_failure(QUERY);
        assert_eq!(answer, b"\x12\x34\x81\x82\0\x01\0\0\0\0\0\0\x01a\x02bc\0\0\x01\0\x01");
        assert!(answers(&answer, QUERY));
        assert!(!is_query(&answer));
    }

    #[test]
    fn a_malformed_question_gets_a_bare_failure() {
        let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x3fabc";
        assert_eq!(server_failure(query), b"\0\x01\x81\x82\0\0\0\0\0\0\0\0");
        assert!(is_query(query));
        assert!(!is_query(b"short"));
    }

    #[test]
    fn answers_to_something_else_are_told_apart() {
        let good = server_failure(QUERY);
        let mut number = good.clone();
        number[0] ^= 1;
        assert!(!answers(&number, QUERY));
        let mut question = good.clone();
        question[13] = b'x';
        assert!(!answers(&question, QUERY));
        let mut case = good.clone();
        case[13] = b'A';
        assert!(answers(&case, QUERY));
        assert!(!answers(&good[..8], QUERY));
        assert!(!answers(QUERY, QUERY));
    }
}
