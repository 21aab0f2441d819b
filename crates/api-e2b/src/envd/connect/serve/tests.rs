use std::convert::Infallible;
use std::future::pending;

use axum::http::StatusCode;
use futures_util::stream;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::envd::connect::Code;

#[derive(Debug, Deserialize)]
struct Asked {
    #[serde(default)]
    word: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Word(String),
    Keepalive {},
}

impl Event for Told {
    fn keepalive() -> Self {
        Self::Keepalive {}
    }
}

fn frame(payload: &[u8]) -> Vec<u8> {
    [&[0][..], &u32::try_from(payload.len()).unwrap().to_be_bytes(), payload].concat()
}

fn request(content_type: &str, headers: &[(&str, &str)], pieces: Vec<Vec<u8>>) -> Request {
    let mut request = Request::post("/x").header("content-type", content_type);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let pieces = stream::iter(pieces.into_iter().map(|piece| Ok::<_, Infallible>(Bytes::from(piece))));
    request.body(Body::from_stream(pieces)).unwrap()
}

fn streaming(headers: &[(&str, &str)], body: Vec<u8>) -> Request {
    request("application/connect+json", headers, vec![body])
}

/// Flags and messages of a body, and whether it came to its end.
async fn told(response: Response) -> (Vec<(u8, Value)>, bool) {
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/connect+json");
    let (mut pieces, mut all, mut whole) = (response.into_body().into_data_stream(), Vec::new(), true);
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => all.extend_from_slice(&piece),
            Err(_) => whole = false,
        }
    }
    let (mut rest, mut messages) = (&all[..], Vec::new());
    while let Some((&[flags, a, b, c, d], after)) = rest.split_first_chunk::<5>() {
        let (message, after) = after.split_at(u32::from_be_bytes([a, b, c, d]) as usize);
        messages.push((flags, serde_json::from_slice(message).unwrap()));
        rest = after;
    }
    assert!(rest.is_empty());
    (messages, whole)
}

