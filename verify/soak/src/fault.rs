//! Faults: what is broken, for how long, and what may follow.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use rand::RngExt;
use rand::rngs::SmallRng;
use rustix::process::Signal;

use crate::fabric::Fabric;
use crate::role::{CONTROLLERS, HOSTS, MEMBERS, PROCESSES, Role, SWITCHES};

/// A process that is stopped or cut off for less than this time must survive: the default link
/// timeout with controllers is 1 s.
const SURVIVED_MAX: Duration = Duration::from_millis(700);

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Nothing, for the time.
    None(Duration),
    /// `kill -9` and a restart after the time.
    Kill(Role, Duration),
    /// Ctrl-C and a restart after the time.
    Leave(Role, Duration),
    /// SIGSTOP, and SIGCONT after the time.
    Stop(Role, Duration),
    /// A process is stopped for the time, and a switch is killed and restarted meanwhile.
    RestartBesideStopped(usize, Role, Duration),
    /// A host is separated from all others for the time.
    Cut(usize, Duration),
    /// A host loses datagrams for the time, in percent.
    Loss(usize, u32, Duration),
    /// The link to a host carries this many Mbit/s for the time: datagrams to it wait.
    Slow(usize, u32, Duration),
    /// The disk of the controllers' store is full for the time, and a process dies meanwhile.
    FullDisk(usize, Duration),
    /// An older copy of the controllers' store, which lacks the failure of a process, is in place
    /// until all controllers have refused it.
    OldStore(usize),
    /// A second controller with the id of the first one starts at another switch.
    SecondController,
    /// A member of the group dies, once in a fabric: a majority continues.
    KillMember(usize),
    /// Every program that may be restarted is, one after the other, with this time between.
    Roll(Duration),
}

/// Kinds of faults that can be asked for alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FaultKind {
    /// Nothing is broken
    None,
    /// Kill a process and restart it
    KillProcess,
    /// Kill another program and restart it
    Kill,
    /// Let a program end with Ctrl-C and restart it
    Leave,
    /// Stop any program and let it go on
    Stop,
    /// Stop a switch and let it go on
    StopSwitch,
    /// Kill a switch and restart it at once
    RestartSwitch,
    /// The same while a process is stopped
    RestartBesideStopped,
    /// Separate a host from all others
    Cut,
    /// Let a host lose datagrams
    Loss,
    /// Let datagrams to a host wait
    Slow,
    /// Fill the disk of the controllers' store
    FullDisk,
    /// Put an older copy of the controllers' store in place
    OldStore,
    /// Start a second controller with one id
    SecondController,
    /// Kill a member of the group of agreed multicast
    KillMember,
    /// Restart every program, one after the other
    Roll,
}

impl FaultKind {
    /// Kinds that are drawn unless one is asked for, each as often as listed.
    const DRAWN: [(Self, usize); 13] = [
        (Self::KillProcess, 2),
        (Self::Kill, 1),
        (Self::Leave, 2),
        (Self::Stop, 4),
        (Self::RestartBesideStopped, 2),
        (Self::Cut, 2),
        (Self::Loss, 1),
        (Self::Slow, 1),
        (Self::FullDisk, 1),
        (Self::OldStore, 1),
        (Self::SecondController, 1),
        (Self::KillMember, 1),
        (Self::Roll, 1),
    ];

    fn draw(random: &mut SmallRng) -> Self {
        let total = Self::DRAWN.iter().map(|(_, weight)| weight).sum();
        let mut at = random.random_range(0..total);
        for (kind, weight) in Self::DRAWN {
            if at < weight {
                return kind;
            }
            at -= weight;
        }
        unreachable!("the sum of the weights bounds what is drawn")
    }
}

/// Which faults are drawn: all kinds, or one kind, and for a random time or a given one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Draw {
    pub kind: Option<FaultKind>,
    pub lasting: Option<Duration>,
}

