//! The little of the DNS format that a forwarder must know.

use std::ops::RangeInclusive;

/// The most a UDP datagram or a TCP frame can carry.
pub(super) const MAX_MESSAGE: usize = 65_535;

const HEADER: usize = 12;
const IS_ANSWER: u8 = 0x80;
/// Of the third byte: the kind of request and whether recursion is wanted.
const ECHOED: u8 = 0x79;
const OPCODE: u8 = 0x78;
const RECURSION_AVAILABLE: u8 = 0x80;
const LONGEST_NAME: usize = 255;
const CLASS_INTERNET: u16 = 1;
const TYPE_OPT: u16 = 41;
/// These types name no records but things to do: transfers, signatures, everything at once.
const META_TYPES: RangeInclusive<u16> = 128..=255;

/// The reason of an answer without records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Malformed = 1,
    /// No resolver could be asked.
    Server = 2,
    NotImplemented = 4,
    Refused = 5,
}

/// What the forwarder does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A resolver is asked.
    Ask,
    /// The client gets this answer, and no resolver sees the message.
    Fail(Failure),
    /// The message is dropped: an answer to it could be answered in turn.
    Drop,
}

/// Decides about a message: only one ordinary question about internet names goes on to a resolver, which may trust the
/// host with more than that.
pub(super) fn judge(message: &[u8]) -> Verdict {
    if message.len() < HEADER || message[2] & IS_ANSWER != 0 {
        return Verdict::Drop;
    }
    if message[2] & OPCODE != 0 {
        return Verdict::Fail(Failure::NotImplemented);
    }
    // Records of answer and authority belong to no question but that for a transfer.
    let Some(end) = question_end(message).filter(|_| message[6..10] == [0; 4]) else {
        return Verdict::Fail(Failure::Malformed);
    };
    let [kind, class] = [4, 2].map(|back| u16::from_be_bytes([message[end - back], message[end - back + 1]]));
    if class != CLASS_INTERNET || kind == TYPE_OPT || META_TYPES.contains(&kind) {
        return Verdict::Fail(Failure::Refused);
    }
    Verdict::Ask
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

/// An answer without records to a message that was not dropped.
pub(super) fn failure(query: &[u8], why: Failure) -> Vec<u8> {
    let end = question_end(query);
    let mut answer = query[..end.unwrap_or(HEADER)].to_vec();
    answer[2] = answer[2] & ECHOED | IS_ANSWER;
    answer[3] = RECURSION_AVAILABLE | why as u8;
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
    (end <= query.len() && at + 1 - HEADER <= LONGEST_NAME).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &[u8] = b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\x01\x01a\x02bc\0\0\x01\0\x01\0\0\x29\x10";

    fn question(kind: u16, class: u16) -> Vec<u8> {
        let mut query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x02bc\0".to_vec();
        query.extend(kind.to_be_bytes());
        query.extend(class.to_be_bytes());
        query
    }

    #[test]
    fn failure_repeats_number_and_question() {
        let answer = failure(QUERY, Failure::Server);
        assert_eq!(answer, b"\x12\x34\x81\x82\0\x01\0\0\0\0\0\0\x01a\x02bc\0\0\x01\0\x01");
        assert!(answers(&answer, QUERY));
        assert_eq!(judge(&answer), Verdict::Drop);
    }

    #[test]
    fn malformed_question_gets_a_bare_failure() {
        let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x3fabc";
        assert_eq!(judge(query), Verdict::Fail(Failure::Malformed));
        assert_eq!(failure(query, Failure::Malformed), b"\0\x01\x81\x81\0\0\0\0\0\0\0\0");
        assert_eq!(judge(b"short"), Verdict::Drop);
    }

    #[test]
    fn ordinary_questions_are_asked() {
        assert_eq!(judge(QUERY), Verdict::Ask);
        // A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV, DNSKEY, HTTPS, URI, CAA.
        for kind in [1, 2, 5, 6, 12, 15, 16, 28, 33, 48, 65, 256, 257] {
            assert_eq!(judge(&question(kind, 1)), Verdict::Ask, "type {kind}");
        }
    }

    #[test]
    fn transfers_and_other_meta_types_are_refused() {
        // OPT, TKEY, TSIG, IXFR, AXFR, MAILB, MAILA, ANY.
        for kind in [41, 128, 249, 250, 251, 252, 253, 254, 255] {
            assert_eq!(judge(&question(kind, 1)), Verdict::Fail(Failure::Refused), "type {kind}");
        }
    }

    #[test]
    fn other_classes_are_refused() {
        // CHAOS (`version.bind`), HESIOD, NONE, ANY, and none at all.
        for class in [3, 4, 254, 255, 0] {
            assert_eq!(judge(&question(16, class)), Verdict::Fail(Failure::Refused), "class {class}");
        }
    }

    #[test]
    fn updates_notifications_and_other_requests_are_not_implemented() {
        // IQUERY, STATUS, reserved, NOTIFY, UPDATE, stateful operations.
        for opcode in 1..16_u8 {
            let mut query = question(6, 1);
            query[2] = opcode << 3 | 1;
            assert_eq!(judge(&query), Verdict::Fail(Failure::NotImplemented), "opcode {opcode}");
            let answer = failure(&query, Failure::NotImplemented);
            assert_eq!(answer[2..4], [0x81 | opcode << 3, 0x84]);
        }
    }

    #[test]
    fn message_with_other_counts_than_one_question_is_malformed() {
        // Fields of the header: questions (none, two), answers, authorities.
        for (at, count) in [(5, 0), (5, 2), (4, 1), (7, 1), (9, 1), (6, 1)] {
            let mut query = question(1, 1);
            query[at] = count;
            assert_eq!(judge(&query), Verdict::Fail(Failure::Malformed), "byte {at}");
        }
        let mut additional = question(1, 1);
        additional[11] = 1;
        assert_eq!(judge(&additional), Verdict::Ask);
    }

    #[test]
    fn name_of_more_than_255_bytes_is_malformed() {
        let named = |labels: usize| {
            let mut query = question(1, 1)[..HEADER].to_vec();
            query.extend([b"\x0f0123456789abcde".as_slice()].repeat(labels).concat());
            query.extend(b"\0\0\x01\0\x01");
            judge(&query)
        };
        assert_eq!(named(15), Verdict::Ask);
        assert_eq!(named(16), Verdict::Fail(Failure::Malformed));
    }

    #[test]
    fn fuzz_only_ordinary_questions_pass() {
        let corpus = [QUERY.to_vec(), question(28, 1), question(252, 1), question(16, 3)];
        roost_fuzz::attack(&corpus, |bytes| match judge(bytes) {
            Verdict::Drop => {}
            Verdict::Fail(why) => {
                let answer = failure(bytes, why);
                assert!(answer.len() >= HEADER && answer.len() <= bytes.len());
                assert_eq!(judge(&answer), Verdict::Drop);
            }
            Verdict::Ask => {
                assert_eq!((bytes[2] & 0xf8, &bytes[4..10]), (0, [0, 1, 0, 0, 0, 0].as_slice()));
                let end = question_end(bytes).unwrap();
                assert_eq!(bytes[end - 2..end], [0, 1]);
                assert!(bytes[end - 4] > 0 || bytes[end - 3] < 128);
            }
        });
    }

    #[test]
    fn answers_to_something_else_are_told_apart() {
        let good = failure(QUERY, Failure::Server);
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