/// A stream that tells these items and then, if it is to stay, nothing for ever.
async fn stream_of(
    headers: &[(&str, &str)],
    items: Vec<Result<Told, Broken>>,
    stays: bool,
) -> (Vec<(u8, Value)>, bool) {
    let request = streaming(headers, frame(br#"{"word":"go"}"#));
    let rest = stream::once(async move {
        if stays {
            pending().await
        }
    })
    .filter_map(async |()| None);
    let work = async |_: Head, asked: Asked| {
        assert_eq!(asked.word, "go");
        Ok(stream::iter(items).chain(rest))
    };
    told(server_stream(request, pending(), work).await).await
}

#[tokio::test]
async fn one_message_is_answered_with_one() {
    let echo = async |_: Head, asked: Asked| Ok(json!({"said": asked.word}));
    let body = async |response: Response| axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let answer = unary(request("application/json", &[], vec![b"{\"wor".to_vec(), b"d\":\"hi\"}".to_vec()]), echo).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(body(answer).await, r#"{"said":"hi"}"#);
    let answer = unary(request("application/json; charset=utf-8", &[], vec![]), echo).await;
    assert_eq!(body(answer).await, r#"{"said":""}"#);
    let answer = unary(request("application/json", &[], vec![b"[1".to_vec()]), echo).await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let answer = unary(request("application/proto", &[], vec![]), echo).await;
    assert_eq!(answer.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let refuse = async |_: Head, _: Asked| Err::<(), _>(ConnectError::new(Code::NotFound, "nobody"));
    let answer = unary(request("application/json", &[], vec![]), refuse).await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(body(answer).await, r#"{"code":"not_found","message":"nobody"}"#);
    let slow = async |_: Head, _: Asked| pending::<Result<(), _>>().await;
    let answer = unary(request("application/json", &[("connect-timeout-ms", "1")], vec![]), slow).await;
    assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn a_stream_tells_all_and_then_its_end() {
    let word = |word: &str| Ok(Told::Word(word.to_owned()));
    let (messages, whole) = stream_of(&[], vec![word("a"), word("b")], false).await;
    assert_eq!(messages, [(0, json!({"word": "a"})), (0, json!({"word": "b"})), (2, json!({}))]);
    assert!(whole);
    let refused = ConnectError::new(Code::NotFound, "gone");
    let (messages, whole) = stream_of(&[], vec![word("a"), Err(Broken::Refused(refused))], true).await;
    assert_eq!(messages[1], (2, json!({"error": {"code": "not_found", "message": "gone"}})));
    assert!(whole && messages.len() == 2);
}

#[tokio::test]
async fn a_stream_that_is_broken_off_has_no_end() {
    let (messages, whole) = stream_of(&[], vec![Ok(Told::Word("a".to_owned())), Err(Broken::Off)], true).await;
    assert_eq!(messages, [(0, json!({"word": "a"}))]);
    assert!(!whole);
    let request = streaming(&[], frame(b"{}"));
    let work = async |_: Head, _: Asked| Ok(stream::pending::<Result<Told, Broken>>());
    let (messages, whole) = told(server_stream(request, std::future::ready(()), work).await).await;
    assert!(messages.is_empty() && !whole);
}

#[tokio::test(start_paused = true)]
async fn silence_is_filled_and_time_runs_out() {
    let headers = [("keepalive-ping-interval", "50"), ("connect-timeout-ms", "120000")];
    let (messages, whole) = stream_of(&headers, vec![], true).await;
    let alive = (0, json!({"keepalive": {}}));
    let end = (2, json!({"error": {"code": "deadline_exceeded", "message": ConnectError::out_of_time().message}}));
    assert_eq!(messages, [alive.clone(), alive, end]);
    assert!(whole);
}

#[tokio::test]
async fn refusals_of_a_stream_are_its_end() {
    let code = async |body: Vec<u8>| {
        let work = async |_: Head, _: Asked| Ok(stream::empty::<Result<Told, Broken>>());
        let (messages, _) = told(server_stream(streaming(&[], body), pending(), work).await).await;
        assert_eq!(messages.len(), 1);
        messages[0].1["error"]["code"].clone()
    };
    assert_eq!(code(vec![]).await, "invalid_argument");
    assert_eq!(code([frame(b"{}"), frame(b"{}")].concat()).await, "invalid_argument");
    assert_eq!(code(frame(b"{}")[..6].to_vec()).await, "invalid_argument");
    assert_eq!(code(frame(b"nonsense")).await, "invalid_argument");
    assert_eq!(code(vec![0, 0xff, 0, 0, 0]).await, "resource_exhausted");
    assert_eq!(code(vec![1, 0, 0, 0, 0]).await, "unimplemented");
}

async fn gather(_: Head, mut incoming: Incoming<Asked>) -> Result<Value, ConnectError> {
    let mut words = Vec::new();
    while let Some(asked) = incoming.next().await? {
        words.push(asked.word);
    }
    Ok(json!(words))
}

#[tokio::test]
async fn many_messages_are_answered_with_one() {
    let body = [frame(br#"{"word":"a"}"#), frame(b"{}"), frame(br#"{"word":"c"}"#)].concat();
    let pieces = body.chunks(7).map(<[u8]>::to_vec).collect();
    let response = client_stream(request("application/connect+json", &[], pieces), gather).await;
    assert_eq!(told(response).await.0, [(0, json!(["a", "", "c"])), (2, json!({}))]);
}

proptest! {
    #[test]
    fn no_body_is_too_odd(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..10)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let asked = || pieces.clone();
            let (messages, whole) =
                told(client_stream(request("application/connect+json", &[], asked()), gather).await).await;
            assert!(whole && messages.last().is_some_and(|(flags, _)| *flags == 2));
            let work = async |_: Head, _: Asked| Ok(stream::empty::<Result<Told, Broken>>());
            let streaming = request("application/connect+json", &[], asked());
            told(server_stream(streaming, pending(), work).await).await;
            unary(request("application/json", &[], asked()), async |_, asked: Asked| Ok(json!(asked.word))).await;
        });
    }
}
