//! Memory of large replies goes back to the host.

use std::time::Duration;

use crate::blocking;
use crate::host::Host;

/// By then the answer that was made of a reply is on its way, and its memory is free.
const AFTER: Duration = Duration::from_secs(1);
/// The heap is not searched more often than this, however many large replies there are.
const BETWEEN: Duration = Duration::from_secs(5);

impl Host {
    /// Gives memory back after large replies of guests, for as long as the daemon is here.
    pub(crate) async fn keep_heap_small(self) {
        let keep = async {
            loop {
                self.shared.guests.large_reply().await;
                tokio::time::sleep(AFTER).await;
                blocking(roost_sys::heap::trim).await;
                tokio::time::sleep(BETWEEN).await;
            }
        };
        tokio::select! {
            never = keep => never,
            () = self.shared.leaving.cancelled() => {}
        }
    }
}
