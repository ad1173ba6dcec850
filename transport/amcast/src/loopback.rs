//! Directories on the loopback address of one machine.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Directory;

/// The ports to choose from: outside the ephemeral range (Linux: from 32,768), or a port could be
/// taken before its process binds it.
const PORTS: Range<u16> = 12_000..32_000;

/// The number of processes of each role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loopback {
    /// Number of groups.
    pub groups: u16,
    /// Members of each group.
    pub members: usize,
    /// Replicas of each group.
    pub replicas: usize,
    /// Number of clients.
    pub clients: usize,
    /// Number of coordinators.
    pub coordinators: usize,
}

impl Loopback {
    /// Makes a directory with ports of this machine that were free a moment ago, and that no other
    /// directory of this process has until the range is exhausted.
    ///
    /// # Errors
    /// If there are not enough free ports.
    pub fn directory(self) -> io::Result<Directory> {
        let group_members = self.members + self.replicas;
        let count = usize::from(self.groups) * group_members + self.clients + self.coordinators;
        let mut addresses = free_addresses(count)?.into_iter();
        let mut take = |count| addresses.by_ref().take(count).collect::<Vec<_>>();
        let mut directory = Directory::new();
        for group in 0..self.groups {
            directory.set_members(group, take(self.members));
            directory.set_replicas(group, take(self.replicas));
        }
        directory.set_clients(take(self.clients));
        directory.set_coordinators(take(self.coordinators));
        Ok(directory)
    }
}

/// Returns free loopback addresses.
fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    // Another process starts at another port.
    let first = std::process::id().wrapping_mul(64);
    let tries = (0..PORTS.len()).map(|_| TRIED.fetch_add(1, Ordering::Relaxed));
    let ports = tries.map(|tried| first.wrapping_add(tried) % PORTS.len() as u32);
    let ports = ports.map(|at| PORTS.start + at as u16);
    let sockets = ports.filter_map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok());
    let sockets: Vec<UdpSocket> = sockets.take(count).collect();
    if sockets.len() < count {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    sockets.iter().map(UdpSocket::local_addr).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use onepipe_amcast::GroupId;

    use super::*;
    use crate::Role;

    /// Holds even while no process has bound the addresses of the first directory.
    #[test]
    fn addresses_are_distinct_and_outside_the_ephemeral_range() {
        let loopback = Loopback { groups: 1, members: 3, replicas: 2, clients: 1, coordinators: 0 };
        let all: Vec<SocketAddr> = (0..50)
            .flat_map(|_| {
                let directory = loopback.directory().expect("there are free ports");
                let of = |role| directory.of(role);
                let group = GroupId(0);
                [of(Role::Member(group)), of(Role::Replica(group)), of(Role::Client)].concat()
            })
            .collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 50 * 6);
        let any = UdpSocket::bind("127.0.0.1:0").and_then(|any| any.local_addr());
        let any = any.expect("there are free ports").port();
        assert!(all.iter().all(|at| PORTS.contains(&at.port())) && !PORTS.contains(&any), "{any}");
    }
}
