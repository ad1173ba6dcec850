//! What comes over a connection.

use std::io::{self, IoSliceMut, Read};
use std::net::TcpStream;

use onepipe_base::{Machine, Now, Port};
use onepipe_bulk::{Group, Memory, Placement};
use onepipe_wire::{DETACHED_FRONT_LEN, HEADER_LEN, header_unchecked, is_hop_intact};

use crate::outbound::is_would_block;

/// Bytes that are read where no piece is awaited. Every frame but a piece fits.
const FRONT_LEN: usize = 4096;
/// Reads of one connection before the others have their turn.
const READS_MAX: u32 = 16;

/// What is being read.
#[derive(Debug)]
enum ReadState {
    /// The front of a frame.
    Front,
    /// A piece, into its object.
    Piece { placement: Placement, have: usize },
    /// A frame that goes nowhere yet, into memory of ours.
    Frame { have: usize },
}

/// What has come over a connection and is not a whole frame yet.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Fronts, and short frames.
    front: Box<[u8; FRONT_LEN]>,
    have: usize,
    /// A frame that does not fit there.
    frame: Vec<u8>,
    state: ReadState,
}

/// What a connection has had to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// All of it was read.
    Drained,
    /// There may be more.
    More,
}

impl Inbound {
    pub fn new() -> Self {
        let front = Box::new([0; FRONT_LEN]);
        Self { front, have: 0, frame: Vec::new(), state: ReadState::Front }
    }

    /// Hands what has come to the group. Adds the number of frames to `frames`.
    ///
    /// # Errors
    /// When the connection is over, or what comes is no frame: it is of no use any more.
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

    /// The connection is over.
    pub fn end<M: Memory>(&mut self, group: &mut Group<M>) {
        if let ReadState::Piece { placement, .. } =
            std::mem::replace(&mut self.state, ReadState::Front)
        {
            group.abandon_placement(&placement);
        }
    }

    /// Reads the rest of what is awaited, and the next front behind it.
    fn read<M: Memory>(&mut self, mut from: &TcpStream, group: &mut Group<M>) -> io::Result<usize> {
        let front = &mut self.front[self.have..];
        match &self.state {
            ReadState::Front => from.read(front),
            ReadState::Piece { placement, have } => match group.placement_mut(placement) {
                Some(room) => read_both(from, &mut room[*have..], front),
                None => {
                    // Nobody needs it any more: it goes where it does no harm.
                    self.frame.resize(placement.bytes(), 0);
                    read_both(from, &mut self.frame[*have..], front)
                }
            },
            ReadState::Frame { have } => read_both(from, &mut self.frame[*have..], front),
        }
    }

    /// So many bytes were read.
    fn on_read<M: Memory>(
        &mut self,
        bytes: usize,
        now: Now,
        port: Port,
        group: &mut Group<M>,
        frames: &mut usize,
    ) {
        match &mut self.state {
            ReadState::Front => self.have += bytes,
            ReadState::Piece { placement, have } => {
                let here = bytes.min(placement.bytes() - *have);
                *have += here;
                self.have += bytes - here;
                if *have == placement.bytes() {
                    group.handle_placed(now, port, placement);
                    self.state = ReadState::Front;
                    *frames += 1;
                }
            }
            ReadState::Frame { have } => {
                let here = bytes.min(self.frame.len() - *have);
                *have += here;
                self.have += bytes - here;
                if *have == self.frame.len() {
                    group.handle_frame(now, port, &mut self.frame);
                    self.state = ReadState::Front;
                    *frames += 1;
                }
            }
        }
    }

    /// Takes apart what stands at the front. Answers whether what has come should be looked at by
    /// the application first: there may be no memory for what follows.
    fn parse<M: Memory>(
        &mut self,
        now: Now,
        port: Port,
        group: &mut Group<M>,
        frames: &mut usize,
    ) -> io::Result<bool> {
        let mut at = 0;
        while matches!(self.state, ReadState::Front)
            && self.have - at >= HEADER_LEN
            && !group.has_events()
        {
            let rest = &mut self.front[at..self.have];
            let header = header_unchecked(rest).filter(|_| is_hop_intact(rest));
            let bytes = HEADER_LEN + header.ok_or(io::ErrorKind::InvalidData)?.length();
            if bytes <= rest.len() {
                group.handle_frame(now, port, &mut rest[..bytes]);
                at += bytes;
                *frames += 1;
            } else if rest.len() < DETACHED_FRONT_LEN {
                break;
            } else if let Some(placement) = group.begin_placement(rest) {
                let have = rest.len() - DETACHED_FRONT_LEN;
                if let Some(room) = group.placement_mut(&placement) {
                    room[..have].copy_from_slice(&rest[DETACHED_FRONT_LEN..]);
                }
                self.state = ReadState::Piece { placement, have };
                at = self.have;
            } else if bytes > FRONT_LEN {
                self.frame.clear();
                self.frame.extend_from_slice(rest);
                self.frame.resize(bytes, 0);
                self.state = ReadState::Frame { have: rest.len() };
                at = self.have;
            } else {
                break;
            }
        }
        self.front.copy_within(at..self.have, 0);
        self.have -= at;
        Ok(group.has_events())
    }
}

/// Reads into one and then the other; of the second no more than the front of a piece, whose bytes
/// belong elsewhere.
fn read_both(mut from: &TcpStream, first: &mut [u8], second: &mut [u8]) -> io::Result<usize> {
    let front = DETACHED_FRONT_LEN.min(second.len());
    let mut parts = [IoSliceMut::new(first), IoSliceMut::new(&mut second[..front])];
    from.read_vectored(&mut parts)
}