impl Draw {
    /// Draws a fault.
    pub fn fault(self, random: &mut SmallRng) -> Fault {
        let kind = self.kind.unwrap_or_else(|| FaultKind::draw(random));
        let mut time = |least, most| {
            let drawn = Duration::from_millis(random.random_range(least..most));
            self.lasting.unwrap_or(drawn)
        };
        let (short, long, pause) = (time(50, 400), time(500, 5_000), time(200, 1_500));
        let any = if random.random() { short } else { long };
        let process = random.random_range(0..PROCESSES);
        let switch = Role::Switch(random.random_range(0..SWITCHES));
        let host = random.random_range(0..HOSTS);
        let mut program = |is_wanted: fn(&Role) -> bool| {
            let roles: Vec<_> = Role::all().into_iter().filter(is_wanted).collect();
            roles[random.random_range(0..roles.len())]
        };
        match kind {
            FaultKind::None => Fault::None(long),
            FaultKind::KillProcess => Fault::Kill(Role::Process(process), short),
            FaultKind::Kill => {
                let is_wanted =
                    |role: &Role| role.is_restartable() && !matches!(role, Role::Process(_));
                Fault::Kill(program(is_wanted), short)
            }
            FaultKind::Leave => Fault::Leave(program(|role| role.is_restartable()), short),
            FaultKind::Stop => Fault::Stop(program(|_| true), any),
            FaultKind::StopSwitch => Fault::Stop(switch, long),
            FaultKind::RestartSwitch => Fault::Kill(switch, self.lasting.unwrap_or(Duration::ZERO)),
            FaultKind::RestartBesideStopped => Fault::RestartBesideStopped(process, switch, short),
            FaultKind::Cut => Fault::Cut(host, any),
            FaultKind::Loss => Fault::Loss(host, random.random_range(1..20), long),
            FaultKind::Slow => Fault::Slow(host, random.random_range(2..20), long),
            FaultKind::FullDisk => Fault::FullDisk(process, long),
            FaultKind::OldStore => Fault::OldStore(process),
            FaultKind::SecondController => Fault::SecondController,
            FaultKind::KillMember => Fault::KillMember(random.random_range(0..MEMBERS)),
            FaultKind::Roll => Fault::Roll(pause),
        }
    }
}

impl Fault {
    /// Breaks the fabric and mends it. Returns how long that took.
    pub fn apply(self, fabric: &mut Fabric) -> Result<Duration> {
        let began = Instant::now();
        self.apply_once(fabric)?;
        Ok(began.elapsed())
    }

    fn apply_once(self, fabric: &mut Fabric) -> Result<()> {
        match self {
            Self::None(time) => fabric.run_for(time),
            Self::Kill(role, time) => restart(fabric, role, Signal::KILL, time),
            Self::Leave(role, time) => restart(fabric, role, Signal::INT, time),
            Self::Stop(role, time) => {
                let processes = match role {
                    Role::Process(process) => vec![process],
                    _ => Vec::new(),
                };
                break_for(fabric, time, &processes, |fabric, is_broken| {
                    let signal = if is_broken { Signal::STOP } else { Signal::CONT };
                    fabric.signal(role, signal);
                    Ok(())
                })
            }
            Self::RestartBesideStopped(process, switch, time) => {
                break_for(fabric, time, &[process], |fabric, is_broken| {
                    let signal = if is_broken { Signal::STOP } else { Signal::CONT };
                    fabric.signal(Role::Process(process), signal);
                    if is_broken {
                        restart(fabric, switch, Signal::KILL, Duration::ZERO)
                    } else {
                        Ok(())
                    }
                })
            }
            Self::Cut(host, time) => {
                let processes = permitted_by_cut(host);
                break_for(fabric, time, &processes, |fabric, is_broken| {
                    fabric.hosts.set_connected(host, !is_broken)
                })
            }
            Self::Loss(host, percent, time) => {
                fabric.hosts.set_loss(host, percent)?;
                fabric.run_for(time)?;
                fabric.hosts.set_loss(host, 0)
            }
            Self::Slow(host, megabits, time) => {
                fabric.hosts.set_rate(host, Some(megabits))?;
                fabric.run_for(time)?;
                fabric.hosts.set_rate(host, None)
            }
            Self::OldStore(process) => put_old_store(fabric, process),
            Self::SecondController => {
                fabric.run_refused(Role::SecondController, "a live controller has this id")
            }
            Self::FullDisk(process, time) => {
                let filler = fabric.files.store.join("filler");
                fill(&filler)?;
                fabric.end(Role::Process(process), Signal::KILL)?;
                fabric.run_for(time)?;
                std::fs::remove_file(&filler).context("cannot make room again")?;
                fabric.run(Role::Process(process))
            }
            Self::KillMember(member) => match fabric.are_members_alive() {
                true => fabric.end(Role::Member(member), Signal::KILL),
                false => Ok(()),
            },
            Self::Roll(pause) => {
                for role in Role::all().into_iter().filter(|role| role.is_restartable()) {
                    restart(fabric, role, Signal::INT, Duration::ZERO)?;
                    fabric.run_for(pause)?;
                }
                Ok(())
            }
        }
    }
}

