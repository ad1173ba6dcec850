//! Joining shared memory: the root creates it and sends its name over the group's connections.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use onepipe_base::ProcessId;
use onepipe_transport_shm::{
    AttachError, Config, PageLocation, PagePool, PageReader, Shm, remove_stale_segments,
};
use onepipe_transport_tcp::{Rendezvous, RendezvousError};

use crate::copies::Copies;
use crate::{FRAME_LEN, ObjectBytes, PageIndex};

/// Acknowledges that a member has attached; sent back by the root once all have.
const ACK: u8 = 1;
/// Longest name of a segment.
const NAME_LEN: usize = 64;

/// The memory that a member shares with the others.
#[derive(Debug)]
pub struct SharedLinks {
    pub(crate) shm: Shm,
    pub(crate) role: PageRole,
}

/// A member's side of the page pool.
#[derive(Debug)]
pub(crate) enum PageRole {
    Root(PagePool, Copies),
    Receiver(PageIndex),
}

impl PageRole {
    /// Returns the location of an object held by this member.
    pub(crate) fn location(&mut self, object: u32, bytes: &ObjectBytes) -> Option<PageLocation> {
        match (self, bytes) {
            (Self::Root(page_pool, copies), bytes) => copies.location(page_pool, object, bytes),
            (_, ObjectBytes::Shared(page)) => Some(page.location()),
            (Self::Receiver(page_index), ObjectBytes::Private(_)) => page_index.location(object),
        }
    }

    /// Drops the state of a finished object.
    pub(crate) fn remove(&mut self, object: u32) {
        match self {
            Self::Root(_, copies) => copies.remove(object),
            Self::Receiver(page_index) => page_index.remove(object),
        }
    }
}

/// Why members do not share memory.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A member is gone or on another host.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// The memory cannot be created or attached; typically a member is on another host.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Shares memory with the connected members. `streams` are indexed by rank and not needed
/// afterwards. Removes segments left behind by killed members first.
///
/// # Errors
/// [`JoinError`]. No member starts unless all have joined.
pub fn join(
    rendezvous: &Rendezvous<'_>,
    streams: Vec<Option<TcpStream>>,
) -> Result<SharedLinks, JoinError> {
    let with_rank = |rank: u32, result: io::Result<()>| {
        let address = rendezvous.members[rank as usize];
        result.map_err(|source| RendezvousError::Member { rank, address, source })
    };
    let connected_from = |streams: &[Option<TcpStream>], from: u32| {
        let connected = (0u32..).zip(streams).skip(from as usize);
        connected
            .filter_map(|(rank, stream)| Some((rank, stream.as_ref()?.try_clone().ok()?)))
            .collect::<Vec<_>>()
    };
    for (rank, stream) in connected_from(&streams, 0) {
        with_rank(rank, stream.set_read_timeout(Some(rendezvous.timeout)))?;
    }
    if rendezvous.own == 0 {
        // A directory that cannot be read is no reason to fail.
        let _ = remove_stale_segments();
        let segment_name = segment_name();
        let page_pool = PagePool::create(&pool_name(&segment_name))?;
        let shm = attach(&segment_name, rendezvous)?;
        let all = connected_from(&streams, 1);
        for (rank, stream) in &all {
            with_rank(*rank, send_name(stream, &segment_name))?;
        }
        for (rank, stream) in &all {
            with_rank(*rank, recv_ack(stream))?;
        }
        // All members have attached: without names nothing can be left behind.
        let _ = (page_pool.unlink(), shm.unlink());
        for (rank, mut stream) in all {
            with_rank(rank, stream.write_all(&[ACK]))?;
        }
        return Ok(SharedLinks { shm, role: PageRole::Root(page_pool, Copies::default()) });
    }
    let Some((_, mut root)) = connected_from(&streams, 0).into_iter().next() else {
        return Err(with_rank(0, Err(io::ErrorKind::NotConnected.into()))
            .expect_err("it is an error")
            .into());
    };
    let mut segment_name = [0; NAME_LEN];
    with_rank(0, root.read_exact(&mut segment_name))?;
    let segment_name = String::from_utf8_lossy(&segment_name);
    let segment_name = segment_name.trim_end_matches('\0');
    // Attach to the pool first: it exists on the root's host only, so nothing is created in vain.
    let reader = PageReader::open(&pool_name(segment_name), rendezvous.own)?;
    let shm = attach(segment_name, rendezvous)?;
    with_rank(0, root.write_all(&[ACK]))?;
    with_rank(0, recv_ack(&root))?;
    Ok(SharedLinks { shm, role: PageRole::Receiver(PageIndex::new(reader)) })
}

fn attach(segment_name: &str, rendezvous: &Rendezvous<'_>) -> Result<Shm, AttachError> {
    let config = Config {
        processes_max: rendezvous.members.len() as u32,
        frame_len_max: FRAME_LEN,
        ..Config::default()
    };
    Shm::attach(segment_name, Some(ProcessId(rendezvous.own)), &config)
}

/// Makes a unique name: the counter distinguishes groups of this process, the time distinguishes
/// processes with a recycled pid.
fn segment_name() -> String {
    static GROUPS: AtomicU64 = AtomicU64::new(0);
    let group = GROUPS.fetch_add(1, Ordering::Relaxed);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    format!("bulk-{}-{since}-{group}", std::process::id())
}

fn pool_name(segment_name: &str) -> String {
    format!("{segment_name}-s")
}

fn send_name(mut stream: &TcpStream, segment_name: &str) -> io::Result<()> {
    let mut bytes = [0; NAME_LEN];
    bytes[..segment_name.len()].copy_from_slice(segment_name.as_bytes());
    stream.write_all(&bytes)
}

/// Waits for the peer's acknowledgement.
fn recv_ack(mut stream: &TcpStream) -> io::Result<()> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    if byte == [ACK] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}
