//! What a sandbox may tell a browser about the address at which its answer appears.
//!
//! By host name a port has an origin of its own. By path it shares the daemon's: a page would be of one origin with the page
//! of the daemon, and a header would hold for all of it.

use axum::http::header::{CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue};

use crate::{Target, cookies};

/// A page may do what it likes, but without an origin.
const NO_ORIGIN: &str = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads";

/// Headers by which an answer speaks for a whole origin or host. `Refresh`, `Link` and `WWW-Authenticate` are not among them:
/// the first two do nothing that a script of the page could not do, and programs need the third.
const FOR_THE_ORIGIN: [&str; 30] = [
    // Deletes cookies and storage of the origin: the page of the daemon is logged out.
    "clear-site-data",
    // Reports about requests to the origin, with their addresses, go to a server of the sandbox's choice.
    "nel",
    "report-to",
    "reporting-endpoints",
    // Bind the host to TLS, to keys or to logs: a daemon without them is out of reach for months.
    "strict-transport-security",
    "public-key-pins",
    "public-key-pins-report-only",
    "expect-ct",
    "expect-staple",
    // Requests to the origin go to another server or port.
    "alt-svc",
    "alt-used",
    // A worker below one path may answer for all of them.
    "service-worker-allowed",
    // Keyed by origin and remembered: how the browser isolates it, and what it sends along from then on.
    "origin-agent-cluster",
    "accept-ch",
    "accept-ch-lifetime",
    "critical-ch",
    // Registers the origin as a place where the person is logged in.
    "set-login",
    // Binds sessions of the origin to a device, and asks for proofs at an address of the sandbox's choice.
    "sec-session-registration",
    "secure-session-registration",
    "sec-session-challenge",
    "secure-session-challenge",
    // Fetches other pages of the origin ahead, with the cookies of the person.
    "speculation-rules",
    // A dictionary that later answers of the origin would be unpacked with.
    "use-as-dictionary",
    // Storage and reports that are kept by origin.
    "attribution-reporting-register-source",
    "attribution-reporting-register-trigger",
    "attribution-reporting-info",
    "shared-storage-write",
    "observe-browsing-topics",
    "activate-storage-access",
    // An older way to set a cookie.
    "set-cookie2",
];

/// Makes an answer's headers fit for the place where they appear.
pub(crate) fn confine(headers: &mut HeaderMap, target: &Target) {
    if target.prefix.is_empty() {
        cookies::confine_to_host(headers);
    } else {
        below_our_path(headers, &target.prefix);
    }
}

/// A browser gives the page an origin that is equal to no other, and keeps nothing that holds outside of the port's path.
fn below_our_path(headers: &mut HeaderMap, prefix: &str) {
    headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static(NO_ORIGIN));
    for name in FOR_THE_ORIGIN {
        headers.remove(name);
    }
    cookies::confine_to_path(headers, prefix);
}

#[cfg(test)]
mod tests {
    use axum::http::header::{HeaderName, SET_COOKIE};

    use super::*;

    fn answer() -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in FOR_THE_ORIGIN {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("\"*\""));
        }
        headers.insert(SET_COOKIE, HeaderValue::from_static("a=1; Path=/; Domain=test"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("img-src 'self'"));
        headers.insert("x-app", HeaderValue::from_static("stays"));
        headers
    }

    #[test]
    fn answer_below_our_path_does_not_speak_for_the_origin() {
        let mut headers = answer();
        confine(&mut headers, &Target::of_path("web", "80").unwrap());
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-security-policy", "set-cookie", "x-app"]);
        assert_eq!(headers[SET_COOKIE], "a=1; Path=/v1/sandboxes/web/ports/80/");
        let policies: Vec<_> = headers.get_all(CONTENT_SECURITY_POLICY).iter().collect();
        assert_eq!(policies, ["img-src 'self'", NO_ORIGIN], "its own policy still holds");
    }

    #[test]
    fn answer_at_its_own_host_speaks_for_that_host() {
        let mut headers = answer();
        confine(&mut headers, &Target { sandbox: "web".to_owned(), port: 80, prefix: String::new() });
        assert!(FOR_THE_ORIGIN.iter().all(|name| headers.contains_key(*name)));
        assert_eq!(headers[SET_COOKIE], "a=1; Path=/");
        assert_eq!(headers.get_all(CONTENT_SECURITY_POLICY).iter().count(), 1);
    }
}
