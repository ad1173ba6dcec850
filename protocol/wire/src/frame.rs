//! Parsing and verification of frames.

use crate::version::FIRST_VERSION;
use crate::words::Words;
use crate::{DecodeError, Header, Opcode, SHORT_HEADER_LEN, VERSION, header_len, integrity};

/// A verified frame: a copy of its header, and its payload borrowed from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// The opcode.
    pub opcode: Opcode,
    /// The payload, without padding.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    //= spec/ordering.md#R35
    /// Verifies version, hop tag, opcode, length and end-to-end check, in this order.
    ///
    /// # Errors
    /// A [`DecodeError`] for any frame that a peer of this version would not send.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, opcode, rest) = split_header(bytes)?;
        let payload = payload(&header, rest)?;
        check_integrity(&header, bytes, payload)?;
        Ok(Self { header, opcode, payload })
    }

    /// As [`Frame::parse`], for a Join or a JoinAnswer of this or a later version: their layout is
    /// the same in all versions (docs/wire-format.md, "Versions").
    ///
    /// # Errors
    /// As [`Frame::parse`], and for other opcodes.
    pub fn parse_join(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, rest) = split(bytes)?;
        if header.version < FIRST_VERSION {
            return Err(DecodeError::Version(header.version));
        }
        let opcode = check_tag(&header, bytes)?;
        if !matches!(opcode, Opcode::Join | Opcode::JoinAnswer) {
            return Err(DecodeError::Opcode(opcode as u8));
        }
        let payload = payload(&header, rest)?;
        check_integrity(&header, bytes, payload)?;
        Ok(Self { header, opcode, payload })
    }

    //= spec/ordering.md#R54
    /// Verifies version, opcode and length, but neither check: for memory that only processes of
    /// one machine share ([`crate::seal_unsummed`]).
    ///
    /// # Errors
    /// As [`Frame::parse`], except for wrong checks.
    #[inline]
    pub fn parse_unsummed(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, rest) = split_version(bytes)?;
        Ok(Self { opcode: header.opcode()?, payload: payload(&header, rest)?, header })
    }
}

//= spec/ordering.md#R35
/// Parses the header of a frame, as a switch does: verifies everything that [`Frame::parse`] does
/// except the end-to-end check, which is left to the receiver.
///
/// # Errors
/// As [`Frame::parse`].
#[inline]
pub fn parse_header(bytes: &[u8]) -> Result<(Header, Opcode), DecodeError> {
    let (header, opcode, rest) = split_header(bytes)?;
    payload(&header, rest)?;
    Ok((header, opcode))
}

/// Returns the payload at the front of what follows a header, without padding.
#[inline]
fn payload<'a>(header: &Header, rest: &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let (need, got) = (header.length(), rest.len());
    rest.get(..need).ok_or(DecodeError::Truncated { part: "payload", need, got })
}

/// As [`parse_header`], but the payload may be incomplete. Also returns the bytes of it that are
/// present. Always inlined, or the header is copied through memory for its caller.
#[inline(always)]
pub(crate) fn split_header(bytes: &[u8]) -> Result<(Header, Opcode, &[u8]), DecodeError> {
    let (header, rest) = split_version(bytes)?;
    Ok((header, check_tag(&header, bytes)?, rest))
}

/// Verifies the hop tag of a header. Returns the opcode.
#[inline]
fn check_tag(header: &Header, bytes: &[u8]) -> Result<Opcode, DecodeError> {
    if header.key_epoch() != 0 {
        return Err(DecodeError::Key(header.key_epoch()));
    }
    if !integrity::is_hop_intact(bytes) {
        return Err(DecodeError::HopTag);
    }
    header.opcode()
}

/// Verifies the end-to-end check of the frame in `bytes` by those of its payload that it covers.
#[inline]
pub(crate) fn check_integrity(
    header: &Header,
    bytes: &[u8],
    payload: &[u8],
) -> Result<(), DecodeError> {
    let words = Words::load(bytes).ok_or(DecodeError::Integrity)?;
    match integrity::compute_integrity(words, header, payload) == header.integrity.get() {
        true => Ok(()),
        false => Err(DecodeError::Integrity),
    }
}

/// Splits a header of this version off.
#[inline]
fn split_version(bytes: &[u8]) -> Result<(Header, &[u8]), DecodeError> {
    let (header, rest) = split(bytes)?;
    match header.version {
        VERSION => Ok((header, rest)),
        version => Err(DecodeError::Version(version)),
    }
}

/// Splits a header of any version off.
#[inline]
fn split(bytes: &[u8]) -> Result<(Header, &[u8]), DecodeError> {
    let truncated = || {
        let need = bytes.get(1).map_or(SHORT_HEADER_LEN, |opcode| header_len(*opcode));
        DecodeError::Truncated { part: "header", need, got: bytes.len() }
    };
    Header::split(bytes).ok_or_else(truncated)
}
