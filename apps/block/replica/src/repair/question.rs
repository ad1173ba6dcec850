//! What replicas ask each other about blocks, and the encoded messages.

use onepipe_transaction::{Reader, Writer};

use crate::mark::Mark;
use crate::scrub::Summary;

const QUESTION: u8 = 0x10;
const ANSWER: u8 = 0x20;
const SUMMARIZE: u8 = 1;
const COPY: u8 = 2;
const INSTALL: u8 = 3;
const BEHIND: u8 = 4;
const FAILED: u8 = 5;

/// What a replica is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// Asks for the marks of consecutive blocks, once the replica has applied a position.
    Summarize {
        /// The first block.
        first: u64,
        /// Number of blocks.
        count: u32,
        /// The position.
        position: u64,
    },
    /// Asks for a copy of a block, once the replica has applied a position.
    Copy {
        /// The block.
        block: u64,
        /// The position.
        position: u64,
    },
    /// Asks the replica to replace its block by a copy, unless the block has changed since.
    Install {
        /// A position that the other replica had applied before it made the copy.
        as_of: u64,
        /// The copy.
        copy: Vec<u8>,
    },
}

/// What a replica answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// To [`Question::Summarize`].
    Summary(Summary),
    /// To [`Question::Copy`].
    Copy {
        /// A position that the replica had applied before it made the copy.
        as_of: u64,
        /// The copy. A block that is damaged has one, too, which says so.
        copy: Vec<u8>,
    },
    /// To [`Question::Install`].
    Installed {
        /// Whether the block was written. Otherwise it may have changed since the copy was made.
        is_written: bool,
    },
    /// The replica has not applied the position. It is to be asked again.
    Behind,
    /// The replica has ended, its disk fails, or the device has no such blocks.
    Failed,
}

/// A message between replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RepairMessage {
    /// A question with its number among those of the sender.
    Question(u64, Question),
    /// The answer to the question with this number.
    Answer(u64, Answer),
}

impl RepairMessage {
    /// Returns the encoded message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        match self {
            RepairMessage::Question(number, question) => {
                writer.u8(QUESTION | question.kind());
                writer.u64(*number);
                question.write(&mut writer);
            }
            RepairMessage::Answer(number, answer) => {
                writer.u8(ANSWER | answer.kind());
                writer.u64(*number);
                answer.write(&mut writer);
            }
        }
        bytes
    }

    /// Parses a message. Returns `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<RepairMessage> {
        let mut reader = Reader(bytes);
        let (tag, number) = (reader.u8()?, reader.u64()?);
        let kind = tag & 0xf;
        let message = match tag & 0xf0 {
            QUESTION => RepairMessage::Question(number, Question::parse(kind, &mut reader)?),
            ANSWER => RepairMessage::Answer(number, Answer::parse(kind, &mut reader)?),
            _ => return None,
        };
        reader.is_at_end().then_some(message)
    }
}

impl Question {
    fn kind(&self) -> u8 {
        match self {
            Question::Summarize { .. } => SUMMARIZE,
            Question::Copy { .. } => COPY,
            Question::Install { .. } => INSTALL,
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Question::Summarize { first, count, position } => {
                writer.u64(*first);
                writer.u32(*count);
                writer.u64(*position);
            }
            Question::Copy { block, position } => {
                writer.u64(*block);
                writer.u64(*position);
            }
            Question::Install { as_of, copy } => {
                writer.u64(*as_of);
                writer.bytes(copy);
            }
        }
    }

    fn parse(kind: u8, reader: &mut Reader<'_>) -> Option<Question> {
        Some(match kind {
            SUMMARIZE => Question::Summarize {
                first: reader.u64()?,
                count: reader.u32()?,
                position: reader.u64()?,
            },
            COPY => Question::Copy { block: reader.u64()?, position: reader.u64()? },
            INSTALL => Question::Install { as_of: reader.u64()?, copy: reader.bytes()?.to_vec() },
            _ => return None,
        })
    }
}

