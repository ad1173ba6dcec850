//! Events of a history and their JSON form, which is that of Jepsen and Elle.

use std::fmt;

use serde::de::Error as _;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;

/// Name of a key of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Key {
    /// A key that is a number.
    Number(i64),
    /// A key that is a text.
    Text(String),
}

impl From<i64> for Key {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::Text(text.to_string())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// What a read returned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Found {
    /// Nothing: an absent list or register; or, in an invocation, not known yet.
    #[default]
    Nil,
    /// The elements of a list, oldest first.
    List(Vec<i64>),
    /// The value of a register.
    Value(i64),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::List(elements) => write!(f, "{elements:?}"),
            Self::Value(value) => write!(f, "{value}"),
        }
    }
}

/// One operation of a transaction. In JSON: `["append", key, element]`, `["w", key, value]` or
/// `["r", key, found]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Appends an element, which is unique for its key, to a list.
    Append {
        /// The list.
        key: Key,
        /// The appended element.
        element: i64,
    },
    /// Overwrites a register with a value that is unique for its key.
    Write {
        /// The register.
        key: Key,
        /// The written value.
        value: i64,
    },
    /// Reads a list or a register.
    Read {
        /// The list or register.
        key: Key,
        /// The result; [`Found::Nil`] in an invocation.
        found: Found,
    },
}

impl Operation {
    /// Returns an operation that appends `element` to the list `key`.
    pub fn append(key: impl Into<Key>, element: i64) -> Self {
        Self::Append { key: key.into(), element }
    }

    /// Returns an operation that writes `value` to the register `key`.
    pub fn write(key: impl Into<Key>, value: i64) -> Self {
        Self::Write { key: key.into(), value }
    }

    /// Returns a read of `key` without a result, for an invocation.
    pub fn read(key: impl Into<Key>) -> Self {
        Self::Read { key: key.into(), found: Found::Nil }
    }

    /// Returns the key of this operation.
    pub fn key(&self) -> &Key {
        match self {
            Self::Append { key, .. } | Self::Write { key, .. } | Self::Read { key, .. } => key,
        }
    }

    /// Returns the appended or written value; `None` for a read.
    pub fn written(&self) -> Option<i64> {
        match self {
            Self::Append { element: written, .. } | Self::Write { value: written, .. } => {
                Some(*written)
            }
            Self::Read { .. } => None,
        }
    }

    /// Returns whether `result` is this operation, with or without the result of a read.
    pub(crate) fn is_answered_by(&self, result: &Self) -> bool {
        match (self, result) {
            (Self::Read { key, .. }, Self::Read { key: other, .. }) => key == other,
            _ => self == result,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append { key, element } => write!(f, "append({key}, {element})"),
            Self::Write { key, value } => write!(f, "write({key}, {value})"),
            Self::Read { key, found } => write!(f, "read({key}) -> {found}"),
        }
    }
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut parts = serializer.serialize_seq(Some(3))?;
        match self {
            Self::Append { key, element } => {
                parts.serialize_element("append")?;
                parts.serialize_element(key)?;
                parts.serialize_element(element)?;
            }
            Self::Write { key, value } => {
                parts.serialize_element("w")?;
                parts.serialize_element(key)?;
                parts.serialize_element(value)?;
            }
            Self::Read { key, found } => {
                parts.serialize_element("r")?;
                parts.serialize_element(key)?;
                match found {
                    Found::Nil => parts.serialize_element(&())?,
                    Found::List(elements) => parts.serialize_element(elements)?,
                    Found::Value(value) => parts.serialize_element(value)?,
                }
            }
        }
        parts.end()
    }
}

impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (function, key, argument) = <(String, Key, Json)>::deserialize(deserializer)?;
        let number = |argument: &Json| {
            argument.as_i64().ok_or_else(|| D::Error::custom(format!("{argument} is no integer")))
        };
        match function.as_str() {
            "append" => Ok(Self::Append { key, element: number(&argument)? }),
            "w" => Ok(Self::Write { key, value: number(&argument)? }),
            "r" => {
                let found = match &argument {
                    Json::Null => Found::Nil,
                    Json::Array(elements) => {
                        Found::List(elements.iter().map(number).collect::<Result<_, _>>()?)
                    }
                    value => Found::Value(number(value)?),
                };
                Ok(Self::Read { key, found })
            }
            other => Err(D::Error::custom(format!("unknown operation {other:?}"))),
        }
    }
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// A process requests a transaction.
    Invoke,
    /// The transaction has committed, with these results.
    Ok,
    /// The transaction has certainly not taken effect and never will.
    Fail,
    /// The outcome is unknown: the transaction may take effect at any later time, or never.
    Info,
}

