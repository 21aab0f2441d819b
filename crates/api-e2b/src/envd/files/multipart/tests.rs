use proptest::prelude::*;

use super::*;

/// Everything that a form consists of when it arrives in pieces of this size; data put together.
fn parse(bytes: &[u8], boundary: &str, size: usize) -> Result<Vec<(PartHead, Vec<u8>)>, FormError> {
    let mut form = Form::new(&format!("multipart/form-data; boundary={boundary}"))?;
    let mut parts: Vec<(PartHead, Vec<u8>)> = Vec::new();
    let mut open = false;
    for piece in bytes.chunks(size.max(1)) {
        form.push(piece);
        while let Some(event) = form.next()? {
            match event {
                Event::Part(head) => {
                    assert!(!open);
                    open = true;
                    parts.push((head, Vec::new()));
                }
                Event::Data(data) => {
                    assert!(open && !data.is_empty());
                    parts.last_mut().unwrap().1.extend_from_slice(&data);
                }
                Event::PartEnd => {
                    assert!(open);
                    open = false;
                }
                Event::End => {
                    assert!(!open);
                    return Ok(parts);
                }
            }
        }
        assert!(form.buffer.len() <= LONGEST_HEADERS + size + 200, "{} bytes are held", form.buffer.len());
    }
    Err(FormError::CutShort)
}

fn file(name: &str) -> PartHead {
    PartHead { name: Some("file".to_owned()), filename: Some(name.to_owned()) }
}

fn form_of(parts: &[(String, Vec<u8>)], boundary: &str) -> Vec<u8> {
    let mut out = b"a preamble\r\nthat means nothing".to_vec();
    for (name, data) in parts {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: x/y\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n"
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(data);
    }
    out.extend_from_slice(format!("\r\n--{boundary}--\r\nan epilogue").as_bytes());
    out
}

#[test]
fn a_form_as_clients_send_it() {
    let text = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a/ä\"\r\nContent-Type: text/plain\r\n\r\none\r\ntwo\
                \r\n--XX\r\ncontent-disposition:form-data; name=other\r\n\r\n\r\n--XX--\r\n";
    let other = PartHead { name: Some("other".to_owned()), filename: None };
    let expected = [(file("/a/ä"), b"one\r\ntwo".to_vec()), (other, Vec::new())];
    for size in 1..text.len() {
        assert_eq!(parse(text.as_bytes(), "XX", size).unwrap(), expected, "in pieces of {size}");
    }
    assert_eq!(parse(b"--XX--", "XX", 100).unwrap(), []);
}

#[test]
fn what_only_looks_like_a_boundary_is_data() {
    for data in ["--XX", "\r\n--XY", "\r\n-XX\r\n", "\r\n--XXX", "\r\n--XX-", "\r\n--XX x", "\n--XX\n", "\r\r\n--X"] {
        let parts = [("f".to_owned(), data.as_bytes().to_vec())];
        let bytes = form_of(&parts, "XX");
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(
                parse(&bytes, "XX", size).unwrap(),
                [(file("f"), data.as_bytes().to_vec())],
                "{data:?} by {size}"
            );
        }
    }
    // Blanks may follow a true one.
    let padded = b"--XX \t\r\nContent-Disposition: form-data; name=file; filename=f\r\n\r\nx\r\n--XX-- ";
    assert_eq!(parse(padded, "XX", 3).unwrap(), [(file("f"), b"x".to_vec())]);
}

#[test]
fn a_form_that_is_none_is_refused() {
    for content_type in ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"ä\""]
    {
        assert_eq!(Form::new(content_type).unwrap_err(), FormError::Boundary);
    }
    assert_eq!(Form::new(&format!("x/y; boundary={}", "b".repeat(71))).unwrap_err(), FormError::Boundary);
    assert_eq!(parse(b"--XX\r\nContent-Disp", "XX", 5), Err(FormError::CutShort));
    assert_eq!(parse(b"nothing of the kind", "XX", 5), Err(FormError::CutShort));
    assert_eq!(parse(b"--XX\r\n\xff\xfe\r\n\r\n", "XX", 5), Err(FormError::NotText));
    let endless = [b"--XX\r\n".to_vec(), vec![b'h'; 10 * LONGEST_HEADERS]].concat();
    assert_eq!(parse(&endless, "XX", 1000), Err(FormError::HeadersTooLong));
}

/// Bytes that are likely to hit the parser's sore points.
fn tricky(boundary: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"--".to_vec()),
        Just(boundary.as_bytes().to_vec()),
        Just(format!("\r\n--{boundary}").into_bytes()),
        Just(b"\r\n\r\n".to_vec()),
        Just(b"Content-Disposition: form-data; name=\"file\"; filename=\"f\"".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..20),
    ];
    proptest::collection::vec(token, 0..30).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn nothing_makes_it_panic_and_pieces_make_no_difference(bytes in tricky("bnd"), size in 1..40usize) {
        let whole = parse(&bytes, "bnd", bytes.len());
        let in_pieces = parse(&bytes, "bnd", size);
        if let Ok(whole) = &whole {
            prop_assert_eq!(in_pieces.as_ref(), Ok(whole));
        } else {
            prop_assert!(in_pieces.is_err());
        }
    }

    #[test]
    fn files_come_out_as_they_went_in(contents in proptest::collection::vec(tricky("bnd"), 0..4), size in 1..200usize) {
        let boundary = "a-boundary-that-is-in-none-of-them";
        let parts: Vec<(String, Vec<u8>)> = contents.into_iter().enumerate().map(|(i, data)| (format!("/f{i}"), data)).collect();
        let expected: Vec<_> = parts.iter().map(|(name, data)| (file(name), data.clone())).collect();
        prop_assert_eq!(parse(&form_of(&parts, boundary), boundary, size).unwrap(), expected);
    }
}

#[test]
fn fuzz_a_form_is_the_same_however_it_arrives() {
    let parts = [("a".to_owned(), b"one\r\n--XX two".to_vec()), ("b".to_owned(), vec![b'-'; 300])];
    let corpus =
        [form_of(&parts, "XX"), b"--XX\r\n\r\n--XX--".to_vec(), b"\r\n--XX \t\r\nA:\r\n\r\n\r\n--XX--".to_vec()];
    roost_fuzz::attack_slow(&corpus, |bytes| {
        let at_once = parse(bytes, "XX", bytes.len().max(1));
        for size in [1, 7, 511] {
            assert_eq!(parse(bytes, "XX", size), at_once);
        }
        let text = String::from_utf8_lossy(bytes);
        drop(Form::new(&text));
        drop(Disposition::parse(&text).get("filename"));
    });
}
