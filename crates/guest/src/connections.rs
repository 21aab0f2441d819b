//! Every open connection, so that all of them can be closed at once.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::wake::lock;

const MAX_CONNECTIONS: usize = 1024;

/// The open connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<Open>,
    /// Told when one has been closed.
    closed: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    streams: BTreeMap<u64, Arc<TcpStream>>,
    next: u64,
}

/// A place among the connections, given up when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    number: u64,
    /// Taken out only at the end.
    stream: Option<Arc<TcpStream>>,
}

impl Connections {
    /// Notes a new connection, unless there are too many.
    pub(crate) fn admit(self: &Arc<Self>, stream: &Arc<TcpStream>) -> Option<Place> {
        let mut open = lock(&self.open);
        if open.streams.len() >= MAX_CONNECTIONS {
            return None;
        }
        let number = open.next;
        open.next += 1;
        open.streams.insert(number, stream.clone());
        Some(Place { connections: self.clone(), number, stream: Some(stream.clone()) })
    }

    /// Hangs up on everybody but `own` who is here now, and waits until they are gone, but no longer than `limit`.
    pub(crate) fn close_others(&self, own: &Place, limit: Duration) {
        let open = lock(&self.open);
        let others: Vec<u64> = open.streams.keys().copied().filter(|number| *number != own.number).collect();
        for stream in others.iter().filter_map(|number| open.streams.get(number)) {
            // Whoever is gone already needs no hanging up on.
            stream.shutdown(Shutdown::Both).ok();
        }
        let some_left = |open: &mut Open| others.iter().any(|number| open.streams.contains_key(number));
        drop(self.closed.wait_timeout_while(open, limit, some_left).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Place {
    /// The connection.
    pub(crate) fn stream(&self) -> Option<&TcpStream> {
        self.stream.as_deref()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = lock(&self.connections.open);
        // The descriptor is closed before anybody hears that it is.
        drop((open.streams.remove(&self.number), self.stream.take()));
        drop(open);
        self.connections.closed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn all_others_are_closed_and_waited_for() {
        let connections = Arc::new(Connections::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let ours = Arc::new(listener.accept().unwrap().0);
            (theirs, connections.admit(&ours).unwrap())
        };
        let (_asking, own) = connect();
        let mut served = Vec::new();
        let mut peers = Vec::new();
        for _ in 0..8 {
            let (theirs, place) = connect();
            peers.push(theirs);
            served.push(std::thread::spawn(move || {
                let mut stream = place.stream().unwrap();
                stream.read(&mut [0]).unwrap()
            }));
        }
        connections.close_others(&own, Duration::from_secs(10));
        assert_eq!(lock(&connections.open).streams.len(), 1);
        for mut peer in peers {
            assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        }
        for served in served {
            assert_eq!(served.join().unwrap(), 0);
        }
        // One that does not let go is not waited for without end.
        let (_stuck, _place) = connect();
        connections.close_others(&own, Duration::from_millis(1));
        drop(own);
        assert_eq!(lock(&connections.open).streams.len(), 1);
    }
}
