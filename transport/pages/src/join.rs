//! How members come to share memory: the root makes it and tells its name to all whom it has met.

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

/// What a member says when it is there, and the root when all are.
const ACK: u8 = 1;
/// The longest name.
const NAME_LEN: usize = 64;

/// What a member shares with the others.
#[derive(Debug)]
pub struct SharedLinks {
    pub(crate) shm: Shm,
    pub(crate) role: PageRole,
}

/// What it has of the shelf.
#[derive(Debug)]
pub(crate) enum PageRole {
    Root(PagePool, Copies),
    Receiver(PageIndex),
}

impl PageRole {
    /// Where an object lies that we hold.
    pub(crate) fn place(&mut self, object: u32, bytes: &ObjectBytes) -> Option<PageLocation> {
        match (self, bytes) {
            (Self::Root(page_pool, copies), bytes) => copies.place(page_pool, object, bytes),
            (_, ObjectBytes::Shared(page)) => Some(page.location()),
            (Self::Receiver(page_index), ObjectBytes::Private(_)) => page_index.place(object),
        }
    }

    /// An object is through.
    pub(crate) fn remove(&mut self, object: u32) {
        match self {
            Self::Root(_, copies) => copies.remove(object),
            Self::Receiver(page_index) => page_index.remove(object),
        }
    }
}

/// Why members share no memory.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A member has gone, or is on another host.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// There is no memory to share, or it is not where the root says: on another host.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Shares memory with the members that were met: `streams` by rank, which are of no use afterwards.
/// What members that were killed have left of such memory is removed first.
///
/// # Errors
/// [`JoinError`]. Nobody begins without all.
pub fn join(
    rendezvous: &Rendezvous<'_>,
    streams: Vec<Option<TcpStream>>,
) -> Result<SharedLinks, JoinError> {
    let link = |rank: u32, did: io::Result<()>| {
        let address = rendezvous.members[rank as usize];
        did.map_err(|source| RendezvousError::Member { rank, address, source })
    };
    let connected = |streams: &[Option<TcpStream>], from: u32| {
        let connected = (0u32..).zip(streams).skip(from as usize);
        connected
            .filter_map(|(rank, stream)| Some((rank, stream.as_ref()?.try_clone().ok()?)))
            .collect::<Vec<_>>()
    };
    for (rank, stream) in connected(&streams, 0) {
        link(rank, stream.set_read_timeout(Some(rendezvous.timeout)))?;
    }
    if rendezvous.own == 0 {
        // What cannot be looked through is left alone.
        let _ = remove_stale_segments();
        let segment_name = segment_name();
        let page_pool = PagePool::create(&pool_name(&segment_name))?;
        let shm = attach(&segment_name, rendezvous)?;
        let all = connected(&streams, 1);
        for (rank, stream) in &all {
            link(*rank, send_name(stream, &segment_name))?;
        }
        for (rank, stream) in &all {
            link(*rank, recv_ack(stream))?;
        }
        // Whoever should be there is: from here on nothing can be left behind.
        let _ = (page_pool.unlink(), shm.unlink());
        for (rank, mut stream) in all {
            link(rank, stream.write_all(&[ACK]))?;
        }
        return Ok(SharedLinks { shm, role: PageRole::Root(page_pool, Copies::default()) });
    }
    let Some((_, mut root)) = connected(&streams, 0).into_iter().next() else {
        return Err(link(0, Err(io::ErrorKind::NotConnected.into()))
            .expect_err("it is one")
            .into());
    };
    let mut segment_name = [0; NAME_LEN];
    link(0, root.read_exact(&mut segment_name))?;
    let segment_name = String::from_utf8_lossy(&segment_name);
    let segment_name = segment_name.trim_end_matches('\0');
    // First what only the root makes: on another host nothing is made in vain.
    let reader = PageReader::open(&pool_name(segment_name), rendezvous.own)?;
    let shm = attach(segment_name, rendezvous)?;
    link(0, root.write_all(&[ACK]))?;
    link(0, recv_ack(&root))?;
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

/// A name that nobody else has: another group of this process counts on, and another process that
/// had its number has begun at another time.
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

/// Waits for a word of somebody who is there.
fn recv_ack(mut stream: &TcpStream) -> io::Result<()> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    if byte == [ACK] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}
