//! Archives that a build copies from: a link to hand one in, and its other end.
//!
//! Clients hand archives in without their key, so that the link itself proves that it was given out here: it carries a
//! hash of what it is for and of its end, made with the host's own key.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use serde::Serialize;

use super::BUILD;
use super::names::template_name;
use crate::E2b;
use crate::control::extract::E2bPath;
use crate::control::visit::Visit;
use crate::error::E2bError;
use crate::token::same;

/// Seconds in which an upload may begin; clients give it an hour to end.
const OPEN_FOR: i64 = 3600;

/// Where to hand an archive in.
#[derive(Debug, Serialize)]
pub(crate) struct Link {
    present: bool,
    url: String,
}

fn proof(e2b: &E2b, hash: &str, until: i64) -> String {
    e2b.beyond_tokens().derived_secret(&format!("e2b template upload {hash} {until}"))
}

/// `GET /templates/{template}/files/{hash}`.
pub(crate) async fn link(
    e2b: Visit,
    E2bPath((template, hash)): E2bPath<(String, String)>,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<Link>), E2bError> {
    template_name(&template)?;
    let present = e2b.host(BUILD)?.has_build_files(&hash).await?;
    let until = Timestamp::now().as_second() + OPEN_FOR;
    let url = format!("{}/templates/uploads/{hash}/{until}/{}", origin(&headers), proof(&e2b, &hash, until));
    Ok((StatusCode::CREATED, Json(Link { present, url })))
}

/// The address under which the client reached us.
fn origin(headers: &HeaderMap) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    let scheme = text("x-forwarded-proto").filter(|scheme| ["http", "https"].contains(scheme)).unwrap_or("http");
    let host = text("x-forwarded-host").or_else(|| text(header::HOST.as_str())).unwrap_or("localhost");
    format!("{scheme}://{host}")
}

/// `PUT /templates/uploads/{hash}/{until}/{proof}`.
pub(crate) async fn take(
    State(e2b): State<E2b>,
    E2bPath((hash, until, shown)): E2bPath<(String, i64, String)>,
    body: Body,
) -> Result<StatusCode, E2bError> {
    if !same(&shown, &proof(&e2b, &hash, until)) {
        return Err(E2bError::new(StatusCode::FORBIDDEN, "this link was not given out here"));
    }
    if Timestamp::now().as_second() > until {
        return Err(E2bError::new(StatusCode::FORBIDDEN, "this link has expired"));
    }
    e2b.beyond_tokens().put_build_files(&hash, body.into_data_stream()).await?;
    Ok(StatusCode::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_back_the_way_the_client_came() {
        let headers = |pairs: &[(&'static str, &str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
        };
        assert_eq!(origin(&headers(&[("host", "127.0.0.1:3000")])), "http://127.0.0.1:3000");
        let proxied = [("host", "inner"), ("x-forwarded-host", "sbx.example"), ("x-forwarded-proto", "https")];
        assert_eq!(origin(&headers(&proxied)), "https://sbx.example");
        assert_eq!(origin(&headers(&[("host", "a"), ("x-forwarded-proto", "file")])), "http://a");
    }
}
