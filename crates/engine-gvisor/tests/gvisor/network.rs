//! A network for one sandbox: a link into its namespace from one of the test's own.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use roost_engine::{EngineError, NetworkPlug};

/// The far end of the link of each start; it goes away, and with it the link, when the next takes its place.
pub(crate) type Outside = Arc<Mutex<Option<OwnedFd>>>;

pub(crate) const INSIDE: &str = "10.0.0.2";

/// Gives what is being born an address, and keeps the namespace from which it is reached.
#[derive(Debug)]
pub(crate) struct Link(pub(crate) Outside);

#[async_trait]
impl NetworkPlug for Link {
    async fn plug(&self, netns: OwnedFd) -> Result<(), EngineError> {
        let outside = roost_sys::netns::create().unwrap();
        let inside = format!("/proc/{}/fd/{}", std::process::id(), netns.as_raw_fd());
        let near = format!(
            "ip link add far type veth peer name eth0 netns {inside} && ip address add 10.0.0.1/30 dev far && \
             ip link set far up && ip link set lo up"
        );
        let far = format!(
            "ip link set lo up && ip address add {INSIDE}/30 dev eth0 && ip link set eth0 up && \
             ip route add default via 10.0.0.1"
        );
        shell(outside.try_clone().unwrap(), near).await;
        shell(netns.try_clone().unwrap(), far).await;
        *self.0.lock().unwrap() = Some(outside);
        Ok(())
    }
}

async fn shell(netns: OwnedFd, command: String) {
    let done = within(netns, move || Command::new("sh").args(["-c", &command]).status().unwrap()).await;
    assert!(done.success());
}

/// Runs `work` in a thread that has entered the namespace.
pub(crate) async fn within<T: Send + 'static>(netns: OwnedFd, work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(|| {
        std::thread::spawn(move || {
            roost_sys::netns::enter(netns.as_fd()).unwrap();
            work()
        })
        .join()
        .unwrap()
    })
    .await
    .unwrap()
}
