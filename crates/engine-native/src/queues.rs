//! What waits at the sockets of a sandbox in the host's kernel.
//!
//! The kernel charges the data in these queues to a control group for TCP alone, and on control groups v1 not all of that. Every
//! open socket may hold some hundred kilobytes, so a sandbox with many of them could hold more of the host's memory than its limit.
//! The kernel shows the queues of a network namespace in a few tables, and a sandbox has one namespace.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// The tables, and where the bytes of a row are.
const TABLES: [(&str, Bytes); 10] = [
    ("netlink", Bytes::Column(4)),
    ("packet", Bytes::Column(6)),
    ("icmp", Bytes::Queues),
    ("icmp6", Bytes::Queues),
    ("raw", Bytes::Queues),
    ("raw6", Bytes::Queues),
    ("udp", Bytes::Queues),
    ("udp6", Bytes::Queues),
    ("tcp", Bytes::Queues),
    ("tcp6", Bytes::Queues),
];

/// Longer tables are not read to their end: a row has some hundred bytes, so this is more than a hundred thousand sockets.
const MOST_TEXT: u64 = 16 << 20;

/// Where a row of a table says how many bytes wait.
#[derive(Debug, Clone, Copy)]
enum Bytes {
    /// In this column, as a decimal number.
    Column(usize),
    /// In the fifth column, as two hexadecimal numbers: `sent:received`.
    Queues,
}

impl Bytes {
    /// Returns the bytes of one row; those of the heading, which has no numbers, are 0.
    fn of(self, row: &str) -> u64 {
        let mut columns = row.split_ascii_whitespace();
        match self {
            Self::Column(place) => columns.nth(place).and_then(|word| word.parse().ok()).unwrap_or(0),
            Self::Queues => {
                let numbers = columns.nth(4).and_then(|word| word.split_once(':'));
                let number = |word| u64::from_str_radix(word, 16).unwrap_or(0);
                numbers.map_or(0, |(sent, received)| number(sent) + number(received))
            }
        }
    }
}

/// Sums the queues of a network namespace up, until the sum is beyond `enough`. `open` opens a table of the namespace.
pub(crate) fn queued(open: impl Fn(&str) -> io::Result<Option<File>>, enough: u64) -> io::Result<u64> {
    let mut sum = 0;
    for (name, bytes) in TABLES {
        match open(name) {
            Ok(Some(table)) => sum += sum_of(table, bytes, enough.saturating_sub(sum))?,
            Ok(None) => return Ok(sum),
            // A kernel that was built without a protocol has no table of it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if sum > enough {
            break;
        }
    }
    Ok(sum)
}

fn sum_of(table: impl Read, bytes: Bytes, enough: u64) -> io::Result<u64> {
    let mut rows = BufReader::with_capacity(64 << 10, table.take(MOST_TEXT));
    let (mut sum, mut row) = (0, String::new());
    while sum <= enough && rows.read_line(&mut row)? > 0 {
        sum += bytes.of(&row);
        row.clear();
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETLINK: &str = "\
sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
0000000000000000 0   1187       00000440 212992   0        0     2        5        14817
0000000000000000 15  1          00000001 8        0        0     2        0        1049
";
    const UDP: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  299: 00000000:0044 00000000:0000 07 00000010:00001000 00:00000000 00000000     0        0 1 2 0000000000000000 0
";

    #[test]
    fn rows_are_summed_up() {
        assert_eq!(sum_of(NETLINK.as_bytes(), Bytes::Column(4), u64::MAX).unwrap(), 213_000);
        assert_eq!(sum_of(UDP.as_bytes(), Bytes::Queues, u64::MAX).unwrap(), 0x1010);
    }

    #[test]
    fn sum_ends_once_it_is_enough() {
        assert_eq!(sum_of(NETLINK.as_bytes(), Bytes::Column(4), 1000).unwrap(), 212_992);
    }

    #[test]
    fn unread_datagram_is_found_on_this_host() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.send_to(&[1; 10_000], receiver.local_addr().unwrap()).unwrap();
        let open = |name: &str| match File::open(format!("/proc/self/net/{name}")) {
            Ok(table) => Ok(Some(table)),
            Err(error) => Err(error),
        };
        assert!(queued(open, u64::MAX).unwrap() >= 10_000);
    }
}
