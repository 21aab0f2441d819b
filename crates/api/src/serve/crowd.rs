//! How many may be connected at once, and who goes when there are too many.
//!
//! Whoever has shown a token stays. Strangers have so many places and no more, whatever they do with them: not sending the rest
//! of a request, or not reading an answer, costs them their place when another stranger comes. The one that has been silent for
//! longest goes first.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use roost_proxy::Standing;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::WaitForCancellationFutureOwned;

/// How many places there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// For those who have not shown a token.
    pub(super) strangers: usize,
    /// For everybody.
    pub(super) all: usize,
}

/// Everybody at a listener; clones are the same crowd.
#[derive(Debug, Clone)]
pub(super) struct Crowd {
    places: Places,
    there: Arc<Mutex<There>>,
}

#[derive(Debug, Default)]
struct There {
    all: usize,
    strangers: Vec<Standing>,
}

/// Somebody's place, for as long as this lives.
#[derive(Debug)]
pub(super) struct Place {
    crowd: Crowd,
    standing: Standing,
}

impl Crowd {
    pub(super) fn new(places: Places) -> Self {
        Self { places, there: Arc::default() }
    }

    fn there(&self) -> MutexGuard<'_, There> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection; nothing if everybody who is there may stay.
    pub(super) fn admit(&self) -> Option<Place> {
        let mut there = self.there();
        let Places { strangers, all } = self.places;
        let full = there.all >= all;
        if full || there.strangers.len() >= strangers {
            // Whoever is known by now holds no stranger's place.
            there.strangers.retain(|standing| !standing.is_known());
            if (full || there.strangers.len() >= strangers) && !there.send_one_away() {
                return None;
            }
        }
        let standing = Standing::stranger();
        there.strangers.push(standing.clone());
        there.all += 1;
        Some(Place { crowd: self.clone(), standing })
    }
}

impl There {
    fn send_one_away(&mut self) -> bool {
        let silent = self.strangers.iter().enumerate().min_by_key(|(_, standing)| standing.moved_at());
        let Some((at, _)) = silent else { return false };
        self.strangers.swap_remove(at).ask_to_leave();
        true
    }
}

impl Place {
    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut there = self.crowd.there();
        there.all -= 1;
        if let Some(at) = there.strangers.iter().position(|standing| standing.is(&self.standing)) {
            there.strangers.swap_remove(at);
        }
    }
}

/// A connection that holds a place until it is closed, also after it has changed protocols, and breaks when it is to make room.
#[derive(Debug)]
pub(super) struct Placed<S> {
    stream: S,
    place: Place,
    left: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> Placed<S> {
    pub(super) fn new(stream: S, place: Place) -> Self {
        let left = Box::pin(place.standing.left());
        Self { stream, place, left }
    }

    /// Notes that bytes moved, or that they could not, in which case the connection may have to end.
    fn noted<T>(&mut self, moved: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.place.standing.note_moved();
        } else if self.left.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "others need the place")));
        }
        moved
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Placed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.noted(read, context)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Placed<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.noted(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.noted(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Extensions;

    use super::*;

    fn known(place: &Place) {
        let mut extensions = Extensions::new();
        extensions.insert(place.standing().clone());
        Standing::note_known(&extensions);
    }

    fn was_sent_away(place: &Place) -> bool {
        let mut left = Box::pin(place.standing().left());
        left.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    fn crowd_of(strangers: usize, all: usize) -> Crowd {
        Crowd::new(Places { strangers, all })
    }

    fn moves_after(place: &Place, other: &Place) {
        while place.standing().moved_at() <= other.standing().moved_at() {
            place.standing().note_moved();
        }
    }

    #[test]
    fn the_stranger_that_was_silent_for_longest_makes_room() {
        let crowd = crowd_of(3, 100);
        let there: Vec<Place> = (0..3).map(|_| crowd.admit().unwrap()).collect();
        moves_after(&there[0], &there[1]);
        moves_after(&there[2], &there[0]);
        let _next = crowd.admit().unwrap();
        assert_eq!(there.iter().map(was_sent_away).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn whoever_is_known_stays_and_holds_no_strangers_place() {
        let crowd = crowd_of(2, 100);
        let first = crowd.admit().unwrap();
        known(&first);
        let others: Vec<Place> = (0..3).map(|_| crowd.admit().unwrap()).collect();
        assert!(!was_sent_away(&first));
        assert_eq!(others.iter().filter(|other| was_sent_away(other)).count(), 1);
    }

    #[test]
    fn nobody_is_let_in_where_only_the_known_are() {
        let crowd = crowd_of(10, 2);
        let (first, second) = (crowd.admit().unwrap(), crowd.admit().unwrap());
        known(&first);
        // The stranger gives way; the known one does not.
        let third = crowd.admit().unwrap();
        assert!(was_sent_away(&second) && !was_sent_away(&first));
        known(&third);
        assert!(crowd.admit().is_none());
    }

    #[test]
    fn who_goes_leaves_a_place() {
        let crowd = crowd_of(1, 1);
        drop(crowd.admit().unwrap());
        let second = crowd.admit().unwrap();
        known(&second);
        drop(second);
        assert!(crowd.admit().is_some());
    }
}
