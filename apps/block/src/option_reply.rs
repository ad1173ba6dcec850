//! Replies to options (NBD's specification, section "Option reply types").

use alloc::vec::Vec;

use crate::export::Export;
use crate::output::Output;
use crate::values::{OPTION_REPLY_MAGIC, allocation, info, option, option_reply};

/// One reply to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReply {
    option: u32,
    kind: u32,
    data: Vec<u8>,
}

impl OptionReply {
    /// Accepts the option, or ends its replies.
    pub fn ack(option: u32) -> OptionReply {
        OptionReply { option, kind: option_reply::ACK, data: Vec::new() }
    }

    /// Refuses the option, with a text for people.
    pub fn error(option: u32, kind: u32, text: &'static str) -> OptionReply {
        OptionReply { option, kind, data: text.as_bytes().to_vec() }
    }

    /// Names the export and describes it.
    pub fn server(option: u32, export: &Export) -> OptionReply {
        // A name has at most 4,096 bytes.
        let mut data = (export.name.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(export.name.as_bytes());
        data.extend_from_slice(export.description.as_bytes());
        OptionReply { option, kind: option_reply::SERVER, data }
    }

    /// Names the metadata context. A list has no number for it.
    pub fn allocation_context(option: u32) -> OptionReply {
        let id = if option == option::SET_META_CONTEXT { allocation::ID } else { 0 };
        let mut data = id.to_be_bytes().to_vec();
        data.extend_from_slice(allocation::NAME.as_bytes());
        OptionReply { option, kind: option_reply::META_CONTEXT, data }
    }

    /// Describes the properties of the export.
    ///
    /// Size and flags are mandatory. Block sizes are always sent as well, since a server with its
    /// own sizes must advertise them, and clients ignore what they do not know.
    pub fn info(
        option: u32,
        export: &Export,
        wanted: &[u16],
        is_structured: bool,
    ) -> Vec<OptionReply> {
        let property = |kind: u16, parts: &[&[u8]]| {
            let mut data = kind.to_be_bytes().to_vec();
            parts.iter().for_each(|part| data.extend_from_slice(part));
            OptionReply { option, kind: option_reply::INFO, data }
        };
        let flags = export.flags(is_structured).to_be_bytes();
        let sizes = export.block_sizes;
        let sizes = [sizes.minimum, sizes.preferred, sizes.maximum].map(u32::to_be_bytes);
        let mut replies = Vec::from([
            property(info::EXPORT, &[&export.size.to_be_bytes(), &flags]),
            property(info::BLOCK_SIZE, &[sizes.as_flattened()]),
        ]);
        if wanted.contains(&info::NAME) {
            replies.push(property(info::NAME, &[export.name.as_bytes()]));
        }
        if wanted.contains(&info::DESCRIPTION) && !export.description.is_empty() {
            replies.push(property(info::DESCRIPTION, &[export.description.as_bytes()]));
        }
        replies
    }

    /// Sends the reply.
    pub fn push(self, output: &mut Output) {
        output.push(&OPTION_REPLY_MAGIC.to_be_bytes());
        output.push(&self.option.to_be_bytes());
        output.push(&self.kind.to_be_bytes());
        // Names and descriptions have at most 4,096 bytes each.
        output.push(&(self.data.len() as u32).to_be_bytes());
        output.push(&self.data);
    }
}

/// Sends the reply to `EXPORT_NAME`, which has a form of its own (section "Newstyle negotiation").
pub fn export_name_reply(
    export: &Export,
    is_structured: bool,
    has_zeroes: bool,
    output: &mut Output,
) {
    output.push(&export.size.to_be_bytes());
    output.push(&export.flags(is_structured).to_be_bytes());
    if has_zeroes {
        output.push(&[0; 124]);
    }
}
