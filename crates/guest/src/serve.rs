//! Connections: the greeting, then one request after the other.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use roost_wire::frame::Kind;
use roost_wire::{ErrorCode, Failure, Hello, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::calls::{self, inside::take_on as take_on_inside};
use crate::conn::{Conn, ConnError, decode};
use crate::connections::Place;
use crate::exec::attach::{self, Attachment, Ending};
use crate::exec::{feed, start};
use crate::failure::bad_request;
use crate::guest::{Counted, Guest, small_thread};
use crate::machine::Machine;
use crate::{activity, crontabs, files, forward, ports, processes, relay, resume, shutdown};

/// A connection that does not greet is not kept for long.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// How long a refused peer is given to hear why.
const LINGER: Duration = Duration::from_millis(500);
/// Waited when the kernel has no connection after all, or no descriptor or memory for it: asking at once would not help.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Accepts connections for ever: the host's, and those of processes inside. Between two connections this thread also renews the
/// files that describe the machine, because another thread would cost a stack in every sandbox.
pub(crate) fn accept(
    guest: &Arc<Guest>,
    listener: &TcpListener,
    inside: Option<&UnixListener>,
    mut machine: Option<Machine>,
) {
    loop {
        let mut ready = vec![PollFd::new(listener, PollFlags::IN)];
        ready.extend(inside.map(|inside| PollFd::new(inside, PollFlags::IN)));
        let due = machine.as_ref().and_then(|machine| Timespec::try_from(machine.due_in(Instant::now())).ok());
        let polled = poll(&mut ready, due.as_ref());
        let [host, caller] = [0, 1].map(|place: usize| ready.get(place).is_some_and(|fd| !fd.revents().is_empty()));
        let mut accepted = matches!(polled, Ok(_) | Err(Errno::INTR));
        if accepted && host {
            accepted = listener.accept().map(|(stream, _)| take_on(guest, stream)).is_ok();
        }
        if let Some(inside) = inside.filter(|_| accepted && caller) {
            accepted = inside.accept().map(|(stream, _)| take_on_inside(guest, stream)).is_ok();
        }
        if !accepted {
            std::thread::sleep(ACCEPT_PAUSE);
        }
        if let Some(machine) = &mut machine {
            machine.renew();
        }
    }
}

fn take_on(guest: &Arc<Guest>, stream: TcpStream) {
    let stream = Arc::new(stream);
    let taken = guest.connections.admit(&stream).is_some_and(|place| {
        let guest = guest.clone();
        small_thread("conn").spawn(move || serve(&guest, &place)).is_ok()
    });
    if !taken {
        turn_away(&stream);
    }
}

/// Says that there is no thread for a connection. In the thread that accepts, so it does not wait for the peer.
fn turn_away(stream: &TcpStream) {
    if stream.set_nonblocking(true).is_ok()
        && let Ok(stream) = stream.try_clone()
    {
        let failure = Failure::new(ErrorCode::LimitExceeded, "too many connections or processes");
        Conn::new(OwnedFd::from(stream)).answer(Err(failure)).ok();
    }
}

fn serve(guest: &Arc<Guest>, place: &Place) {
    let Some(stream) = place.stream() else { return };
    // Small frames go out at once; a kernel that refuses this only makes us slower.
    stream.set_nodelay(true).ok();
    stream.set_read_timeout(Some(GREETING_TIME)).ok();
    let Ok(socket) = stream.try_clone() else { return };
    let mut conn = Conn::new(OwnedFd::from(socket));
    let greeted = greet(guest, &mut conn);
    stream.set_read_timeout(None).ok();
    let outcome = greeted.and_then(|()| requests(guest, place, &mut conn));
    let parting = match outcome {
        Err(ConnError::Refused(failure)) => failure,
        Err(ConnError::Protocol(error)) => bad_request(format!("failed to read a frame: {error}")),
        Err(ConnError::Misplaced(kind)) => bad_request(format!("a frame of kind {kind:?} has no place here")),
        Ok(()) | Err(ConnError::Gone) => return,
    };
    if conn.answer(Err(parting)).is_ok() {
        hear_out(stream, &mut conn);
    }
}

/// Closes in a way that lets the peer read the last word: unread data would turn the close into a reset.
fn hear_out(stream: &TcpStream, conn: &mut Conn) {
    stream.shutdown(Shutdown::Write).ok();
    stream.set_read_timeout(Some(LINGER)).ok();
    conn.drain_until(Instant::now() + LINGER);
}

/// Checks the key before anything else is looked at.
fn greet(guest: &Guest, conn: &mut Conn) -> Result<(), ConnError> {
    let hello = match conn.next()? {
        (Kind::Hello, body) => decode::<Hello>(Kind::Hello, body).ok(),
        _ => None,
    };
    let identity = guest.identity.read().unwrap_or_else(PoisonError::into_inner);
    match hello {
        Some(hello) if identity.key.matches(&hello.key) => Ok(()),
        _ => Err(ConnError::Refused(Failure::new(ErrorCode::Unauthorized, "key is wrong"))),
    }
}

fn requests(guest: &Arc<Guest>, place: &Place, conn: &mut Conn) -> Result<(), ConnError> {
    loop {
        conn.rest();
        let request = match conn.next()? {
            (Kind::Request, body) => match decode::<Request>(Kind::Request, body) {
                Ok(request) => request,
                // One that a newer host knows; the frames around it are sound.
                Err(error) => {
                    conn.answer(Err(bad_request(format!("failed to read a request: {}", root_cause(&error)))))?;
                    continue;
                }
            },
            // Sent to an exec that ended meanwhile.
            (Kind::Stdin | Kind::StdinClose | Kind::Resize | Kind::Signal, _) => continue,
            (other, _) => return Err(ConnError::Misplaced(other)),
        };
        respond(guest, place, conn, request)?;
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Carries one request to its end.
fn respond(guest: &Arc<Guest>, place: &Place, conn: &mut Conn, request: Request) -> Result<(), ConnError> {
    let execs = &guest.execs;
    let result = match request {
        Request::Ping => Ok(Reply::Pong(guest.info())),
        Request::ExecStart(request) => match start::start(guest, &request) {
            Ok((exec, Some(attachment))) => return follow(guest, conn, Reply::Exec(exec.info()), attachment),
            Ok((exec, None)) => Ok(Reply::Exec(exec.info())),
            Err(failure) => Err(failure),
        },
        Request::ExecAttach(request) => {
            let attached = execs.get(&request.id).and_then(|exec| Attachment::new(&exec, &request.attach));
            match attached {
                Ok(attachment) => {
                    let reply = Reply::Exec(attachment.exec().info());
                    return follow(guest, conn, reply, attachment);
                }
                Err(failure) => Err(failure),
            }
        }
        Request::ExecWait(which) => match execs.get(&which.id).and_then(|exec| Attachment::bell(&exec)) {
            Ok(bell) => return attach::serve(guest, conn, bell, Ending::Reply),
            Err(failure) => Err(failure),
        },
        Request::ExecStdin(request) => match execs.get(&request.id) {
            Ok(exec) => return feed::feed(conn, &exec, request.close),
            Err(failure) => return conn.refuse_upload(failure),
        },
        Request::ExecList(request) => Ok(Reply::Execs(execs.page(request.after.as_deref(), &request.filter))),
        Request::ExecGet(which) => execs.get(&which.id).map(|exec| Reply::Exec(exec.info())),
        Request::ExecSignal(request) => execs.get(&request.id).and_then(|exec| {
            execs.signal(&exec, request.signal, request.target)?;
            Ok(Reply::Exec(exec.info()))
        }),
        Request::ExecResize(request) => execs.get(&request.id).and_then(|exec| {
            exec.resize(request.size)?;
            Ok(Reply::Exec(exec.info()))
        }),
        Request::ExecRemove(which) => execs.remove(&which.id).map(|()| Reply::Done),
        Request::Processes(request) => processes::page(guest, request.after).map(Reply::Processes),
        Request::ProcessSignal(wanted) => processes::signal(wanted).map(|()| Reply::Done),
        Request::Ports(request) => Ok(Reply::Ports(ports::listening(guest.config.listen.port(), request.processes))),
        Request::Dial(request) => return hand_over(conn, relay::connect(request.port)),
        Request::Connect(request) => return hand_over(conn, forward::connect(&request.to)),
        Request::TakeArrival(wanted) => return hand_over(conn, guest.listeners.take(wanted)),
        Request::Listen(request) => return forward::listen(guest, conn, &request.at),
        Request::Activity => Ok(Reply::Activity(activity::activity(guest))),
        Request::ServicesSet(set) => guest.services.set(guest, set).map(|()| Reply::Done),
        Request::Services => Ok(Reply::Services(guest.services.list(guest))),
        Request::ServiceStart(wanted) => {
            guest.services.start(guest, &wanted).map(|info| Reply::Service(Box::new(info)))
        }
        Request::ServiceGone(which) => {
            guest.services.gone(&which.name);
            Ok(Reply::Done)
        }
        Request::ServiceLog(wanted) => match guest.services.log(guest, &wanted) {
            Ok(attachment) => {
                let reply = Reply::Exec(attachment.exec().info());
                return follow(guest, conn, reply, attachment);
            }
            Err(failure) => Err(failure),
        },
        Request::Calls => return calls::serve(guest, conn),
        Request::Answered(answer) => {
            guest.calls.settle_late(answer);
            Ok(Reply::Done)
        }
        Request::CronJobs => Ok(Reply::CronJobs(crontabs::jobs(Path::new(&guest.config.etc_dir)))),
        Request::SetIdentity(new) => {
            guest.set_identity(new);
            Ok(Reply::Hostname(rustix::system::uname().nodename().to_string_lossy().into_owned()))
        }
        Request::Quiesce => {
            resume::quiesce(guest, place);
            conn.answer(Ok(Reply::Done))?;
            return Err(ConnError::Gone);
        }
        Request::Resumed(request) => {
            resume::resumed(guest, place, request);
            Ok(Reply::Done)
        }
        Request::Shutdown(request) => {
            shutdown::stop(guest, Duration::from_millis(request.grace_ms));
            let told = conn.answer(Ok(Reply::Done));
            shutdown::finish();
            return told;
        }
        other => return files::respond(guest, conn, other),
    };
    conn.answer(result)
}

/// Makes the connection one with something inside, if that was reached.
fn hand_over(conn: &mut Conn, reached: Result<OwnedFd, Failure>) -> Result<(), ConnError> {
    let inside = match reached {
        Ok(inside) => inside,
        Err(failure) => return conn.answer(Err(failure)),
    };
    conn.answer(Ok(Reply::Done))?;
    let ahead = conn.take_ahead();
    relay::relay(conn.as_fd(), &inside, ahead);
    Err(ConnError::Gone)
}

fn follow(guest: &Guest, conn: &mut Conn, reply: Reply, attachment: Attachment) -> Result<(), ConnError> {
    let _attached = Counted::new(&guest.attached);
    // Not sent yet: what the process has written by now can go along.
    conn.queue(Kind::Reply, &reply)?;
    attach::serve(guest, conn, attachment, Ending::Frame)
}
