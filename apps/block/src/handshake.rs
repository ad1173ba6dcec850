//! The fixed newstyle handshake (NBD's specification, sections "Newstyle negotiation", "Fixed
//! newstyle negotiation" and "Option types"). TLS is not offered (section "NOTLS mode").

use alloc::vec::Vec;

use crate::config::Config;
use crate::end::End;
use crate::export::Export;
use crate::input::{Fields, Input};
use crate::option_reply::{OptionReply, export_name_reply};
use crate::output::Output;
use crate::values::{OPTION_MAGIC, SERVER_MAGIC, handshake_flag, option, option_reply};

/// Negotiates until the client chooses the export.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handshake {
    expects: Expects,
    has_zeroes: bool,
    is_structured: bool,
    options: u32,
}

/// What the client sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Expects {
    ClientFlags,
    Option,
    Data {
        option: u32,
        length: u32,
    },
    /// Data of an option that is too long.
    Excess {
        option: u32,
        remaining: u32,
    },
}

/// What a step of the handshake led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// More bytes are needed.
    Waits,
    /// There may be more to parse.
    Continues,
    /// The transmission begins, with structured replies or without.
    Transmits { is_structured: bool },
    /// The session ends.
    Ends(End),
}

impl Handshake {
    /// Sends the server's first words.
    pub fn begin(output: &mut Output) -> Handshake {
        output.push(&SERVER_MAGIC.to_be_bytes());
        output.push(&OPTION_MAGIC.to_be_bytes());
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        output.push(&flags.to_be_bytes());
        Handshake {
            expects: Expects::ClientFlags,
            has_zeroes: true,
            is_structured: false,
            options: 0,
        }
    }

    /// Parses the next part of the handshake, if it has arrived.
    pub fn advance(
        &mut self,
        input: &mut Input,
        export: &Export,
        config: &Config,
        output: &mut Output,
    ) -> Step {
        match self.expects {
            Expects::ClientFlags => match input.take(4) {
                Some(flags) => self.handle_client_flags(flags),
                None => Step::Waits,
            },
            Expects::Option => match input.take(16) {
                Some(header) => self.handle_header(header, config),
                None => Step::Waits,
            },
            Expects::Data { option, length } => match input.take(length as usize) {
                Some(data) => {
                    self.expects = Expects::Option;
                    self.handle_option(option, data, export, output)
                }
                None => Step::Waits,
            },
            Expects::Excess { option, remaining } => {
                let skipped = input.take_up_to(remaining as usize).len();
                // At most `remaining`, so that it fits.
                let remaining = remaining - skipped as u32;
                if remaining > 0 {
                    self.expects = Expects::Excess { option, remaining };
                    return Step::Waits;
                }
                self.expects = Expects::Option;
                let text = "the option is too long";
                OptionReply::error(option, option_reply::ERR_TOO_BIG, text).push(output);
                Step::Continues
            }
        }
    }

    /// A client with a flag that the server does not know is disconnected (section "Client flags").
    fn handle_client_flags(&mut self, flags: &[u8]) -> Step {
        let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        match Fields(flags).u32() {
            Some(flags) if flags & !known == 0 => {
                self.has_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) == 0;
                self.expects = Expects::Option;
                Step::Continues
            }
            _ => Step::Ends(End::UnknownClientFlags),
        }
    }

    fn handle_header(&mut self, header: &[u8], config: &Config) -> Step {
        let mut fields = Fields(header);
        let (Some(OPTION_MAGIC), Some(option), Some(length)) =
            (fields.u64(), fields.u32(), fields.u32())
        else {
            return Step::Ends(End::WrongMagic);
        };
        self.options += 1;
        if self.options > config.options_max {
            return Step::Ends(End::TooManyOptions);
        }
        self.expects = match length <= config.option_bytes_max {
            true => Expects::Data { option, length },
            // A name of this length is unknown, and the option has no reply for errors.
            false if option == option::EXPORT_NAME => return Step::Ends(End::UnknownExport),
            false => Expects::Excess { option, remaining: length },
        };
        Step::Continues
    }

    fn handle_option(
        &mut self,
        option: u32,
        data: &[u8],
        export: &Export,
        output: &mut Output,
    ) -> Step {
        let error = |kind, text| OptionReply::error(option, kind, text);
        match option {
            option::EXPORT_NAME if !export.is_named(data) => {
                return Step::Ends(End::UnknownExport);
            }
            option::EXPORT_NAME => {
                export_name_reply(export, self.is_structured, self.has_zeroes, output);
                return Step::Transmits { is_structured: self.is_structured };
            }
            option::ABORT => {
                OptionReply::ack(option).push(output);
                return Step::Ends(End::Disconnected);
            }
            option::LIST | option::STRUCTURED_REPLY if !data.is_empty() => {
                error(option_reply::ERR_INVALID, "the option has no data").push(output);
            }
            option::LIST => {
                OptionReply::server(option, export).push(output);
                OptionReply::ack(option).push(output);
            }
            option::STRUCTURED_REPLY => {
                self.is_structured = true;
                OptionReply::ack(option).push(output);
            }
            option::INFO | option::GO => match Query::parse(data) {
                None => {
                    error(option_reply::ERR_INVALID, "the data of the option are wrong")
                        .push(output);
                }
                Some(query) if !export.is_named(query.name) => {
                    error(option_reply::ERR_UNKNOWN, "there is no export of this name")
                        .push(output);
                }
                Some(query) => {
                    let is_structured = self.is_structured;
                    for reply in OptionReply::info(option, export, &query.wanted, is_structured) {
                        reply.push(output);
                    }
                    OptionReply::ack(option).push(output);
                    if option == option::GO {
                        return Step::Transmits { is_structured };
                    }
                }
            },
            _ => error(option_reply::ERR_UNSUP, "the option is unknown").push(output),
        }
        Step::Continues
    }
}

/// The data of `INFO` and `GO`: a name, and the properties that the client asks for.
struct Query<'a> {
    name: &'a [u8],
    wanted: Vec<u16>,
}

impl<'a> Query<'a> {
    fn parse(data: &'a [u8]) -> Option<Query<'a>> {
        let mut fields = Fields(data);
        let length = fields.u32()?;
        let name = fields.bytes(length as usize)?;
        let count = fields.u16()?;
        let wanted = (0..count).map(|_| fields.u16()).collect::<Option<Vec<u16>>>()?;
        fields.0.is_empty().then_some(Query { name, wanted })
    }
}
