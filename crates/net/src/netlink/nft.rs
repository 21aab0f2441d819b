//! nftables by raw nfnetlink: the elements of slots, and the rules that the `nft` tool cannot write.
//!
//! A daemon cannot lean on libnftables (it aborts a process with more than 1024 descriptors), and the
//! tool costs milliseconds; one element by hand costs some twenty microseconds.

use std::net::Ipv4Addr;

use rustix::io::Errno;

use super::message::{Batch, Message, Tolerate};
use super::{NetlinkError, Socket};

const SUBSYSTEM: u16 = libc::NFNL_SUBSYS_NFTABLES as u16;

/// Attribute numbers of linux/netfilter/nf_tables.h that libc lacks.
mod attribute {
    pub(super) const TABLE_NAME: u16 = 1;
    pub(super) const CHAIN_TABLE: u16 = 1;
    pub(super) const CHAIN_NAME: u16 = 3;
    pub(super) const CHAIN_HOOK: u16 = 4;
    pub(super) const CHAIN_TYPE: u16 = 7;
    pub(super) const HOOK_NUMBER: u16 = 1;
    pub(super) const HOOK_PRIORITY: u16 = 2;
    pub(super) const RULE_TABLE: u16 = 1;
    pub(super) const RULE_CHAIN: u16 = 2;
    pub(super) const RULE_EXPRESSIONS: u16 = 4;
    pub(super) const LIST_ELEMENT: u16 = 1;
    pub(super) const EXPRESSION_NAME: u16 = 1;
    pub(super) const EXPRESSION_DATA: u16 = 2;
    pub(super) const ELEMENTS_TABLE: u16 = 1;
    pub(super) const ELEMENTS_SET: u16 = 2;
    pub(super) const ELEMENTS: u16 = 3;
    pub(super) const ELEMENT_KEY: u16 = 1;
    pub(super) const ELEMENT_DATA: u16 = 2;
    pub(super) const DATA_VALUE: u16 = 1;
    pub(super) const META_TARGET: u16 = 1;
    pub(super) const META_KEY: u16 = 2;
    pub(super) const COMPARE_SOURCE: u16 = 1;
    pub(super) const COMPARE_OPERATION: u16 = 2;
    pub(super) const COMPARE_DATA: u16 = 3;
    pub(super) const IMMEDIATE_TARGET: u16 = 1;
    pub(super) const IMMEDIATE_DATA: u16 = 2;
    pub(super) const PAYLOAD_TARGET: u16 = 1;
    pub(super) const PAYLOAD_BASE: u16 = 2;
    pub(super) const PAYLOAD_OFFSET: u16 = 3;
    pub(super) const PAYLOAD_LENGTH: u16 = 4;
    pub(super) const PAYLOAD_SOURCE: u16 = 5;
    pub(super) const PAYLOAD_CHECKSUM_KIND: u16 = 6;
    pub(super) const PAYLOAD_CHECKSUM_OFFSET: u16 = 7;
}

/// The first 16-byte register of a rule.
const REGISTER: u32 = libc::NFT_REG_1 as u32;

/// One change of a set or map whose keys are interface names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    /// Adds the element, or leaves an equal one alone.
    Add { set: &'a str, interface: &'a str, value: Option<Ipv4Addr> },
    /// Removes an element that must be there.
    Remove { set: &'a str, interface: &'a str },
}

