//! What Prometheus may know.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use roost_host::Host;
use roost_model::State;

const LIVING: [State; 5] = [State::Creating, State::Active, State::Suspending, State::Suspended, State::Resuming];

type Timings<L> = Family<L, Histogram, fn() -> Histogram>;

/// The counters of one API and the registry that shows them.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    request_time: Timings<Asked>,
    operations: Timings<Operated>,
    sandboxes: Family<InState, Gauge>,
    newest_event: Gauge<u64, AtomicU64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    method: String,
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    method: String,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operated {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: &'static str,
}

/// From half a millisecond to about a minute.
fn timing() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 18))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("roost");
        let requests = Family::<Answered, Counter>::default();
        let request_time: Timings<Asked> = Family::new_with_constructor(timing);
        let operations: Timings<Operated> = Family::new_with_constructor(timing);
        let sandboxes = Family::<InState, Gauge>::default();
        let newest_event = Gauge::<u64, AtomicU64>::default();
        registry.register("build", "The daemon's build", Info::new([("version", env!("CARGO_PKG_VERSION"))].to_vec()));
        registry.register("http_requests", "Requests answered", requests.clone());
        registry.register_with_unit(
            "http_request",
            "Time from a request's head to its answer's head",
            Unit::Seconds,
            request_time.clone(),
        );
        registry.register_with_unit(
            "operation",
            "Time of operations on sandboxes; exec_start and run end when the process has started",
            Unit::Seconds,
            operations.clone(),
        );
        registry.register("sandboxes", "Sandboxes by state", sandboxes.clone());
        registry.register("newest_event", "Id of the newest event", newest_event.clone());
        Self { registry, requests, request_time, operations, sandboxes, newest_event }
    }

    /// Counts an answered request.
    pub(crate) fn request(&self, method: &str, route: &str, status: u16, time: Duration) {
        let (method, route) = (method.to_owned(), route.to_owned());
        let asked = Asked { method: method.clone(), route: route.clone() };
        self.request_time.get_or_create(&asked).observe(time.as_secs_f64());
        self.requests.get_or_create(&Answered { method, route, status }).inc();
    }

    /// Counts an operation on a sandbox.
    pub(crate) fn operation(&self, operation: &'static str, outcome: &'static str, time: Duration) {
        self.operations.get_or_create(&Operated { operation, outcome }).observe(time.as_secs_f64());
    }

    /// Everything as text, with what the host knows looked up now.
    pub(crate) fn render(&self, host: &Host) -> Result<String, fmt::Error> {
        self.newest_event.set(host.events().newest());
        self.show_states(&host.count_by_state());
        self.text()
    }

    fn show_states(&self, counts: &[(State, u64)]) {
        for state in LIVING {
            let count = counts.iter().find(|(of, _)| *of == state).map_or(0, |(_, count)| *count);
            let gauge = self.sandboxes.get_or_create(&InState { state: state.as_str() });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_shown() {
        let metrics = Metrics::new();
        metrics.request("GET", "/v1/sandboxes", 200, Duration::from_millis(2));
        metrics.operation("create", "ok", Duration::from_millis(20));
        metrics.show_states(&[(State::Active, 3)]);
        let text = metrics.text().unwrap();
        for line in [
            "roost_build_info{version=",
            "roost_http_requests_total{method=\"GET\",route=\"/v1/sandboxes\",status=\"200\"} 1",
            "roost_http_request_seconds_count{method=\"GET\",route=\"/v1/sandboxes\"} 1",
            "roost_operation_seconds_count{operation=\"create\",outcome=\"ok\"} 1",
            "roost_sandboxes{state=\"active\"} 3",
            "roost_sandboxes{state=\"suspended\"} 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
