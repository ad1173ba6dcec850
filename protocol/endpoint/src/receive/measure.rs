//! Measures a packet of whole messages before it changes any state.

use onepipe_wire::{Flags, Frame, Messages};

/// The contents of a packet of whole messages.
pub(super) struct Measure {
    pub count: u64,
    /// Length of all payloads in bytes.
    pub len: u64,
    /// Timestamp delta and index of the first message.
    pub first: (u32, u16),
    /// Timestamp delta of the last message.
    pub last_delta_ns: u32,
}

/// Returns the messages of a data frame whose acknowledgement was taken off.
#[inline]
pub(super) fn messages<'a>(frame: &Frame<'a>) -> Messages<'a> {
    match frame.header.has(Flags::SINGLE) {
        true => Messages::single(frame.payload),
        false => Messages::new(frame.payload),
    }
}

/// Measures a packet. Returns `None` if it is malformed, empty or not in ascending order.
#[inline]
pub(super) fn measure(mut messages: Messages<'_>) -> Option<Measure> {
    let first = messages.next()?.ok()?;
    let mut last = (first.delta_ns, first.index);
    let mut measure =
        Measure { count: 1, len: first.payload.len() as u64, first: last, last_delta_ns: 0 };
    for message in messages {
        let message = message.ok()?;
        let key = (message.delta_ns, message.index);
        if key <= last {
            return None;
        }
        last = key;
        measure.len += message.payload.len() as u64;
        measure.count += 1;
    }
    measure.last_delta_ns = last.0;
    Some(measure)
}