/// Applies all changes or none.
pub(crate) fn change_elements(socket: &mut Socket, table: &str, changes: &[Change<'_>]) -> Result<(), NetlinkError> {
    transaction(socket, |batch| {
        for change in changes {
            let (attempt, kind, flags, set, interface, value) = match *change {
                Change::Add { set, interface, value } => (
                    "add a slot to the packet filter",
                    libc::NFT_MSG_NEWSETELEM,
                    libc::NLM_F_CREATE,
                    set,
                    interface,
                    value,
                ),
                Change::Remove { set, interface } => {
                    ("remove a slot from the packet filter", libc::NFT_MSG_DELSETELEM, 0, set, interface, None)
                }
            };
            // The kernel compares names as 16 bytes, padded with zeros.
            let mut key = [0; libc::IFNAMSIZ];
            key[..interface.len()].copy_from_slice(interface.as_bytes());
            message(batch, attempt, kind, flags)
                .text(attribute::ELEMENTS_TABLE, table)
                .text(attribute::ELEMENTS_SET, set)
                .nested(attribute::ELEMENTS, |m| {
                    m.nested(attribute::LIST_ELEMENT, |m| {
                        m.nested(attribute::ELEMENT_KEY, |m| {
                            m.attribute(attribute::DATA_VALUE, &key);
                        });
                        if let Some(value) = value {
                            m.nested(attribute::ELEMENT_DATA, |m| {
                                m.attribute(attribute::DATA_VALUE, &value.octets());
                            });
                        }
                    });
                });
        }
    })
}

/// Deletes an `ip` table with all it holds; nothing happens if there is none.
pub(crate) fn delete_table(socket: &mut Socket, table: &str) -> Result<(), NetlinkError> {
    let result = transaction(socket, |batch| {
        message(batch, "delete a packet filter table", libc::NFT_MSG_DELTABLE, 0).text(attribute::TABLE_NAME, table);
    });
    match result {
        Err(error) if error.is(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// ICMP errors that quote a packet: destination unreachable, time exceeded, parameter problem.
const QUOTING_ICMP_TYPES: [u8; 3] = [3, 11, 12];
/// Behind 8 bytes of ICMP comes the quoted IP header: its checksum at 10, its source at 12.
const QUOTED_CHECKSUM: u32 = 8 + 10;
const QUOTED_SOURCE: u32 = 8 + 12;

/// (Re)places a table that writes `inside` as the quoted source into ICMP errors on their way to a
/// group of links, so that the sockets there recognise their own packets.
///
/// Only the quoted header's checksum is mended. The ICMP checksum covers both the address and that
/// checksum, whose changes cancel each other, so it stays right. The `nft` tool has no words for this.
pub(crate) fn mend_quoted_sources(
    socket: &mut Socket,
    table: &str,
    group: u32,
    inside: Ipv4Addr,
) -> Result<(), NetlinkError> {
    let create = libc::NLM_F_CREATE;
    transaction(socket, |batch| {
        let attempt = "create the ICMP table";
        // Created first so that the deletion always finds one.
        message(batch, attempt, libc::NFT_MSG_NEWTABLE, create).text(attribute::TABLE_NAME, table);
        message(batch, attempt, libc::NFT_MSG_DELTABLE, 0).text(attribute::TABLE_NAME, table);
        message(batch, attempt, libc::NFT_MSG_NEWTABLE, create).text(attribute::TABLE_NAME, table);
        message(batch, "create the ICMP chain", libc::NFT_MSG_NEWCHAIN, create)
            .text(attribute::CHAIN_TABLE, table)
            .text(attribute::CHAIN_NAME, "post")
            .nested(attribute::CHAIN_HOOK, |m| {
                m.big_number(attribute::HOOK_NUMBER, libc::NF_INET_POST_ROUTING as u32);
                // After source NAT (100), which rewrites the quoted packet too.
                m.big_number(attribute::HOOK_PRIORITY, 300);
            })
            .text(attribute::CHAIN_TYPE, "filter");
        for icmp_type in QUOTING_ICMP_TYPES {
            message(batch, "create an ICMP rule", libc::NFT_MSG_NEWRULE, create | libc::NLM_F_APPEND)
                .text(attribute::RULE_TABLE, table)
                .text(attribute::RULE_CHAIN, "post")
                .nested(attribute::RULE_EXPRESSIONS, |m| {
                    meta_equals(m, libc::NFT_META_OIFGROUP, &group.to_ne_bytes());
                    meta_equals(m, libc::NFT_META_L4PROTO, &[libc::IPPROTO_ICMP as u8]);
                    expression(m, "payload", |m| {
                        m.big_number(attribute::PAYLOAD_TARGET, REGISTER);
                        payload_place(m, 0, 1);
                    });
                    equals(m, &[icmp_type]);
                    expression(m, "immediate", |m| {
                        m.big_number(attribute::IMMEDIATE_TARGET, REGISTER);
                        m.nested(attribute::IMMEDIATE_DATA, |m| {
                            m.attribute(attribute::DATA_VALUE, &inside.octets());
                        });
                    });
                    expression(m, "payload", |m| {
                        m.big_number(attribute::PAYLOAD_SOURCE, REGISTER);
                        payload_place(m, QUOTED_SOURCE, 4);
                        let kind = libc::NFT_PAYLOAD_CSUM_INET as u32;
                        m.big_number(attribute::PAYLOAD_CHECKSUM_KIND, kind);
                        m.big_number(attribute::PAYLOAD_CHECKSUM_OFFSET, QUOTED_CHECKSUM);
                    });
                });
        }
    })
}

fn meta_equals(message: &mut Message<'_>, key: i32, value: &[u8]) {
    expression(message, "meta", |m| {
        m.big_number(attribute::META_TARGET, REGISTER);
        m.big_number(attribute::META_KEY, key as u32);
    });
    equals(message, value);
}

fn equals(message: &mut Message<'_>, value: &[u8]) {
    expression(message, "cmp", |m| {
        m.big_number(attribute::COMPARE_SOURCE, REGISTER);
        m.big_number(attribute::COMPARE_OPERATION, libc::NFT_CMP_EQ as u32);
        m.nested(attribute::COMPARE_DATA, |m| {
            m.attribute(attribute::DATA_VALUE, value);
        });
    });
}

fn payload_place(message: &mut Message<'_>, offset: u32, length: u32) {
    message.big_number(attribute::PAYLOAD_BASE, libc::NFT_PAYLOAD_TRANSPORT_HEADER as u32);
    message.big_number(attribute::PAYLOAD_OFFSET, offset);
    message.big_number(attribute::PAYLOAD_LENGTH, length);
}

fn expression(message: &mut Message<'_>, name: &str, fill: impl FnOnce(&mut Message<'_>)) {
    message.nested(attribute::LIST_ELEMENT, |m| {
        m.text(attribute::EXPRESSION_NAME, name);
        m.nested(attribute::EXPRESSION_DATA, fill);
    });
}

/// Wraps messages into a batch that the kernel commits as a whole.
fn transaction(socket: &mut Socket, fill: impl FnOnce(&mut Batch)) -> Result<(), NetlinkError> {
    // The header's last field names the subsystem, in network byte order.
    let [high, low] = SUBSYSTEM.to_be_bytes();
    let frame = [libc::AF_UNSPEC as u8, 0, high, low];
    let mut batch = Batch::new();
    batch.silent("begin a packet filter change", libc::NFNL_MSG_BATCH_BEGIN as u16, 0).raw(&frame);
    fill(&mut batch);
    batch.silent("commit a packet filter change", libc::NFNL_MSG_BATCH_END as u16, 0).raw(&frame);
    socket.execute(&batch)
}

fn message<'a>(batch: &'a mut Batch, attempt: &'static str, kind: i32, flags: i32) -> Message<'a> {
    let mut message = batch.message(attempt, Tolerate::Nothing, (SUBSYSTEM << 8) | kind as u16, flags);
    message.raw(&[libc::NFPROTO_IPV4 as u8, 0, 0, 0]);
    message
}
