//! The processes of agreed multicast and their addresses.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};

use onepipe_amcast::{ConfigError, Group, GroupId, Groups, MEMBERS_MAX};
use onepipe_base::ProcessId;
use serde::Deserialize;

/// Default of the maximum number of a client's messages in flight. Every member has capacity for
/// that many of each client.
pub const GROUP_WINDOW: u32 = 256;
/// Default of the maximum message length: a packet in an Ethernet frame over IPv6, 1,500 - 40 - 8
/// for the headers below and 102 for the frame's own.
const MESSAGE_LEN: usize = 1_350;
/// Length of the headers in front of the message in a packet.
const FRONT_LEN: usize = 102;

/// The role of a process in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Orders the messages of this group.
    Member(GroupId),
    /// Delivers the messages of this group.
    Replica(GroupId),
    /// Sends messages.
    Client,
    /// Appoints leaders.
    Coordinator,
}

/// All processes of agreed multicast and their addresses. It must be the same at all of them: ids
/// are assigned in the order of the directory, group by group first members, then replicas; then
/// clients, then coordinators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    groups: Vec<GroupMembers>,
    clients: Vec<SocketAddr>,
    coordinators: Vec<SocketAddr>,
    window: Option<u32>,
    message_len: Option<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GroupMembers {
    members: Vec<SocketAddr>,
    replicas: Vec<SocketAddr>,
}

/// Why a directory is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// There is no group.
    #[error("the directory has no group")]
    NoGroup,
    /// Groups must be numbered from 0 without gaps.
    #[error("group {0} is missing or has no members")]
    NoMembers(u16),
    /// The number of members must be odd, or a majority would have no use for the last one.
    #[error(
        "group {group} has {members} members: give it an odd number of them, up to 15, as \
         2f + 1 members go on while f have failed"
    )]
    MemberCount {
        /// The group.
        group: u16,
        /// Number of its members.
        members: usize,
    },
    /// An address is listed twice: each process needs an address of its own.
    #[error("{0} is listed twice: give each process an address of its own")]
    Duplicate(SocketAddr),
    /// There is no client.
    #[error("the directory has no client: list one in `clients`")]
    NoClient,
    /// The address has not the required role.
    #[error(
        "{at} is not the address of a {role_name} in this directory: use an address that `{role_name}s` \
         lists, or add this one at all processes"
    )]
    WrongRole {
        /// The address.
        at: SocketAddr,
        /// The required role.
        role_name: &'static str,
    },
    /// A name that cannot be resolved to an address.
    #[error("{0:?} is not an address: write for example 127.0.0.1:4500")]
    Address(Box<str>),
    /// A machine refuses the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The text cannot be parsed.
    #[error(transparent)]
    Text(#[from] toml::de::Error),
}

/// The format of a directory file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Vec<FileGroup>,
    clients: Vec<String>,
    #[serde(default)]
    coordinators: Vec<String>,
    window: Option<u32>,
    message_len: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileGroup {
    members: Vec<String>,
    #[serde(default)]
    replicas: Vec<String>,
}

impl Directory {
    /// Makes an empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the text of a directory file:
    ///
    /// ```
    /// let directory = onepipe_transport_amcast::Directory::read("
    ///     clients = ['10.0.0.9:4600']
    ///     coordinators = ['10.0.0.8:4700']
    ///     window = 64             # messages that a client may have open
    ///     message_len = 1024   # the longest message
    ///     [[groups]]
    ///     members = ['10.0.0.1:4500', '10.0.0.2:4500', '10.0.0.3:4500']
    ///     replicas = ['10.0.0.4:4500']
    /// ");
    /// assert_eq!(directory?.groups()?.groups.len(), 1);
    /// # Ok::<(), onepipe_transport_amcast::DirectoryError>(())
    /// ```
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub fn read(text: &str) -> Result<Self, DirectoryError> {
        let file: File = toml::from_str(text)?;
        let mut directory = Self::new();
        for (number, group) in (0..).zip(&file.groups) {
            directory.set_members(number, addresses(&group.members)?);
            directory.set_replicas(number, addresses(&group.replicas)?);
        }
        directory.set_clients(addresses(&file.clients)?);
        directory.set_coordinators(addresses(&file.coordinators)?);
        (directory.window, directory.message_len) = (file.window, file.message_len);
        Ok(directory)
    }

