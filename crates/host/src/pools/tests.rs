use roost_model::EngineKind;

use super::*;

const PATIENCE: Duration = Duration::from_millis(200);
const TAKES: Duration = Duration::from_millis(50);

#[tokio::test]
async fn the_next_is_made_once_whoever_got_one_has_used_it() {
    let key = ("mini".to_owned(), EngineKind::Gvisor);
    let pools = Pools::new(vec![PoolRecord { template: key.0.clone(), engine: key.1, min: 1, max: 1 }]);
    pools.lock().pools.get_mut(&key).unwrap().takes = TAKES;
    // Nobody has asked for one.
    pools.quiet(&key, PATIENCE).await;
    let (waits, began) = (pools.creating(), Instant::now());
    pools.quiet(&key, PATIENCE).await;
    assert!(began.elapsed() >= PATIENCE);
    let ready = Instant::now();
    drop(waits);
    pools.quiet(&key, PATIENCE).await;
    assert!(ready.elapsed() >= TAKES);
}
