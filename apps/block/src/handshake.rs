//! The fixed newstyle handshake (NBD's specification, sections "Newstyle negotiation", "Fixed
//! newstyle negotiation" and "Option types"). TLS is not offered (section "NOTLS mode").

use alloc::vec::Vec;

use crate::config::Config;
use crate::end::End;
use crate::export::Export;
use crate::input::{Fields, Input};
use crate::option_reply::{OptionReply, export_name_reply};
use crate::output::Output;
use crate::values::{OPTION_MAGIC, SERVER_MAGIC, allocation, handshake_flag, option, option_reply};

/// Negotiates until the client chooses the export.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handshake {
    expects: Expects,
    has_zeroes: bool,
    negotiated: Negotiated,
    options: u32,
}

/// What both ends have agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Negotiated {
    /// Whether replies are structured.
    pub is_structured: bool,
    /// Whether the client asks for the status of blocks.
    pub has_allocation: bool,
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
    /// The transmission begins.
    Transmits(Negotiated),
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
            negotiated: Negotiated::default(),
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
        let Negotiated { is_structured, .. } = self.negotiated;
        let error = |kind, text| OptionReply::error(option, kind, text);
        match option {
            option::EXPORT_NAME if !export.is_named(data) => {
                return Step::Ends(End::UnknownExport);
            }
            option::EXPORT_NAME => {
                export_name_reply(export, is_structured, self.has_zeroes, output);
                return Step::Transmits(self.negotiated);
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
                self.negotiated.is_structured = true;
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
                    for reply in OptionReply::info(option, export, &query.wanted, is_structured) {
                        reply.push(output);
                    }
                    OptionReply::ack(option).push(output);
                    if option == option::GO {
                        return Step::Transmits(self.negotiated);
                    }
                }
            },
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT if export.knows_allocation => {
                self.handle_meta_context(option, data, export, output);
            }
            _ => error(option_reply::ERR_UNSUP, "the option is unknown").push(output),
        }
        Step::Continues
    }

    /// Lists or selects metadata contexts, of which there is one (section "Metadata querying").
    fn handle_meta_context(
        &mut self,
        option: u32,
        data: &[u8],
        export: &Export,
        output: &mut Output,
    ) {
        let is_list = option == option::LIST_META_CONTEXT;
        if !is_list {
            // The option replaces an earlier selection also when it fails.
            self.negotiated.has_allocation = false;
        }
        let refused = match ContextQuery::parse(data) {
            _ if !self.negotiated.is_structured => {
                Err((option_reply::ERR_INVALID, "request structured replies first"))
            }
            None => Err((option_reply::ERR_INVALID, "the data of the option are wrong")),
            Some(query) if !export.is_named(query.name) => {
                Err((option_reply::ERR_UNKNOWN, "there is no export of this name"))
            }
            Some(query) => Ok(query.names_allocation(is_list)),
        };
        match refused {
            Err((kind, text)) => OptionReply::error(option, kind, text).push(output),
            Ok(is_named) => {
                if is_named {
                    self.negotiated.has_allocation |= !is_list;
                    OptionReply::allocation_context(option).push(output);
                }
                OptionReply::ack(option).push(output);
            }
        }
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
        let name = fields.string()?;
        let count = fields.u16()?;
        let wanted = (0..count).map(|_| fields.u16()).collect::<Option<Vec<u16>>>()?;
        fields.0.is_empty().then_some(Query { name, wanted })
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`: a name, and queries.
struct ContextQuery<'a> {
    name: &'a [u8],
    queries: Vec<&'a [u8]>,
}

impl<'a> ContextQuery<'a> {
    fn parse(data: &'a [u8]) -> Option<ContextQuery<'a>> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = fields.u32()?;
        let queries = (0..count).map(|_| fields.string()).collect::<Option<Vec<_>>>()?;
        fields.0.is_empty().then_some(ContextQuery { name, queries })
    }

    /// Returns whether a query names the context. A list may use the wildcard, or have no query.
    fn names_allocation(&self, is_list: bool) -> bool {
        let names = |query: &&[u8]| {
            *query == allocation::NAME.as_bytes()
                || (is_list && *query == allocation::WILDCARD.as_bytes())
        };
        self.queries.iter().any(names) || (is_list && self.queries.is_empty())
    }
}
