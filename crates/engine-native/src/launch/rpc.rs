//! The few messages of CRIU's RPC protocol that are needed, in protobuf's encoding.
//!
//! Most options go by a configuration file, in the words of CRIU's command line; the messages carry what cannot: descriptors,
//! and the conversation at the points where CRIU waits for others to do their part.

use super::protocol::WatchedPath;

/// What is asked of CRIU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Dump = 1,
    Restore = 2,
    Notify = 6,
}

/// Options that only the request can carry.
#[derive(Debug)]
pub(super) struct Options<'a> {
    /// The image's folder, a descriptor of the process that made the socket.
    pub(super) image: i32,
    /// Where CRIU writes its log and whatever is not part of the image, likewise.
    pub(super) work: i32,
    /// The first process, of a dump.
    pub(super) pid: Option<u32>,
    /// The file with all other options.
    pub(super) config: &'a str,
    /// The log's name in the work folder.
    pub(super) log: &'a str,
}

/// What CRIU says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Response {
    /// What it answers to.
    pub(super) kind: u64,
    /// Whether that went well.
    pub(super) success: bool,
    /// At which point it waits.
    pub(super) notify: Option<String>,
    /// The first process.
    pub(super) pid: Option<u32>,
}

/// CRIU's level for what it is about to do: which process a failure was about stands in lines that are no errors. With one
/// more it tells of every range of pages, thousands of lines while the sandbox stands still.
const LOG_LEVEL: u64 = 3;

pub(super) fn request(kind: Kind, options: &Options<'_>) -> Vec<u8> {
    let mut body = Writer::default();
    body.number(1, u64::from(options.image.unsigned_abs()));
    if let Some(pid) = options.pid {
        body.number(2, u64::from(pid));
    }
    body.number(9, LOG_LEVEL);
    body.text(10, options.log);
    body.number(12, 1);
    body.number(17, u64::from(options.work.unsigned_abs()));
    body.text(51, options.config);
    let mut message = Writer::default();
    message.number(1, kind as u64);
    message.bytes(2, &body.0);
    message.0
}

/// CRIU's own file of known paths of inodes: two magic numbers, then messages with their lengths.
pub(super) fn known_paths(watched: &[WatchedPath]) -> Vec<u8> {
    const MAGIC: [u32; 2] = [0x5510_5940, 0x5700_4059];
    let mut file = MAGIC.map(u32::to_le_bytes).concat();
    for WatchedPath { device, inode, path } in watched {
        let mut entry = Writer::default();
        entry.number(1, u64::from(*device));
        entry.number(2, *inode);
        entry.text(3, path);
        let length = u32::try_from(entry.0.len()).unwrap_or(u32::MAX);
        file.extend(length.to_le_bytes());
        file.extend(entry.0);
    }
    file
}

/// The answer to a [`Response::notify`].
pub(super) fn go_on(success: bool) -> Vec<u8> {
    let mut message = Writer::default();
    message.number(1, Kind::Notify as u64);
    message.number(3, u64::from(success));
    message.0
}

/// Reads a response; what is not understood is passed over.
pub(super) fn response(bytes: &[u8]) -> Option<Response> {
    let mut response = Response::default();
    for (field, value) in fields(bytes)? {
        match (field, value) {
            (1, Value::Number(kind)) => response.kind = kind,
            (2, Value::Number(success)) => response.success = success != 0,
            (4, Value::Bytes(restored)) => {
                response.pid = fields(restored)?.into_iter().find_map(|(field, value)| value.pid_if(field == 1));
            }
            (5, Value::Bytes(notify)) => {
                for (field, value) in fields(notify)? {
                    match value {
                        Value::Bytes(script) if field == 1 => {
                            response.notify = Some(String::from_utf8_lossy(script).into_owned());
                        }
                        other => response.pid = other.pid_if(field == 2).or(response.pid),
                    }
                }
            }
            _ => {}
        }
    }
    Some(response)
}

#[derive(Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(0x80 | (value & 0x7f) as u8);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn text(&mut self, field: u64, value: &str) {
        self.bytes(field, value.as_bytes());
    }
}

#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    fn pid_if(self, wanted: bool) -> Option<u32> {
        match self {
            Value::Number(pid) if wanted => u32::try_from(pid).ok().filter(|pid| *pid > 0),
            _ => None,
        }
    }
}

fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            1 => Value::Bytes(take(&mut bytes, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                Value::Bytes(take(&mut bytes, length)?)
            }
            5 => Value::Bytes(take(&mut bytes, 4)?),
            _ => return None,
        };
        found.push((key >> 3, value));
    }
    Some(found)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_criu_reads() {
        let options = Options { image: 5, work: 300, pid: Some(7), config: "c", log: "l" };
        let bytes = request(Kind::Dump, &options);
        let expected: &[u8] = &[8, 1, 18, 19, 8, 5, 16, 7, 72, 3, 82, 1, b'l', 96, 1, 136, 1, 172, 2, 154, 3, 1, b'c'];
        assert_eq!(bytes, expected);
        assert_eq!(go_on(true), [8, 6, 24, 1]);
    }

    #[test]
    fn paths_are_written_as_criu_does() {
        let file = known_paths(&[WatchedPath { device: 0x31, inode: 300, path: "/a".into() }]);
        assert_eq!(file[..8], [0x40, 0x59, 0x10, 0x55, 0x59, 0x40, 0x00, 0x57]);
        assert_eq!(file[8..], [9, 0, 0, 0, 8, 0x31, 16, 172, 2, 26, 2, b'/', b'a']);
    }

    #[test]
    fn responses_are_read() {
        let notify = [8, 6, 16, 1, 42, 8, 10, 4, b'a', b'b', b'c', b'd', 16, 9];
        let read = response(&notify).unwrap();
        assert_eq!((read.kind, read.success, read.pid), (6, true, Some(9)));
        assert_eq!(read.notify.as_deref(), Some("abcd"));
        let restored = [8, 2, 16, 1, 34, 3, 8, 0x90, 0x4e];
        assert_eq!(response(&restored).unwrap().pid, Some(10000));
        // A failed restore has no process: -1.
        let failed = [8, 2, 16, 0, 34, 11, 8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert_eq!(response(&failed).unwrap(), Response { kind: 2, ..Response::default() });
        assert!(response(&[8]).is_none());
        assert!(response(&[18, 200]).is_none());
    }
}
