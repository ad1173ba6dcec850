//! Groups of one machine.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use crate::Directory;

/// How many of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loopback {
    /// Groups.
    pub groups: u16,
    /// Members of each.
    pub members: usize,
    /// Replicas of each.
    pub replicas: usize,
    /// Clients of all.
    pub clients: usize,
    /// Coordinators of all.
    pub coordinators: usize,
}

impl Loopback {
    /// A directory of them at ports of this machine that were free a moment ago.
    ///
    /// # Errors
    /// When the system has not that many.
    pub fn directory(self) -> io::Result<Directory> {
        let seats = self.members + self.replicas;
        let count = usize::from(self.groups) * seats + self.clients + self.coordinators;
        // All at once, so that all differ.
        let sockets = (0..count).map(|_| UdpSocket::bind(("127.0.0.1", 0)));
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        let addresses = sockets.iter().map(UdpSocket::local_addr);
        let mut addresses = addresses.collect::<io::Result<Vec<SocketAddr>>>()?.into_iter();
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
