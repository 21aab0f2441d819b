//! A client that speaks to the server through memory.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::packet::{Attributes, Fields, Packet};
use super::serve;

/// Sends requests and returns the answers without their lengths.
fn talk(requests: Vec<Packet>) -> Vec<Vec<u8>> {
    let sent: Vec<u8> = requests.into_iter().flat_map(Packet::finish).collect();
    let mut output = Vec::new();
    serve(sent.as_slice(), &mut output).unwrap();
    let mut answers = Vec::new();
    let mut rest = output.as_slice();
    while let Some((length, more)) = rest.split_first_chunk::<4>() {
        let (answer, after) = more.split_at(u32::from_be_bytes(*length) as usize);
        answers.push(answer.to_vec());
        rest = after;
    }
    answers
}

fn request(kind: u8) -> Packet {
    Packet::new(kind).u32(7)
}

/// Kind, and the code of a status.
fn read(answer: &[u8]) -> (u8, Option<u32>) {
    let mut fields = Fields::new(answer);
    let kind = fields.byte().unwrap();
    let _id = fields.u32().unwrap();
    (kind, if kind == 101 { fields.u32().ok() } else { None })
}

/// The first handle that a server gives out.
const FIRST: [u8; 4] = [0; 4];

#[test]
fn a_file_is_written_read_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("note");
    let name = path.to_str().unwrap().as_bytes();
    let answers = talk(vec![
        Packet::new(1).u32(3),
        request(3)
            .bytes(name)
            .u32(2 | 8 | 16 | 1)
            .attributes(&Attributes { mode: Some(0o600), ..Attributes::default() }),
        request(6).bytes(&FIRST).u64(6).bytes(b"world"),
        request(6).bytes(&FIRST).u64(0).bytes(b"hello "),
        request(5).bytes(&FIRST).u64(3).u32(100),
        request(5).bytes(&FIRST).u64(11).u32(100),
        request(10).bytes(&FIRST).attributes(&Attributes { times: Some((1, 2)), ..Attributes::default() }),
        request(4).bytes(&FIRST),
        request(4).bytes(&FIRST),
    ]);
    let kinds: Vec<_> = answers[1..].iter().map(|answer| read(answer)).collect();
    let ok = (101, Some(0));
    assert_eq!(kinds, [(102, None), ok, ok, (103, None), (101, Some(1)), ok, ok, (101, Some(4))]);
    assert_eq!(&answers[4][5..], [0, 0, 0, 8, b'l', b'o', b' ', b'w', b'o', b'r', b'l', b'd']);
    assert_eq!(fs::read(&path).unwrap(), b"hello world");
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 2);
}

#[test]
fn what_is_not_there_or_not_known_has_its_status() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let missing = missing.to_str().unwrap().as_bytes();
    let here = folder.path().to_str().unwrap().as_bytes();
    let answers = talk(vec![
        request(17).bytes(missing),
        request(11).bytes(missing),
        request(5).bytes(b"what").u64(0).u32(1),
        request(99),
        request(200).bytes(b"nobody@example.org"),
        request(13).bytes(here),
        request(3).bytes(here).u32(1).attributes(&Attributes::default()),
        request(17),
    ]);
    let codes: Vec<_> = answers.iter().map(|answer| read(answer).1.unwrap()).collect();
    assert_eq!(codes, [2, 2, 4, 8, 8, 4, 4, 5]);
}

#[test]
fn a_folder_is_told_in_pieces_until_its_end() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..150 {
        fs::write(folder.path().join(format!("file-{number}")), "").unwrap();
    }
    let here = folder.path().to_str().unwrap().as_bytes();
    let answers = talk(vec![
        request(11).bytes(here),
        request(12).bytes(&FIRST),
        request(12).bytes(&FIRST),
        request(12).bytes(&FIRST),
    ]);
    let count = |answer: &[u8]| u32::from_be_bytes(answer[5..9].try_into().unwrap());
    assert_eq!((count(&answers[1]), count(&answers[2])), (100, 50));
    assert_eq!(read(&answers[3]), (101, Some(1)));
}

#[test]
fn names_change_and_links_lead_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().as_bytes().to_vec();
    fs::write(folder.path().join("one"), "1").unwrap();
    fs::write(folder.path().join("two"), "2").unwrap();
    let answers = talk(vec![
        request(18).bytes(&at("one")).bytes(&at("two")),
        request(200).bytes(b"posix-rename@openssh.com").bytes(&at("one")).bytes(&at("two")),
        request(20).bytes(b"two").bytes(&at("link")),
        request(19).bytes(&at("link")),
        request(16).bytes(&at("link")),
        request(14).bytes(&at("sub")).attributes(&Attributes { mode: Some(0o700), ..Attributes::default() }),
        request(15).bytes(&at("sub")),
        request(200).bytes(b"limits@openssh.com"),
        request(200).bytes(b"statvfs@openssh.com").bytes(&at("")),
    ]);
    let kinds: Vec<_> = answers.iter().map(|answer| read(answer)).collect();
    let (ok, name, extended) = ((101, Some(0)), (104, None), (201, None));
    assert_eq!(kinds, [(101, Some(4)), ok, ok, name, name, ok, ok, extended, extended]);
    assert_eq!(fs::read_to_string(folder.path().join("two")).unwrap(), "1");
    let real = Fields::new(&answers[4][9..]).bytes().unwrap().to_vec();
    assert_eq!(real, folder.path().canonicalize().unwrap().join("two").to_str().unwrap().as_bytes());
}

#[test]
fn whoever_does_not_speak_it_is_left() {
    assert!(serve([0, 0, 0, 0].as_slice(), Vec::new()).is_err());
    assert!(serve([0xff; 8].as_slice(), Vec::new()).is_err());
    assert!(serve([0, 0, 0, 9, 1].as_slice(), Vec::new()).is_err());
}
