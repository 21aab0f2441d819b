//! Messages of `process.Process`.

use std::collections::BTreeMap;

use roost_host::ExecInfo;
use roost_model::TerminalSize;
use serde::{Deserialize, Serialize};

use crate::envd::connect::json::{Base64, EnumValue, Uint32, base64_of, or_default};
use crate::envd::connect::{ConnectError, Event};

/// An answer that says only that it is done.
#[derive(Debug, Serialize)]
pub(super) struct Empty {}

#[derive(Debug, Deserialize)]
pub(super) struct List {}

#[derive(Debug, Serialize)]
pub(super) struct ListAnswer {
    pub(super) processes: Vec<ProcessInfo>,
}

#[derive(Debug, Serialize)]
pub(super) struct ProcessInfo {
    config: ProcessConfig,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
}

impl ProcessInfo {
    /// What is told of an exec; what every process is given is left out of its environment.
    pub(super) fn of(mut exec: ExecInfo, own: &[(String, String)]) -> Self {
        exec.env.retain(|name, value| !own.iter().any(|own| (&own.0, &own.1) == (name, value)));
        let mut argv = exec.argv.into_iter();
        let cmd = argv.next().unwrap_or_default();
        let cwd = Some(exec.cwd).filter(|cwd| !cwd.is_empty());
        Self {
            config: ProcessConfig { cmd, args: argv.collect(), envs: exec.env, cwd },
            pid: u32::try_from(exec.pid).unwrap_or(0),
            tag: exec.tag,
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ProcessConfig {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) cmd: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) args: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cwd: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Start {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) process: ProcessConfig,
    pub(super) pty: Option<Pty>,
    pub(super) tag: Option<String>,
    /// Old clients do not say, and count on it.
    pub(super) stdin: Option<bool>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub(super) struct Pty {
    #[serde(default, deserialize_with = "or_default")]
    size: Size,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct Size {
    #[serde(default, deserialize_with = "or_default")]
    cols: Uint32,
    #[serde(default, deserialize_with = "or_default")]
    rows: Uint32,
}

impl TryFrom<Pty> for TerminalSize {
    type Error = ConnectError;

    fn try_from(pty: Pty) -> Result<Self, ConnectError> {
        let number = |Uint32(number): Uint32| {
            u16::try_from(number)
                .map_err(|_| ConnectError::invalid(format!("no terminal is {number} characters wide or high")))
        };
        Ok(Self { cols: number(pty.size.cols)?, rows: number(pty.size.rows)? })
    }
}

/// Which process is meant: one of the two.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Selector {
    pub(super) pid: Option<Uint32>,
    pub(super) tag: Option<String>,
}

/// A request that only names a process.
#[derive(Debug, Deserialize)]
pub(super) struct Selected {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) process: Selector,
}

#[derive(Debug, Deserialize)]
pub(super) struct Update {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) process: Selector,
    pub(super) pty: Option<Pty>,
}

/// Input of a process: one of the two.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Input {
    pub(super) stdin: Option<Base64>,
    pub(super) pty: Option<Base64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SendInput {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) process: Selector,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) input: Input,
}

/// A message of streamed input: one of the three.
#[derive(Debug, Deserialize)]
pub(super) struct StreamInput {
    pub(super) start: Option<Selected>,
    pub(super) data: Option<InputData>,
    #[serde(rename = "keepalive")]
    pub(super) _keepalive: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
pub(super) struct InputData {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) input: Input,
}

#[derive(Debug, Deserialize)]
pub(super) struct SendSignal {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) process: Selector,
    signal: Option<EnumValue>,
}

impl SendSignal {
    /// The number of the signal.
    pub(super) fn number(&self) -> Result<i32, ConnectError> {
        match &self.signal {
            Some(EnumValue::Name(name)) if name == "SIGNAL_SIGKILL" => Ok(9),
            Some(EnumValue::Name(name)) if name == "SIGNAL_SIGTERM" => Ok(15),
            Some(EnumValue::Number(number @ (9 | 15))) => {
                i32::try_from(*number).map_err(|_| unknown_signal(&self.signal))
            }
            other => Err(unknown_signal(other)),
        }
    }
}