    fn group_members(&mut self, group: u16) -> &mut GroupMembers {
        let groups = usize::from(group) + 1;
        if self.groups.len() < groups {
            self.groups.resize_with(groups, GroupMembers::default);
        }
        &mut self.groups[usize::from(group)]
    }

    /// Sets the members of `group`, which order its messages: an odd number; the first one leads
    /// initially.
    pub fn set_members(&mut self, group: u16, members: Vec<SocketAddr>) {
        self.group_members(group).members = members;
    }

    /// Sets the replicas of `group`, which deliver its messages.
    pub fn set_replicas(&mut self, group: u16, replicas: Vec<SocketAddr>) {
        self.group_members(group).replicas = replicas;
    }

    /// Sets the clients.
    pub fn set_clients(&mut self, clients: Vec<SocketAddr>) {
        self.clients = clients;
    }

    /// Sets the coordinators, which appoint a new leader when one has died.
    pub fn set_coordinators(&mut self, coordinators: Vec<SocketAddr>) {
        self.coordinators = coordinators;
    }

    /// Sets the maximum number of a client's messages in flight. Default [`GROUP_WINDOW`].
    pub fn set_window(&mut self, window: u32) {
        self.window = Some(window);
    }

    /// Sets the maximum message length in bytes. Default 1,336: a packet in an Ethernet frame.
    pub fn set_message_len(&mut self, bytes: usize) {
        self.message_len = Some(bytes);
    }

    /// All processes with address and role, in the order of ids.
    fn all(&self) -> impl Iterator<Item = (ProcessId, SocketAddr, Role)> {
        let groups = (0..).zip(&self.groups).flat_map(|(number, group_members)| {
            let group = GroupId(number);
            let members = group_members.members.iter().map(move |at| (*at, Role::Member(group)));
            members.chain(group_members.replicas.iter().map(move |at| (*at, Role::Replica(group))))
        });
        let clients = self.clients.iter().map(|at| (*at, Role::Client));
        let coordinators = self.coordinators.iter().map(|at| (*at, Role::Coordinator));
        let all = groups.chain(clients).chain(coordinators);
        (0..).zip(all).map(|(id, (at, role))| (ProcessId(id), at, role))
    }

    /// The addresses of all processes with a role, in the order of ids.
    pub fn of(&self, role: Role) -> Vec<SocketAddr> {
        let wanted = self.all().filter(|(_, _, other)| *other == role);
        wanted.map(|(_, at, _)| at).collect()
    }

    /// The ids and addresses of all processes.
    pub fn addresses(&self) -> impl Iterator<Item = (ProcessId, SocketAddr)> {
        self.all().map(|(id, at, _)| (id, at))
    }

    /// The id and role of the process at an address.
    pub fn at(&self, at: SocketAddr) -> Option<(ProcessId, Role)> {
        self.all().find(|(_, other, _)| *other == at).map(|(id, _, role)| (id, role))
    }

    /// The ids of the coordinators.
    pub fn coordinators(&self) -> Vec<ProcessId> {
        let coordinators = self.all().filter(|(_, _, role)| *role == Role::Coordinator);
        coordinators.map(|(id, _, _)| id).collect()
    }

