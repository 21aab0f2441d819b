//! The gVisor engine against what every engine must do.

use crate::support::Bench;

#[tokio::test(flavor = "multi_thread")]
async fn the_gvisor_engine_conforms() {
    let bench = Bench::new().await;
    roost_engine::conformance::all(&bench).await;
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn this_host_is_fit() {
    let bench = Bench::new().await;
    let report = roost_engine::Engine::report(&bench.engine).await;
    assert!(report.fit(), "{report:#?}");
    bench.finish().await;
}