fn unknown_signal(signal: &Option<EnumValue>) -> ConnectError {
    let found = match signal {
        None => "none".to_owned(),
        Some(EnumValue::Name(name)) => format!("`{name}`"),
        Some(EnumValue::Number(number)) => format!("`{number}`"),
    };
    ConnectError::invalid(format!("a signal is SIGNAL_SIGTERM or SIGNAL_SIGKILL, not {found}"))
}

/// A message about a process.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    pub(super) event: What,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Start { pid: u32 },
    Data(Data),
    End(Ended),
    Keepalive {},
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Data {
    Stdout(Chunk),
    Stderr(Chunk),
    Pty(Chunk),
}

/// Bytes exactly as they were written.
#[derive(Debug)]
pub(super) struct Chunk(pub(super) bytes::Bytes);

impl Serialize for Chunk {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        base64_of(&self.0, serializer)
    }
}

/// How a process ended.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ended {
    pub(super) exit_code: i32,
    pub(super) exited: bool,
    pub(super) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl Event for Told {
    fn keepalive() -> Self {
        Self { event: What::Keepalive {} }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_the_sdks_send_is_understood() {
        let start: Start = read(json!({
            "process": {"cmd": "/bin/bash", "args": ["-l", "-c", "true"], "envs": {"A_b": "1"}, "cwd": "/tmp"},
            "pty": {"size": {"cols": 80, "rows": "24"}}, "stdin": false, "newer": [1],
        }));
        assert_eq!((start.process.args.len(), start.process.envs["A_b"].as_str(), start.stdin), (3, "1", Some(false)));
        let size = TerminalSize::try_from(start.pty.unwrap()).unwrap();
        assert_eq!((size.cols, size.rows), (80, 24));
        let bare: Start = read(json!({"process": {"cmd": "ls", "args": null, "envs": null, "cwd": null}, "pty": null}));
        assert!(bare.process.cwd.is_none() && bare.stdin.is_none() && bare.tag.is_none());
        let input: SendInput = read(json!({"process": {"pid": "7"}, "input": {"stdin": "aGk"}}));
        assert_eq!((input.process.pid, input.input.stdin), (Some(Uint32(7)), Some(Base64(b"hi".to_vec()))));
        let alive: StreamInput = read(json!({"keepalive": {}}));
        assert!(alive.start.is_none() && alive.data.is_none());
    }

    #[test]
    fn signals_are_names_or_numbers() {
        let number = |signal| read::<SendSignal>(json!({"process": {"pid": 1}, "signal": signal})).number();
        assert_eq!((number(json!("SIGNAL_SIGKILL")).unwrap(), number(json!(15)).unwrap()), (9, 15));
        assert!(
            number(json!("SIGNAL_UNSPECIFIED")).is_err() && number(json!(0)).is_err() && number(json!(null)).is_err()
        );
    }

    #[test]
    fn events_are_what_proto3_makes_of_them() {
        let text = |event| serde_json::to_value(Told { event }).unwrap();
        assert_eq!(text(What::Start { pid: 7 }), json!({"event": {"start": {"pid": 7}}}));
        let data = What::Data(Data::Pty(Chunk(bytes::Bytes::from_static(b"\xff\n"))));
        assert_eq!(text(data), json!({"event": {"data": {"pty": "/wo="}}}));
        assert_eq!(serde_json::to_value(Told::keepalive()).unwrap(), json!({"event": {"keepalive": {}}}));
    }

    #[test]
    fn fuzz_messages_are_read_or_refused() {
        let corpus = [
            r#"{"process":{"cmd":"sh","args":["-c","x"],"envs":{"A":"1"},"cwd":"/"},"pty":{"size":{"cols":80,"rows":24}}}"#,
            r#"{"process":{"pid":12},"input":{"stdin":"aGVsbG8="},"signal":"SIGNAL_SIGKILL"}"#,
            r#"{"data":{"input":{"pty":"aGVsbG8_-"}},"keepalive":{},"start":{"process":{"tag":"a"}}}"#,
        ];
        roost_fuzz::attack(&corpus, |bytes| {
            drop(serde_json::from_slice::<Start>(bytes));
            drop(serde_json::from_slice::<Selected>(bytes));
            drop(serde_json::from_slice::<Update>(bytes));
            drop(serde_json::from_slice::<SendInput>(bytes));
            drop(serde_json::from_slice::<StreamInput>(bytes));
            drop(serde_json::from_slice::<SendSignal>(bytes));
        });
    }
}
