//! Connection tracking by raw netlink: forgetting the flows of slots that are gone.
//!
//! A flow outlives the sandbox it belonged to, an established TCP connection by five days, and the number of flows that a
//! namespace may have is bounded: without this, sandboxes that come and go could fill the table that all share.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use rustix::io::Errno;

use super::message::{Batch, Tolerate, attributes, u16_at};
use super::{ANSWERS_AT_ONCE, NetlinkError, Socket};
use crate::slot::Slot;

const SUBSYSTEM: u16 = libc::NFNL_SUBSYS_CTNETLINK as u16;
const HEADER: [u8; 4] = [libc::AF_INET as u8, 0, 0, 0];

/// Numbers of linux/netfilter/nfnetlink_conntrack.h, which libc lacks.
mod number {
    pub(super) const GET: u16 = 1;
    pub(super) const DELETE: u16 = 2;
    pub(super) const ORIGINAL: u16 = 1;
    pub(super) const REPLY: u16 = 2;
    pub(super) const ID: u16 = 12;
    pub(super) const TUPLE_ADDRESSES: u16 = 1;
    pub(super) const TUPLE_PROTOCOL: u16 = 2;
    pub(super) const SOURCE: u16 = 1;
    pub(super) const DESTINATION: u16 = 2;
    pub(super) const PROTOCOL: u16 = 1;
    pub(super) const SOURCE_PORT: u16 = 2;
    pub(super) const DESTINATION_PORT: u16 = 3;
}

/// The two ends of a flow, as one of its directions shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tuple {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    /// Source and destination, in network byte order; `None` where the protocol has none.
    ports: Option<[[u8; 2]; 2]>,
}

/// One entry of the router's table.
#[derive(Debug)]
struct Flow {
    original: Vec<u8>,
    id: Vec<u8>,
    /// What the host sees of it, which has an entry of its own: the router gives the flow a port of its own address.
    on_host: Option<Tuple>,
}

/// Deletes every flow from or to one of the slots, in the router's table and in the host's. Returns their number.
pub(crate) fn forget(router: &mut Socket, host: &mut Socket, slots: &HashSet<Slot>) -> Result<usize, NetlinkError> {
    let mut flows = Vec::new();
    list(router, |payload| flows.extend(flow_of(payload, slots)))?;
    for some in flows.chunks(ANSWERS_AT_ONCE) {
        let (mut inner, mut outer) = (Batch::new(), Batch::new());
        for flow in some {
            delete(&mut inner)
                .nested(number::ORIGINAL, |m| {
                    m.raw(&flow.original);
                })
                .attribute(number::ID, &flow.id);
            if let Some(tuple) = flow.on_host {
                describe(&mut outer, tuple);
            }
        }
        router.execute(&inner)?;
        if !outer.purposes.is_empty() {
            host.execute(&outer)?;
        }
    }
    Ok(flows.len())
}

/// Hands every entry of the socket's namespace to `each`.
pub(crate) fn list(socket: &mut Socket, each: impl FnMut(&[u8])) -> Result<(), NetlinkError> {
    socket.dump("list tracked flows", (SUBSYSTEM << 8) | number::GET, &HEADER, each)
}

fn delete(batch: &mut Batch) -> super::message::Message<'_> {
    let kind = (SUBSYSTEM << 8) | number::DELETE;
    let mut message = batch.message("delete a tracked flow", Tolerate::One(Errno::NOENT), kind, 0);
    message.raw(&HEADER);
    message
}

fn describe(batch: &mut Batch, tuple: Tuple) {
    delete(batch).nested(number::ORIGINAL, |m| {
        m.nested(number::TUPLE_ADDRESSES, |m| {
            m.attribute(number::SOURCE, &tuple.source.octets());
            m.attribute(number::DESTINATION, &tuple.destination.octets());
        });
        m.nested(number::TUPLE_PROTOCOL, |m| {
            m.attribute(number::PROTOCOL, &[tuple.protocol]);
            for (kind, port) in
                [number::SOURCE_PORT, number::DESTINATION_PORT].into_iter().zip(tuple.ports.iter().flatten())
            {
                m.attribute(kind, port);
            }
        });
    });
}

/// Reads an entry of the router's table, if it belongs to one of the slots.
fn flow_of(payload: &[u8], slots: &HashSet<Slot>) -> Option<Flow> {
    let (mut original, mut reply, mut id) = (None, None, None);
    for (kind, value) in attributes(payload.get(HEADER.len()..)?) {
        match kind {
            number::ORIGINAL => original = Some(value),
            number::REPLY => reply = Some(value),
            number::ID => id = Some(value),
            _ => {}
        }
    }
    let (original, id) = (original?, id?);
    let tuple = tuple_of(original)?;
    let is_meant = |address| Slot::from_address(address).is_some_and(|slot| slots.contains(&slot));
    if !is_meant(tuple.source) && !is_meant(tuple.destination) {
        return None;
    }
    let answer = reply.and_then(tuple_of);
    // Where the source was not replaced, the flow ended in the router.
    let on_host = answer.filter(|answer| answer.destination != tuple.source).and_then(outside);
    Some(Flow { original: original.to_vec(), id: id.to_vec(), on_host })
}

