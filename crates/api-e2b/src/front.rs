//! The layer in front of a listener's routes.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use roost_proxy::Trust;
use tower::ServiceExt;

use crate::route::{ENVD_PORT, Whose, whose};
use crate::{E2b, control, envd, ports};

/// What the layer holds.
#[derive(Debug, Clone)]
struct Front {
    e2b: E2b,
    trust: Trust,
    control: Router,
    envd: Router,
}

/// Puts E2B's wire in front of a listener's routes; `trust` says how far whoever connects to it is trusted.
pub fn in_front_of(router: Router, e2b: E2b, trust: Trust) -> Router {
    let control = control::router(&e2b, trust).with_state(e2b.clone());
    let envd = envd::routes().with_state(e2b.clone());
    router.layer(from_fn_with_state(Front { e2b, trust, control, envd }, dispatch))
}

async fn dispatch(State(front): State<Front>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let whose = whose(&head, front.e2b.beyond_tokens().config().domain.as_ref());
    let request = Request::from_parts(head, body);
    match whose {
        Ok(Whose::Other) => next.run(request).await,
        Ok(Whose::Control) => answered(front.control.oneshot(request).await),
        Ok(Whose::SignedFile) => envd::serve_signed(&front.e2b, front.envd, request).await,
        Ok(Whose::Sandbox { sandbox, port: ENVD_PORT }) => {
            envd::serve(&front.e2b, front.envd, front.trust, &sandbox, request).await
        }
        Ok(Whose::Sandbox { sandbox, port }) => ports::serve(&front.e2b, front.trust, &sandbox, port, request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// What a router answers; it never fails.
pub(crate) fn answered(answer: Result<Response, std::convert::Infallible>) -> Response {
    answer.unwrap_or_else(|never| match never {})
}