impl Answer {
    fn kind(&self) -> u8 {
        match self {
            Answer::Summary(_) => SUMMARIZE,
            Answer::Copy { .. } => COPY,
            Answer::Installed { .. } => INSTALL,
            Answer::Behind => BEHIND,
            Answer::Failed => FAILED,
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Answer::Summary(Summary { applied, first, marks }) => {
                writer.u64(*applied);
                writer.u64(*first);
                writer.u32(marks.len() as u32);
                for mark in marks {
                    writer.u8(u8::from(mark.is_some()));
                    if let Some(Mark { position, checksum }) = mark {
                        writer.u64(*position);
                        writer.u64(*checksum);
                    }
                }
            }
            Answer::Copy { as_of, copy } => {
                writer.u64(*as_of);
                writer.bytes(copy);
            }
            Answer::Installed { is_written } => writer.u8(u8::from(*is_written)),
            Answer::Behind | Answer::Failed => {}
        }
    }

    fn parse(kind: u8, reader: &mut Reader<'_>) -> Option<Answer> {
        Some(match kind {
            SUMMARIZE => {
                let (applied, first, mut marks) = (reader.u64()?, reader.u64()?, Vec::new());
                for _ in 0..reader.u32()? {
                    marks.push(parse_mark(reader)?);
                }
                Answer::Summary(Summary { applied, first, marks })
            }
            COPY => Answer::Copy { as_of: reader.u64()?, copy: reader.bytes()?.to_vec() },
            INSTALL => {
                let flag = reader.u8().filter(|flag| *flag <= 1)?;
                Answer::Installed { is_written: flag == 1 }
            }
            BEHIND => Answer::Behind,
            FAILED => Answer::Failed,
            _ => return None,
        })
    }
}

fn parse_mark(reader: &mut Reader<'_>) -> Option<Option<Mark>> {
    match reader.u8()? {
        0 => Some(None),
        1 => {
            let mark = Mark { position: reader.u64()?, checksum: reader.u64()? };
            mark.is_valid().then_some(Some(mark))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::change::BLOCK_LEN;

    fn mark(block: u64) -> impl Strategy<Value = Option<Mark>> {
        let written = (1u64..1 << 48, any::<u8>())
            .prop_map(move |(position, byte)| Some(Mark::of(block, position, &[byte; BLOCK_LEN])));
        prop_oneof![Just(None), Just(Some(Mark::default())), written]
    }

    fn summary() -> impl Strategy<Value = Answer> {
        (0u64..1 << 40, any::<u64>()).prop_flat_map(|(first, applied)| {
            let marks: Vec<_> = (first..first + 3).map(mark).collect();
            marks.prop_map(move |marks| Answer::Summary(Summary { applied, first, marks }))
        })
    }

    fn message() -> impl Strategy<Value = RepairMessage> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..40);
        let question = prop_oneof![
            any::<(u64, u32, u64)>().prop_map(|(first, count, position)| Question::Summarize {
                first,
                count,
                position
            }),
            any::<(u64, u64)>().prop_map(|(block, position)| Question::Copy { block, position }),
            (any::<u64>(), bytes()).prop_map(|(as_of, copy)| Question::Install { as_of, copy }),
        ];
        let answer = prop_oneof![
            summary(),
            (any::<u64>(), bytes()).prop_map(|(as_of, copy)| Answer::Copy { as_of, copy }),
            any::<bool>().prop_map(|is_written| Answer::Installed { is_written }),
            Just(Answer::Behind),
            Just(Answer::Failed),
        ];
        prop_oneof![
            (any::<u64>(), question).prop_map(|(at, one)| RepairMessage::Question(at, one)),
            (any::<u64>(), answer).prop_map(|(at, one)| RepairMessage::Answer(at, one)),
        ]
    }

    proptest! {
        #[test]
        fn encoded_message_is_parsed_and_no_part_of_it(message in message()) {
            let bytes = message.to_bytes();
            prop_assert_eq!(RepairMessage::parse(&bytes), Some(message));
            for len in 0..bytes.len() {
                prop_assert_eq!(RepairMessage::parse(&bytes[..len]), None);
            }
        }

        #[test]
        fn bytes_from_outside_are_refused_or_parsed(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            if let Some(message) = RepairMessage::parse(&bytes) {
                prop_assert_eq!(message.to_bytes(), bytes);
            }
        }
    }
}