/// How the host sees a flow in its first direction, from the answer that the router expects.
fn outside(answer: Tuple) -> Option<Tuple> {
    let [source, destination] = answer.ports?;
    Some(Tuple {
        source: answer.destination,
        destination: answer.source,
        protocol: answer.protocol,
        ports: Some([destination, source]),
    })
}

fn tuple_of(bytes: &[u8]) -> Option<Tuple> {
    let (mut source, mut destination, mut protocol) = (None, None, None);
    let (mut from, mut to) = (None, None);
    for (group, values) in attributes(bytes) {
        for (kind, value) in attributes(values) {
            match (group, kind) {
                (number::TUPLE_ADDRESSES, number::SOURCE) => source = <[u8; 4]>::try_from(value).ok(),
                (number::TUPLE_ADDRESSES, number::DESTINATION) => destination = <[u8; 4]>::try_from(value).ok(),
                (number::TUPLE_PROTOCOL, number::PROTOCOL) => protocol = value.first().copied(),
                (number::TUPLE_PROTOCOL, number::SOURCE_PORT) => from = u16_at(value, 0).map(u16::to_ne_bytes),
                (number::TUPLE_PROTOCOL, number::DESTINATION_PORT) => to = u16_at(value, 0).map(u16::to_ne_bytes),
                _ => {}
            }
        }
    }
    let ports = from.zip(to).map(|(from, to)| [from, to]);
    Some(Tuple { source: source?.into(), destination: destination?.into(), protocol: protocol?, ports })
}

#[cfg(test)]
mod tests {
    use super::super::message::split;
    use super::*;

    const SLOT: Slot = Slot(7);
    const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
    const UPLINK: Ipv4Addr = Ipv4Addr::new(100, 127, 0, 6);

    fn add(message: &mut super::super::message::Message<'_>, kind: u16, tuple: Tuple) {
        let mut batch = Batch::new();
        describe(&mut batch, tuple);
        let built = split(&batch.bytes).next().unwrap();
        let (_, value) = attributes(&built.payload[HEADER.len()..]).next().unwrap();
        message.nested(kind, |m| {
            m.raw(value);
        });
    }

    fn entry(original: Tuple, reply: Tuple) -> Vec<u8> {
        let mut batch = Batch::new();
        {
            let mut message = batch.silent("", 0, 0);
            message.raw(&HEADER);
            add(&mut message, number::ORIGINAL, original);
            add(&mut message, number::REPLY, reply);
            message.attribute(number::ID, &[1, 2, 3, 4]);
        }
        split(&batch.bytes).next().unwrap().payload.to_vec()
    }

    fn tuple(source: Ipv4Addr, destination: Ipv4Addr, ports: [u16; 2]) -> Tuple {
        Tuple { source, destination, protocol: 6, ports: Some(ports.map(u16::to_be_bytes)) }
    }

    #[test]
    fn flow_to_the_outside_is_found_with_its_twin_on_the_host() {
        let original = tuple(SLOT.address(), SERVER, [40_000, 443]);
        let payload = entry(original, tuple(SERVER, UPLINK, [443, 1025]));
        let flow = flow_of(&payload, &HashSet::from([SLOT])).unwrap();
        assert_eq!(tuple_of(&flow.original), Some(original));
        assert_eq!(flow.id, [1, 2, 3, 4]);
        assert_eq!(flow.on_host, Some(tuple(UPLINK, SERVER, [1025, 443])));
        assert!(flow_of(&payload, &HashSet::from([Slot(8)])).is_none());
    }

    #[test]
    fn flow_of_the_daemon_to_a_guest_has_no_twin() {
        let gateway = crate::GATEWAY;
        let payload = entry(tuple(gateway, SLOT.address(), [5000, 1]), tuple(SLOT.address(), gateway, [1, 5000]));
        assert_eq!(flow_of(&payload, &HashSet::from([SLOT])).unwrap().on_host, None);
    }

    #[test]
    fn fuzz_damaged_entries_are_read_without_a_panic() {
        let payload = entry(tuple(SLOT.address(), SERVER, [1, 2]), tuple(SERVER, UPLINK, [2, 3]));
        let slots = HashSet::from([SLOT]);
        roost_fuzz::attack(&[payload], |bytes| drop(flow_of(bytes, &slots)));
    }
}
