//! Parsing and verification of frames.

use zerocopy::FromBytes;

use crate::{DecodeError, HEADER_LEN, Header, Opcode, VERSION, integrity};

/// A verified frame, borrowed from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The header.
    pub header: &'a Header,
    /// The opcode.
    pub opcode: Opcode,
    /// The payload, without padding.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    //= spec/ordering.md#R35
    /// Verifies version, hop check, opcode, length and end-to-end check, in this order.
    ///
    /// # Errors
    /// A [`DecodeError`] for any frame that a peer of this version would not send.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, opcode) = parse_header(bytes)?;
        let payload = &bytes[HEADER_LEN..HEADER_LEN + header.length()];
        if integrity::compute_integrity(header, payload) != header.integrity.get() {
            return Err(DecodeError::Integrity);
        }
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
        let opcode = header.opcode()?;
        let payload = rest.get(..header.length()).ok_or(DecodeError::Truncated {
            part: "payload",
            need: header.length(),
            got: rest.len(),
        })?;
        Ok(Self { header, opcode, payload })
    }
}

//= spec/ordering.md#R35
/// Parses the header of a frame, as a switch does: verifies everything that [`Frame::parse`] does
/// except the end-to-end check, which is left to the receiver.
///
/// # Errors
/// As [`Frame::parse`].
#[inline]
pub fn parse_header(bytes: &[u8]) -> Result<(&Header, Opcode), DecodeError> {
    let (header, opcode, rest) = split_header(bytes)?;
    if rest.len() < header.length() {
        let (need, got) = (header.length(), rest.len());
        return Err(DecodeError::Truncated { part: "payload", need, got });
    }
    Ok((header, opcode))
}

/// As [`parse_header`], but the payload may be incomplete. Also returns the bytes of it that are
/// present.
#[inline]
pub(crate) fn split_header(bytes: &[u8]) -> Result<(&Header, Opcode, &[u8]), DecodeError> {
    let (header, rest) = split_version(bytes)?;
    if integrity::compute_hop_check(header) != header.hop_check.get() {
        return Err(DecodeError::HopCheck);
    }
    Ok((header, header.opcode()?, rest))
}

/// Splits a header of this version off.
#[inline]
fn split_version(bytes: &[u8]) -> Result<(&Header, &[u8]), DecodeError> {
    let truncated = DecodeError::Truncated { part: "header", need: HEADER_LEN, got: bytes.len() };
    let (header, rest) = Header::ref_from_prefix(bytes).map_err(|_| truncated)?;
    match header.version {
        VERSION => Ok((header, rest)),
        version => Err(DecodeError::Version(version)),
    }
}
