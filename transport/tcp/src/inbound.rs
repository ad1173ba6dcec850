//! Parsing the byte stream of a connection.

use std::io::{self, IoSliceMut, Read};
use std::net::TcpStream;

use onepipe_base::{Machine, Now, Port};
use onepipe_bulk::{Group, Memory, Placement};
use onepipe_wire::{DETACHED_FRONT_LEN, SHORT_HEADER_LEN, header_unchecked, is_hop_intact};

use crate::outbound::is_would_block;

/// Size of the read buffer while no piece is expected. Every frame except a piece fits.
const FRONT_LEN: usize = 4096;
/// Maximum number of reads of one connection per turn, so that others are not starved.
const READS_MAX: u32 = 16;

/// The destination of the next bytes.
#[derive(Debug)]
enum ReadState {
    /// The header part of a frame.
    Front,
    /// A piece, into its object.
    Piece { placement: Placement, received: usize },
    /// A long frame whose bytes belong to no object, into a buffer.
    Frame { received: usize },
}

/// The parser state of a connection.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Header parts, and short frames.
    front: Box<[u8; FRONT_LEN]>,
    /// Number of bytes in `front`.
    front_len: usize,
    /// A frame longer than the read buffer.
    frame: Vec<u8>,
    state: ReadState,
}

/// Whether a read has emptied the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// The socket is empty.
    Drained,
    /// There may be more.
    More,
}

impl Inbound {
    pub fn new() -> Self {
        let front = Box::new([0; FRONT_LEN]);
        Self { front, front_len: 0, frame: Vec::new(), state: ReadState::Front }
    }

    /// Reads and passes frames to the group. Adds their number to `frames`.
    ///
    /// # Errors
    /// If the connection is closed or the stream is malformed; it cannot be used any more.
    pub fn receive<M: Memory>(
        &mut self,
        from: &TcpStream,
        now: Now,
        port: Port,
        group: &mut Group<M>,
        frames: &mut usize,
    ) -> io::Result<ReadOutcome> {
        if self.parse(now, port, group, frames)? {
            return Ok(ReadOutcome::More);
        }
        for _ in 0..READS_MAX {
            let bytes = match self.read(from, group) {
                Err(error) if is_would_block(&error) => return Ok(ReadOutcome::Drained),
                bytes => bytes?,
            };
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.on_read(bytes, now, port, group, frames);
            if self.parse(now, port, group, frames)? {
                break;
            }
        }
        Ok(ReadOutcome::More)
    }

    /// Ends a piece that was being received when the connection broke.
    pub fn end<M: Memory>(&mut self, group: &mut Group<M>) {
        if let ReadState::Piece { placement, .. } =
            std::mem::replace(&mut self.state, ReadState::Front)
        {
            group.abandon_placement(&placement);
        }
    }

    /// Reads the rest of the current piece or frame, and the following header part.
    fn read<M: Memory>(&mut self, mut from: &TcpStream, group: &mut Group<M>) -> io::Result<usize> {
        let front = &mut self.front[self.front_len..];
        match &self.state {
            ReadState::Front => from.read(front),
            ReadState::Piece { placement, received } => match group.placement_mut(placement) {
                Some(destination) => read_both(from, &mut destination[*received..], front),
                None => {
                    // The piece is not needed any more: discard its bytes.
                    self.frame.resize(placement.piece_len(), 0);
                    read_both(from, &mut self.frame[*received..], front)
                }
            },
            ReadState::Frame { received } => read_both(from, &mut self.frame[*received..], front),
        }
    }

    /// Accounts for bytes read, and completes the current piece or frame.
    fn on_read<M: Memory>(
        &mut self,
        bytes: usize,
        now: Now,
        port: Port,
        group: &mut Group<M>,
        frames: &mut usize,
    ) {
        match &mut self.state {
            ReadState::Front => self.front_len += bytes,
            ReadState::Piece { placement, received } => {
                let taken = bytes.min(placement.piece_len() - *received);
                *received += taken;
                self.front_len += bytes - taken;
                if *received == placement.piece_len() {
                    group.handle_placed(now, port, placement);
                    self.state = ReadState::Front;
                    *frames += 1;
                }
            }
            ReadState::Frame { received } => {
                let taken = bytes.min(self.frame.len() - *received);
                *received += taken;
                self.front_len += bytes - taken;
                if *received == self.frame.len() {
                    group.handle_frame(now, port, &mut self.frame);
                    self.state = ReadState::Front;
                    *frames += 1;
                }
            }
        }
    }

    /// Parses the read buffer. Returns whether the application should handle events first: it may
    /// provide memory for what follows.
    fn parse<M: Memory>(
        &mut self,
        now: Now,
        port: Port,
        group: &mut Group<M>,
        frames: &mut usize,
    ) -> io::Result<bool> {
        let mut at = 0;
        while matches!(self.state, ReadState::Front)
            && self.front_len - at >= SHORT_HEADER_LEN
            && !group.has_events()
        {
            let rest = &mut self.front[at..self.front_len];
            let header = header_unchecked(rest).filter(|_| is_hop_intact(rest));
            let bytes = SHORT_HEADER_LEN + header.ok_or(io::ErrorKind::InvalidData)?.length();
            if bytes <= rest.len() {
                group.handle_frame(now, port, &mut rest[..bytes]);
                at += bytes;
                *frames += 1;
            } else if rest.len() < DETACHED_FRONT_LEN {
                // The header part is incomplete.
                break;
            } else if let Some(placement) = group.begin_placement(rest) {
                // Only the bytes that came with the header part are copied; the rest of the piece
                // is read into its object.
                let received = rest.len() - DETACHED_FRONT_LEN;
                if let Some(destination) = group.placement_mut(&placement) {
                    destination[..received].copy_from_slice(&rest[DETACHED_FRONT_LEN..]);
                }
                self.state = ReadState::Piece { placement, received };
                at = self.front_len;
            } else if bytes > FRONT_LEN {
                // No object takes the frame's bytes, and the read buffer cannot hold them.
                self.frame.clear();
                self.frame.extend_from_slice(rest);
                self.frame.resize(bytes, 0);
                self.state = ReadState::Frame { received: rest.len() };
                at = self.front_len;
            } else {
                // The frame is incomplete, and will fit the read buffer.
                break;
            }
        }
        self.front.copy_within(at..self.front_len, 0);
        self.front_len -= at;
        Ok(group.has_events())
    }
}

/// Reads into `first` and then into `second`; into the latter at most the header part of a piece,
/// whose bytes belong elsewhere.
fn read_both(mut from: &TcpStream, first: &mut [u8], second: &mut [u8]) -> io::Result<usize> {
    let front = DETACHED_FRONT_LEN.min(second.len());
    let mut parts = [IoSliceMut::new(first), IoSliceMut::new(&mut second[..front])];
    from.read_vectored(&mut parts)
}