/// One event of a history. Its index is its position in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of the event.
    pub kind: EventKind,
    /// The client that requested the transaction; it has one transaction at a time.
    pub process: u32,
    /// Wall time of the event in ns since 1970.
    pub time_ns: u64,
    /// The operations of the transaction, in their order.
    pub operations: Vec<Operation>,
}

/// The JSON form of an event, for writing.
#[derive(Serialize)]
struct Line<'a> {
    index: usize,
    #[serde(rename = "type")]
    kind: EventKind,
    f: &'static str,
    process: u32,
    time: u64,
    value: &'a [Operation],
}

impl Event {
    /// Returns the event at position `index` of a history as one line of JSON.
    pub fn to_json(&self, index: usize) -> serde_json::Result<String> {
        serde_json::to_string(&Line {
            index,
            kind: self.kind,
            f: "txn",
            process: self.process,
            time: self.time_ns,
            value: &self.operations,
        })
    }

    /// Parses an event from one line of JSON. Returns `None` for an event that is no transaction,
    /// such as an injected fault: its `f` is not `txn`, or its `process` is no number.
    pub fn from_json(line: &str) -> serde_json::Result<Option<Self>> {
        /// The JSON form of an event, for reading.
        #[derive(Deserialize)]
        struct Parsed {
            #[serde(rename = "type")]
            kind: EventKind,
            f: Option<String>,
            process: Json,
            #[serde(default)]
            time: u64,
            value: Option<Json>,
        }
        let parsed: Parsed = serde_json::from_str(line)?;
        let Json::Number(process) = parsed.process else { return Ok(None) };
        if parsed.f.is_some_and(|f| f != "txn") {
            return Ok(None);
        }
        let process = process.as_u64().and_then(|process| u32::try_from(process).ok());
        let process =
            process.ok_or_else(|| serde_json::Error::custom("the process is above 32 bits"))?;
        let operations = match parsed.value {
            None | Some(Json::Null) => Vec::new(),
            Some(value) => serde_json::from_value(value)?,
        };
        Ok(Some(Self { kind: parsed.kind, process, time_ns: parsed.time, operations }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_a_round_trip() {
        let read = |key: Key, found| Operation::Read { key, found };
        let event = Event {
            kind: EventKind::Ok,
            process: 3,
            time_ns: 12,
            operations: vec![
                Operation::append("x", 1),
                Operation::write(7, -2),
                read("x".into(), Found::List(vec![1, 2])),
                read(7.into(), Found::Value(5)),
                read(8.into(), Found::Nil),
            ],
        };
        let line = event.to_json(9).expect("an event has a JSON form");
        let value = r#"[["append","x",1],["w",7,-2],["r","x",[1,2]],["r",7,5],["r",8,null]]"#;
        assert_eq!(
            line,
            format!(r#"{{"index":9,"type":"ok","f":"txn","process":3,"time":12,"value":{value}}}"#)
        );
        assert_eq!(Event::from_json(&line).expect("well-formed"), Some(event));
    }

    #[test]
    fn faults_are_skipped_and_damaged_lines_refused() {
        let fault = r#"{"type":"info","f":"start-partition","process":"nemesis"}"#;
        assert_eq!(Event::from_json(fault).expect("well-formed"), None);
        for line in [
            "",
            "{}",
            r#"{"type":"maybe","process":1}"#,
            r#"{"type":"ok","process":1,"value":[["cas","x",1]]}"#,
            r#"{"type":"ok","process":1,"value":[["append","x",1.5]]}"#,
            r#"{"type":"ok","process":1,"value":[["append","x"]]}"#,
            r#"{"type":"ok","process":1,"value":[["r",null,1]]}"#,
            r#"{"type":"ok","process":1,"time":-1}"#,
            r#"{"type":"ok","process":-1}"#,
            r#"{"type":"ok","process":4294967296}"#,
        ] {
            Event::from_json(line).expect_err(line);
        }
    }
}
