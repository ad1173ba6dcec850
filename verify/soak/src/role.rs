//! The programs of a fabric: which host each runs on, and with which arguments.

use std::path::PathBuf;

use crate::host::address;

/// How processes of the fabric reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every frame passes a tree of software switches.
    Switches,
    /// Frames go directly; aggregators hand on the barriers.
    Overlay,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Switches => "switches",
            Self::Overlay => "overlay",
        }
    }
}

/// A program of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// 0 is the root of the tree.
    Switch(usize),
    Controller(usize),
    /// A controller with the id of the first one, behind the lower switch.
    SecondController,
    Process(usize),
    /// The switch of scheduled transfers.
    SlotSwitch,
    Arbiter(usize),
    /// Receives files in timeslots.
    TransferReceiver,
    /// Receives files by bulk multicast.
    BulkReceiver(usize),
    Coordinator,
    /// Member of the group of agreed multicast.
    Member(usize),
    /// Prints what the group delivers.
    Replica(usize),
    /// Multicasts to the group.
    Client,
}

pub const SWITCHES: usize = 2;
pub const CONTROLLERS: usize = 3;
pub const PROCESSES: usize = 6;
pub const ARBITERS: usize = 2;
pub const BULK_RECEIVERS: usize = 3;
pub const MEMBERS: usize = 3;
pub const REPLICAS: usize = 2;
/// Hosts: one a switch, one for the controllers, three for the processes.
pub const HOSTS: usize = FIRST_PROCESS_HOST + PROCESSES / 2;
const CONTROLLERS_HOST: usize = SWITCHES;
const FIRST_PROCESS_HOST: usize = SWITCHES + 1;
/// Process ids of the first controller and of the first arbiter.
const FIRST_CONTROLLER: usize = 1000;
const FIRST_ARBITER: usize = 1000;

/// Files and folders that the programs use.
#[derive(Clone, Debug)]
pub struct Files {
    /// The program `onepipe`.
    pub program: PathBuf,
    /// The example `lines`, which multicasts and delivers lines.
    pub lines: PathBuf,
    /// Folder of the controllers' store.
    pub store: PathBuf,
    /// Folder of everything else.
    pub folder: PathBuf,
}

impl Files {
    /// Returns the file that lists the participants of the group.
    pub fn group(&self) -> PathBuf {
        self.folder.join("group.toml")
    }

    /// Returns the store of the controllers.
    pub fn controllers_store(&self) -> PathBuf {
        self.store.join("decisions.redb")
    }

    /// Returns the folder of what a program receives.
    pub fn received(&self, role: Role) -> PathBuf {
        self.folder.join(role.name())
    }
}

impl Role {
    /// Returns all roles, in the order in which they start.
    pub fn all() -> Vec<Self> {
        let mut all: Vec<Self> = (0..SWITCHES).map(Self::Switch).collect();
        all.extend((0..CONTROLLERS).map(Self::Controller));
        all.extend((0..PROCESSES).map(Self::Process));
        all.push(Self::SlotSwitch);
        all.extend((0..ARBITERS).map(Self::Arbiter));
        all.push(Self::TransferReceiver);
        all.extend((0..BULK_RECEIVERS).map(Self::BulkReceiver));
        all.extend((0..MEMBERS).map(Self::Member));
        all.push(Self::Coordinator);
        all.extend((0..REPLICAS).map(Self::Replica));
        all.push(Self::Client);
        all
    }

    /// Returns a name for files.
    pub fn name(self) -> String {
        let name = format!("{self:?}").replace(['(', ')'], "-").to_lowercase();
        name.trim_end_matches('-').to_owned()
    }

    /// Returns whether the program may be restarted at any time. A member that has died counts as
    /// failed from then on, and replicas and clients keep their state in memory.
    pub fn is_restartable(self) -> bool {
        !matches!(self, Self::Member(_) | Self::Replica(_) | Self::Client)
    }

    /// Returns the host of the program.
    pub fn host(self) -> usize {
        match self {
            Self::Switch(switch) => switch,
            Self::SlotSwitch => 0,
            Self::Arbiter(arbiter) => arbiter + 1,
            Self::Controller(_) | Self::SecondController | Self::Coordinator => CONTROLLERS_HOST,
            Self::Process(process) => FIRST_PROCESS_HOST + process / 2,
            Self::TransferReceiver => FIRST_PROCESS_HOST,
            Self::BulkReceiver(at) | Self::Member(at) | Self::Replica(at) => {
                FIRST_PROCESS_HOST + at
            }
            Self::Client => FIRST_PROCESS_HOST + 2,
        }
    }

    /// Returns the switch that the program is attached to.
    fn switch(self) -> usize {
        match self {
            Self::Process(process) if process >= 2 => 1,
            _ => 0,
        }
    }

    /// Returns the address at which the program listens.
    fn address(self) -> String {
        let port = match self {
            Self::SlotSwitch => 4430,
            Self::BulkReceiver(_) => 4420,
            Self::Member(_) => 4500,
            Self::Replica(_) => 4600,
            Self::Client => 4700,
            Self::Coordinator => 4800,
            _ => 4410,
        };
        format!("{}:{port}", address(self.host()))
    }