    /// Converts to the configuration of the machines.
    ///
    /// # Errors
    /// [`DirectoryError`], except errors that only machines detect.
    pub fn groups(&self) -> Result<Groups, DirectoryError> {
        if self.groups.is_empty() {
            return Err(DirectoryError::NoGroup);
        }
        let empty = self.groups.iter().position(|group_members| group_members.members.is_empty());
        if let Some(empty) = empty {
            return Err(DirectoryError::NoMembers(empty as u16));
        }
        let wrong_count = |members: usize| members.is_multiple_of(2) || members > MEMBERS_MAX;
        let wrong = self.groups.iter().position(|group| wrong_count(group.members.len()));
        if let Some(group) = wrong {
            let members = self.groups[group].members.len();
            return Err(DirectoryError::MemberCount { group: group as u16, members });
        }
        if self.clients.is_empty() {
            return Err(DirectoryError::NoClient);
        }
        let mut seen = BTreeSet::new();
        if let Some((_, twice)) = self.addresses().find(|(_, at)| !seen.insert(*at)) {
            return Err(DirectoryError::Duplicate(twice));
        }
        let ids = |wanted: Role| {
            let all = self.all().filter(|(_, _, role)| *role == wanted);
            all.map(|(id, _, _)| id).collect::<Vec<_>>()
        };
        let group = |group| Group {
            members: ids(Role::Member(group)),
            replicas: ids(Role::Replica(group)),
        };
        Ok(Groups {
            groups: (0..self.groups.len() as u16).map(|number| group(GroupId(number))).collect(),
            clients: ids(Role::Client),
            window: self.window.unwrap_or(GROUP_WINDOW),
            message_groups_max: self.groups.len(),
            frame_len_max: self.message_len.unwrap_or(MESSAGE_LEN) + FRONT_LEN,
        })
    }
}

/// Resolves each name to its first address.
fn addresses(names: &[String]) -> Result<Vec<SocketAddr>, DirectoryError> {
    let first = |name: &String| {
        let found = name.to_socket_addrs().ok().and_then(|mut found| found.next());
        found.ok_or_else(|| DirectoryError::Address(name.as_str().into()))
    };
    names.iter().map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn two_groups() -> Directory {
        let mut directory = Directory::new();
        directory.set_members(0, vec![at(1), at(2), at(3)]);
        directory.set_replicas(0, vec![at(4)]);
        directory.set_members(1, vec![at(5)]);
        directory.set_clients(vec![at(6), at(7)]);
        directory.set_coordinators(vec![at(8)]);
        directory
    }

    #[test]
    fn ids_follow_the_order() {
        let directory = two_groups();
        let groups = directory.groups().expect("the directory is valid");
        assert_eq!(groups.groups[0].members, [0, 1, 2].map(ProcessId));
        assert_eq!(groups.groups[0].replicas, [ProcessId(3)]);
        assert_eq!(groups.groups[1].members, [ProcessId(4)]);
        assert_eq!(groups.clients, [5, 6].map(ProcessId));
        assert_eq!(directory.coordinators(), [ProcessId(7)]);
        assert_eq!(directory.at(at(4)), Some((ProcessId(3), Role::Replica(GroupId(0)))));
        assert_eq!(directory.at(at(9)), None);
        assert_eq!(groups.message_len_max(), MESSAGE_LEN);
    }

    #[test]
    fn invalid_directories_are_named() {
        let error = |change: fn(&mut Directory)| {
            let mut directory = two_groups();
            change(&mut directory);
            directory.groups().expect_err("the directory is invalid").to_string()
        };
        assert_eq!(error(|all| *all = Directory::new()), "the directory has no group");
        let gap = error(|all| all.set_replicas(3, vec![at(9)]));
        assert_eq!(gap, "group 2 is missing or has no members");
        assert_eq!(
            error(|all| all.set_clients(vec![at(2)])),
            "127.0.0.1:2 is listed twice: give each process an address of its own"
        );
        assert_eq!(
            error(|all| all.set_clients(vec![])),
            "the directory has no client: list one in `clients`"
        );
    }

    #[test]
    fn file_gives_the_same_directory() {
        let text = "clients = ['127.0.0.1:6', '127.0.0.1:7']\ncoordinators = ['127.0.0.1:8']\n\
                    [[groups]]\nmembers = ['127.0.0.1:1', '127.0.0.1:2', '127.0.0.1:3']\n\
                    replicas = ['127.0.0.1:4']\n[[groups]]\nmembers = ['127.0.0.1:5']\n";
        assert_eq!(Directory::read(text), Ok(two_groups()));
        let error = |text: &str| Directory::read(text).expect_err("none").to_string();
        assert!(error(&text.replace("replicas", "replica")).contains("unknown field `replica`"));
        let unknown = error(&text.replace("127.0.0.1:5", "nowhere"));
        assert_eq!(unknown, "\"nowhere\" is not an address: write for example 127.0.0.1:4500");
    }
}