/// Breaks something for a time, and mends it. On a busy machine that takes longer than was asked
/// for: these processes may fail as soon as it has taken longer than [`SURVIVED_MAX`].
fn break_for(
    fabric: &mut Fabric,
    time: Duration,
    processes: &[usize],
    mut set_broken: impl FnMut(&mut Fabric, bool) -> Result<()>,
) -> Result<()> {
    let began = Instant::now();
    let permit = |fabric: &mut Fabric| {
        if began.elapsed().max(time) > SURVIVED_MAX {
            processes.iter().for_each(|process| fabric.permit(*process));
        }
    };
    permit(fabric);
    set_broken(fabric, true)?;
    while began.elapsed() < time {
        permit(fabric);
        fabric.turn()?;
    }
    set_broken(fabric, false)?;
    permit(fabric);
    Ok(())
}

/// Returns the processes that may be declared failed when a host is cut off for long.
fn permitted_by_cut(host: usize) -> Vec<usize> {
    // Without the root or the controllers' host nobody decides, and both halves live on; the
    // processes behind the lower switch are a minority only if the controllers decide so.
    match host {
        0 => (0..PROCESSES).collect(),
        host => Role::processes_at(host).collect(),
    }
}

fn restart(fabric: &mut Fabric, role: Role, signal: Signal, after: Duration) -> Result<()> {
    fabric.end(role, signal)?;
    fabric.run_for(after)?;
    fabric.run(role)
}

/// Lets the controllers run with a copy of their store that lacks the failure of a process, until
/// all have refused it.
fn put_old_store(fabric: &mut Fabric, process: usize) -> Result<()> {
    let store = fabric.files.controllers_store();
    /// What a controller prints that finds its store too old.
    const REFUSED: &str = "it went back in time";
    let (older, latest) = (fabric.files.folder.join("older"), fabric.files.folder.join("latest"));
    let controllers = || (0..CONTROLLERS).map(Role::Controller);
    let end =
        |fabric: &mut Fabric| controllers().try_for_each(|role| fabric.end(role, Signal::INT));
    end(fabric)?;
    std::fs::copy(&store, &older).context("cannot copy the store")?;
    controllers().try_for_each(|role| fabric.run(role))?;
    restart(fabric, Role::Process(process), Signal::KILL, Duration::ZERO)?;
    // Reliable messages arrive again once the failure is decided.
    fabric.converge()?;
    end(fabric)?;
    // The store may be on another file system than the copies.
    std::fs::copy(&store, &latest).context("cannot copy the store")?;
    std::fs::copy(&older, &store).context("cannot put the older copy in place")?;
    let refused = controllers().try_for_each(|role| fabric.run_refused(role, REFUSED));
    std::fs::copy(&latest, &store).context("cannot put the store back")?;
    refused?;
    controllers().try_for_each(|role| fabric.run(role))
}

/// Writes a file until its disk is full.
fn fill(path: &std::path::Path) -> Result<()> {
    let mut file = File::create(path).context("cannot fill the disk")?;
    let block = vec![0; 4096];
    while file.write_all(&block).is_ok() {}
    Ok(())
}