    /// Returns the processes that run on a host or behind the switch there.
    pub fn processes_at(host: usize) -> impl Iterator<Item = usize> {
        (0..PROCESSES).filter(move |process| {
            let role = Self::Process(*process);
            role.host() == host || role.switch() == host
        })
    }

    /// Returns whether a process sends reliably. Two of three do.
    pub fn is_reliable(process: usize) -> bool {
        process % 3 != 2
    }

    /// Returns the program to start.
    pub fn program(self, files: &Files) -> &PathBuf {
        match self {
            Self::Replica(_) | Self::Client => &files.lines,
            _ => &files.program,
        }
    }

    /// Returns the arguments, separated by spaces. `is_first` is false after a restart.
    pub fn arguments(self, kind: Kind, files: &Files, is_first: bool) -> String {
        let controllers = format!("{FIRST_CONTROLLER}:{CONTROLLERS}");
        let (up, own) = (Self::Switch(self.switch()).address(), self.address());
        let group = files.group().display().to_string();
        let received = files.received(self).display().to_string();
        match self {
            Self::Switch(switch) => {
                let command = if kind == Kind::Switches { "switch" } else { "aggregator" };
                let parent = Self::Switch(0).address();
                let parent =
                    if switch == 0 { String::new() } else { format!(" --parent {parent}") };
                let id = switch + 1;
                format!("{command} --listen {own} --id {id} --controllers {controllers}{parent}")
            }
            Self::Controller(controller) => format!(
                "controller --udp {up} --controllers {controllers} --process {} --store {} \
                 --status-listen 127.0.0.1:{}",
                FIRST_CONTROLLER + controller,
                files.controllers_store().display(),
                4480 + controller
            ),
            Self::SecondController => format!(
                "controller --udp {} --controllers {controllers} --process {FIRST_CONTROLLER} \
                 --store {} --status-listen 127.0.0.1:4490",
                Self::Switch(1).address(),
                files.folder.join("second.redb").display()
            ),
            Self::Process(process) => {
                let link = if kind == Kind::Switches { "udp" } else { "overlay" };
                let reliable = if Self::is_reliable(process) { " --reliable" } else { "" };
                format!(
                    "node --{link} {up} --process {process} --controllers {controllers} \
                     --stay{reliable}"
                )
            }
            Self::SlotSwitch => format!("switch --listen {own} --link-rate 125M"),
            Self::Arbiter(arbiter) => {
                let other = FIRST_ARBITER + 1 - arbiter;
                let secondary = if arbiter == 0 && is_first { "" } else { " --secondary" };
                format!(
                    "arbiter --udp {} --process {} --peers {other}{secondary}",
                    Self::SlotSwitch.address(),
                    FIRST_ARBITER + arbiter
                )
            }
            Self::TransferReceiver => {
                format!("transfer receive {} --out {received}/ --forever --force", Self::slots())
            }
            Self::BulkReceiver(_) => {
                format!("bulk recv --listen {own} --out {received} --forever --force")
            }
            Self::Coordinator => {
                let store = files.folder.join("coordinator.redb");
                format!("coordinator --groups {group} --listen {own} --store {}", store.display())
            }
            Self::Member(_) => format!("member --groups {group} --listen {own}"),
            Self::Replica(_) => format!("replica {group} {own}"),
            Self::Client => format!("client {group} {own}"),
        }
    }

    /// Returns the options of both ends of scheduled transfers.
    fn slots() -> String {
        let ids: Vec<_> =
            (0..ARBITERS).map(|arbiter| (FIRST_ARBITER + arbiter).to_string()).collect();
        format!("--udp {} --arbiter {}", Self::SlotSwitch.address(), ids.join(","))
    }

    /// Returns the arguments that send a file to the receiver of scheduled transfers.
    pub fn transfer(file: &str) -> String {
        format!("transfer send {file} --process 1 {}", Self::slots())
    }

    /// Returns the arguments that send a file to all receivers of bulk multicast.
    pub fn bulk(file: &str) -> String {
        let to: Vec<_> = (0..BULK_RECEIVERS).map(|at| Self::BulkReceiver(at).address()).collect();
        format!("bulk send {file} --to {}", to.join(","))
    }

    /// Returns the file that lists the participants of the group.
    pub fn group_file() -> String {
        let list = |roles: Vec<Self>| {
            let addresses: Vec<_> = roles.iter().map(|role| role.address()).collect();
            format!("{addresses:?}")
        };
        format!(
            "clients = {}\ncoordinators = {}\n[[groups]]\nmembers = {}\nreplicas = {}\n",
            list(vec![Self::Client]),
            list(vec![Self::Coordinator]),
            list((0..MEMBERS).map(Self::Member).collect()),
            list((0..REPLICAS).map(Self::Replica).collect()),
        )
    }
}
