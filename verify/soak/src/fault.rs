//! Faults: what is broken, for how long, and what may follow.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use rand::RngExt;
use rand::rngs::SmallRng;
use rustix::process::Signal;

use crate::fabric::Fabric;
use crate::role::{HOSTS, MEMBERS, PROCESSES, Role, SWITCHES};

/// A process that is stopped or cut off for less than this time must survive: the default link
/// timeout with controllers is 1 s.
const SURVIVED_MAX: Duration = Duration::from_millis(700);

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// `kill -9` and a restart after the time.
    Kill(Role, Duration),
    /// Ctrl-C and a restart after the time.
    Leave(Role, Duration),
    /// SIGSTOP, and SIGCONT after the time.
    Stop(Role, Duration),
    /// A process is stopped for the time, and a switch is killed and restarted meanwhile.
    RestartBesideStopped(usize, usize, Duration),
    /// A host is separated from all others for the time.
    Cut(usize, Duration),
    /// A host loses datagrams for the time, in percent.
    Loss(usize, u32, Duration),
    /// The disk of the controllers' store is full for the time, and a process dies meanwhile.
    FullDisk(usize, Duration),
    /// A member of the group dies, once in a fabric: a majority continues.
    KillMember(usize),
    /// Every program that may be restarted is, one after the other, with this time between.
    Roll(Duration),
}

impl Fault {
    /// Draws a fault.
    pub fn draw(random: &mut SmallRng) -> Self {
        let long = |random: &mut SmallRng| Duration::from_millis(random.random_range(500..5_000));
        let short = |random: &mut SmallRng| Duration::from_millis(random.random_range(50..400));
        let process = |random: &mut SmallRng| random.random_range(0..PROCESSES);
        let switch = |random: &mut SmallRng| random.random_range(0..SWITCHES);
        // Half of the faults of programs hit processes.
        let role = |random: &mut SmallRng| {
            let mut roles = Role::all();
            roles.retain(|role| role.is_restartable() && !matches!(role, Role::Process(_)));
            match random.random_range(0..2) {
                0 => roles[random.random_range(0..roles.len())],
                _ => Role::Process(process(random)),
            }
        };
        let any = |random: &mut SmallRng| {
            let roles = Role::all();
            roles[random.random_range(0..roles.len())]
        };
        match random.random_range(0..17) {
            0..=2 => Self::Kill(role(random), short(random)),
            3..=4 => Self::Leave(role(random), short(random)),
            5..=6 => Self::Stop(any(random), long(random)),
            7..=8 => Self::Stop(any(random), short(random)),
            9..=10 => Self::RestartBesideStopped(process(random), switch(random), short(random)),
            11 => Self::Cut(random.random_range(0..HOSTS), long(random)),
            12 => Self::Cut(random.random_range(0..HOSTS), short(random)),
            13 => {
                let percent = random.random_range(1..20);
                Self::Loss(random.random_range(0..HOSTS), percent, long(random))
            }
            14 => Self::FullDisk(process(random), long(random)),
            15 => Self::KillMember(random.random_range(0..MEMBERS)),
            _ => Self::Roll(Duration::from_millis(random.random_range(200..1_500))),
        }
    }

    /// Breaks the fabric and mends it.
    pub fn apply(self, fabric: &mut Fabric) -> Result<()> {
        match self {
            Self::Kill(role, time) => restart(fabric, role, Signal::KILL, time),
            Self::Leave(role, time) => restart(fabric, role, Signal::INT, time),
            Self::Stop(role, time) => {
                if let (Role::Process(process), true) = (role, time > SURVIVED_MAX) {
                    fabric.permit(process);
                }
                fabric.signal(role, Signal::STOP);
                fabric.run_for(time)?;
                fabric.signal(role, Signal::CONT);
                Ok(())
            }
            Self::RestartBesideStopped(process, switch, time) => {
                fabric.signal(Role::Process(process), Signal::STOP);
                restart(fabric, Role::Switch(switch), Signal::KILL, Duration::ZERO)?;
                fabric.run_for(time)?;
                fabric.signal(Role::Process(process), Signal::CONT);
                Ok(())
            }
            Self::Cut(host, time) => {
                if time > SURVIVED_MAX {
                    for process in permitted_by_cut(host) {
                        fabric.permit(process);
                    }
                }
                fabric.hosts.set_connected(host, false)?;
                fabric.run_for(time)?;
                fabric.hosts.set_connected(host, true)
            }
            Self::Loss(host, percent, time) => {
                fabric.hosts.set_loss(host, percent)?;
                fabric.run_for(time)?;
                fabric.hosts.set_loss(host, 0)
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

/// Writes a file until its disk is full.
fn fill(path: &std::path::Path) -> Result<()> {
    let mut file = File::create(path).context("cannot fill the disk")?;
    let block = vec![0; 4096];
    while file.write_all(&block).is_ok() {}
    Ok(())
}
