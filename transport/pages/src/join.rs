//! How members come to share memory: the root makes it and tells its name to all whom it has met.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use onepipe_base::ProcessId;
use onepipe_transport_shm::{
    AttachError, Config, Place, Reader, Shelf, Shm, remove_stale_segments,
};
use onepipe_transport_tcp::{MeetError, Meeting};

use crate::copies::Copies;
use crate::{Bytes, FRAME_LEN, Lender};

/// What a member says when it is there, and the root when all are.
const HERE: u8 = 1;
/// The longest name.
const NAME_LEN: usize = 64;

/// What a member shares with the others.
#[derive(Debug)]
pub struct Links {
    pub(crate) shm: Shm,
    pub(crate) side: Side,
}

/// What it has of the shelf.
#[derive(Debug)]
pub(crate) enum Side {
    Root(Shelf, Copies),
    Other(Lender),
}

impl Side {
    /// Where an object lies that we hold.
    pub(crate) fn place(&mut self, object: u32, bytes: &Bytes) -> Option<Place> {
        match (self, bytes) {
            (Self::Root(shelf, copies), bytes) => copies.place(shelf, object, bytes),
            (_, Bytes::Shared(page)) => Some(page.place()),
            (Self::Other(lender), Bytes::Private(_)) => lender.place(object),
        }
    }

    /// An object is through.
    pub(crate) fn forget(&mut self, object: u32) {
        match self {
            Self::Root(_, copies) => copies.forget(object),
            Self::Other(lender) => lender.forget(object),
        }
    }
}

/// Why members share no memory.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A member has gone, or is on another host.
    #[error(transparent)]
    Meet(#[from] MeetError),
    /// There is no memory to share, or it is not where the root says: on another host.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Shares memory with the members that were met: `streams` by rank, which are of no use afterwards.
/// What members that were killed have left of such memory is removed first.
///
/// # Errors
/// [`JoinError`]. Nobody begins without all.
pub fn join(meeting: &Meeting<'_>, streams: Vec<Option<TcpStream>>) -> Result<Links, JoinError> {
    let link = |rank: u32, did: io::Result<()>| {
        let address = meeting.members[rank as usize];
        did.map_err(|source| MeetError::Member { rank, address, source })
    };
    let met = |streams: &[Option<TcpStream>], from: u32| {
        let met = (0u32..).zip(streams).skip(from as usize);
        met.filter_map(|(rank, stream)| Some((rank, stream.as_ref()?.try_clone().ok()?)))
            .collect::<Vec<_>>()
    };
    for (rank, stream) in met(&streams, 0) {
        link(rank, stream.set_read_timeout(Some(meeting.patience)))?;
    }
    if meeting.own == 0 {
        // What cannot be looked through is left alone.
        let _ = remove_stale_segments();
        let name = name();
        let shelf = Shelf::create(&shelf_name(&name))?;
        let shm = attach(&name, meeting)?;
        let all = met(&streams, 1);
        for (rank, stream) in &all {
            link(*rank, say(stream, &name))?;
        }
        for (rank, stream) in &all {
            link(*rank, hear(stream))?;
        }
        // Whoever should be there is: from here on nothing can be left behind.
        let _ = (shelf.unlink(), shm.unlink());
        for (rank, mut stream) in all {
            link(rank, stream.write_all(&[HERE]))?;
        }
        return Ok(Links { shm, side: Side::Root(shelf, Copies::default()) });
    }
    let Some((_, mut root)) = met(&streams, 0).into_iter().next() else {
        return Err(link(0, Err(io::ErrorKind::NotConnected.into()))
            .expect_err("it is one")
            .into());
    };
    let mut name = [0; NAME_LEN];
    link(0, root.read_exact(&mut name))?;
    let name = String::from_utf8_lossy(&name);
    let name = name.trim_end_matches('\0');
    // First what only the root makes: on another host nothing is made in vain.
    let reader = Reader::open(&shelf_name(name), meeting.own)?;
    let shm = attach(name, meeting)?;
    link(0, root.write_all(&[HERE]))?;
    link(0, hear(&root))?;
    Ok(Links { shm, side: Side::Other(Lender::new(reader)) })
}

fn attach(name: &str, meeting: &Meeting<'_>) -> Result<Shm, AttachError> {
    let config = Config {
        processes_max: meeting.members.len() as u32,
        frame_len_max: FRAME_LEN,
        ..Config::default()
    };
    Shm::attach(name, Some(ProcessId(meeting.own)), &config)
}

/// A name that nobody else has: another group of this process counts on, and another process that
/// had its number has begun at another time.
fn name() -> String {
    static GROUPS: AtomicU64 = AtomicU64::new(0);
    let group = GROUPS.fetch_add(1, Ordering::Relaxed);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    format!("bulk-{}-{since}-{group}", std::process::id())
}

fn shelf_name(name: &str) -> String {
    format!("{name}-s")
}

fn say(mut stream: &TcpStream, name: &str) -> io::Result<()> {
    let mut bytes = [0; NAME_LEN];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    stream.write_all(&bytes)
}

/// Waits for a word of somebody who is there.
fn hear(mut stream: &TcpStream) -> io::Result<()> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    if byte == [HERE] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}
