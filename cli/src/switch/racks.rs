//! Racks and paths emulated by a switch: options, link faults over time, and link counters.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use onepipe_daemon_switch::{Direction, Link, LossyLink, Racks, SoftwareSwitch};
use serde::Serialize;

use crate::units;

/// Example of a lossy link, for error messages.
const EXAMPLE: &str = "write for example rack=0,path=2,direction=up,loss=50%,after=2s,for=10s";

/// Racks with several paths between any two, numbered as by an arbiter.
#[derive(Debug, Args)]
pub struct RackArguments {
    /// Emulate racks of this many endpoints, numbered rack by rack: the arbiter's --rack-nodes
    /// [default: no racks]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    rack_nodes: Option<u32>,
    /// Number of endpoints in all racks, as the arbiter's --nodes: the processes 0 to NODES - 1
    #[arg(long, requires = "rack_nodes", default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=4096))]
    nodes: u32,
    /// Number of paths between any two racks: the arbiter's --paths
    #[arg(long, requires = "rack_nodes", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    paths: u32,
    /// Make the link between a rack and a path lose scheduled packets, like rack=0,path=2 or
    /// rack=0,path=2,direction=up,loss=50%,after=2s,for=10s [default: both directions, all packets,
    /// from the start, permanently]; may be repeated
    #[arg(long, value_name = "LINK", requires = "rack_nodes", value_parser = lossy_link)]
    lossy_link: Vec<LossyLinkArg>,
}

/// A link that loses packets for some time.
#[derive(Clone, Debug, PartialEq)]
struct LossyLinkArg {
    rack: u32,
    path: u32,
    /// `None`: both directions.
    direction: Option<Direction>,
    loss: f64,
    after_ns: u64,
    for_ns: Option<u64>,
}

/// Parses `rack=0,path=2,…`.
fn lossy_link(text: &str) -> Result<LossyLinkArg> {
    let (mut rack, mut path, mut direction) = (None, None, None);
    let (mut loss, mut after_ns, mut for_ns) = (None, None, None);
    for part in text.split(',') {
        let Some((name, value)) = part.split_once('=') else {
            bail!("{part:?} is not KEY=VALUE: {EXAMPLE}");
        };
        let count = || value.parse::<u32>().with_context(|| format!("{value:?} is not a number"));
        let is_repeated = match name {
            "rack" => rack.replace(count()?).is_some(),
            "path" => path.replace(count()?).is_some(),
            "direction" => {
                let which = match value {
                    "up" => Some(Direction::Up),
                    "down" => Some(Direction::Down),
                    "both" => None,
                    _ => bail!("{value:?} is not a direction: up (from the rack), down or both"),
                };
                direction.replace(which).is_some()
            }
            "loss" => loss.replace(units::probability(value)?).is_some(),
            "after" => after_ns.replace(units::time_ns(value)?).is_some(),
            "for" => for_ns.replace(units::time_ns(value)?).is_some(),
            _ => bail!("{name:?} is not a key of a link: {EXAMPLE}"),
        };
        if is_repeated {
            bail!("{name} is given twice");
        }
    }
    let (Some(rack), Some(path)) = (rack, path) else {
        bail!("a link needs a rack and a path: {EXAMPLE}");
    };
    Ok(LossyLinkArg {
        rack,
        path,
        direction: direction.flatten(),
        loss: loss.unwrap_or(1.0),
        after_ns: after_ns.unwrap_or(0),
        for_ns,
    })
}

impl LossyLinkArg {
    fn links(&self) -> impl Iterator<Item = LossyLink> {
        let Self { rack, path, direction, loss, .. } = *self;
        let both = [Direction::Up, Direction::Down].into_iter();
        let directions =
            both.filter(move |one| direction.is_none_or(|direction| direction == *one));
        directions.map(move |direction| LossyLink { link: Link { rack, path, direction }, loss })
    }

    /// Returns the time at which the link ceases to lose packets.
    fn ends_ns(&self) -> Option<u64> {
        Some(self.after_ns + self.for_ns?)
    }

    fn is_lossy_at(&self, ns: u64) -> bool {
        self.after_ns <= ns && self.ends_ns().is_none_or(|end| ns < end)
    }
}

impl RackArguments {
    /// Returns the initial racks, and the schedule of their faults. Exits with a usage error if a
    /// link does not exist.
    pub fn racks(&self) -> (Option<Racks>, LinkFaultSchedule) {
        let Some(rack_nodes) = self.rack_nodes else { return (None, LinkFaultSchedule::default()) };
        let schedule = LinkFaultSchedule::new(self.lossy_link.clone());
        let lossy = schedule.lossy_links_at(0);
        let racks = Racks { nodes: self.nodes, rack_nodes, paths: self.paths, lossy };
        let all: Vec<LossyLink> = self.lossy_link.iter().flat_map(LossyLinkArg::links).collect();
        if let Err(error) = racks.check(&all) {
            crate::usage_error(&format!("--lossy-link: {error}"));
        }
        (Some(racks), schedule)
    }
}

/// Schedule of the link faults.
#[derive(Debug, Default)]
pub struct LinkFaultSchedule {
    all: Vec<LossyLinkArg>,
    /// Times of changes, in descending order.
    changes_ns: Vec<u64>,
}

impl LinkFaultSchedule {
    fn new(all: Vec<LossyLinkArg>) -> Self {
        let begins = all.iter().map(|lossy| lossy.after_ns).filter(|ns| *ns > 0);
        let mut changes_ns: Vec<u64> =
            begins.chain(all.iter().filter_map(LossyLinkArg::ends_ns)).collect();
        changes_ns.sort_unstable_by(|one, other| other.cmp(one));
        Self { all, changes_ns }
    }

    /// Returns the lossy links at this time. The last entry for a link wins.
    fn lossy_links_at(&self, ns: u64) -> Vec<LossyLink> {
        self.all
            .iter()
            .filter(|lossy| lossy.is_lossy_at(ns))
            .flat_map(LossyLinkArg::links)
            .collect()
    }

    /// Applies the changes that are due.
    pub fn apply_due(&mut self, switch: &mut SoftwareSwitch, began: Instant) -> Result<()> {
        let Some(next) = self.changes_ns.last() else { return Ok(()) };
        let elapsed = began.elapsed();
        if elapsed < Duration::from_nanos(*next) {
            return Ok(());
        }
        let ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        while self.changes_ns.pop_if(|change| *change <= ns).is_some() {}
        Ok(switch.set_lossy_links(&self.lossy_links_at(ns))?)
    }
}

/// Load of the links between racks and paths.
#[derive(Clone, Debug, Serialize)]
pub struct LinkLoads {
    /// Scheduled packets between racks that named an unknown path.
    frames_without_path: u64,
    /// Links that carried packets.
    links: Vec<LinkCounters>,
}

/// Counters of one direction of a link.
#[derive(Clone, Copy, Debug, Serialize)]
struct LinkCounters {
    rack: u32,
    path: u32,
    direction: &'static str,
    frames: u64,
    lost: u64,
}

impl LinkLoads {
    /// Returns the load of a switch that emulates racks.
    pub fn of(switch: &SoftwareSwitch) -> Option<Self> {
        switch.links().next()?;
        let loaded = switch.links().filter(|report| report.frames > 0);
        let links = loaded.map(|report| LinkCounters {
            rack: report.link.rack,
            path: report.link.path,
            direction: match report.link.direction {
                Direction::Up => "up",
                Direction::Down => "down",
            },
            frames: report.frames,
            lost: report.lost,
        });
        let frames_without_path = switch.stats().frames_without_path;
        Some(Self { frames_without_path, links: links.collect() })
    }

    /// Prints a line for each rack and direction.
    pub fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut rows: Vec<(u32, &str)> =
            self.links.iter().map(|link| (link.rack, link.direction)).collect();
        rows.sort_unstable_by_key(|(rack, direction)| (*rack, *direction == "down"));
        rows.dedup();
        for (rack, direction) in rows {
            let is_of = |link: &&LinkCounters| (link.rack, link.direction) == (rack, direction);
            let links = self.links.iter().filter(is_of).map(|link| match link.lost {
                0 => format!("{} on path {}", link.frames, link.path),
                lost => format!("{} on path {} ({lost} lost)", link.frames, link.path),
            });
            let links: Vec<String> = links.collect();
            writeln!(out, "rack {rack} {direction}: {}", links.join(", "))?;
        }
        if self.frames_without_path > 0 {
            writeln!(
                out,
                "{} packets named an unknown path: --nodes, --rack-nodes and --paths must match the \
                 arbiter's",
                self.frames_without_path
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_lossy_link_with_defaults() {
        let whole = lossy_link("rack=1,path=2,direction=down,loss=50%,after=2s,for=10s").ok();
        let read = LossyLinkArg {
            rack: 1,
            path: 2,
            direction: Some(Direction::Down),
            loss: 0.5,
            after_ns: 2_000_000_000,
            for_ns: Some(10_000_000_000),
        };
        assert_eq!(whole, Some(read.clone()));
        let short = lossy_link("path=0,rack=3").expect("valid link");
        assert_eq!((short.direction, short.loss, short.ends_ns()), (None, 1.0, None));
        assert_eq!((short.links().count(), read.links().count()), (2, 1));
        for (text, expected) in [
            ("", "is not KEY=VALUE: write for example rack=0,path=2"),
            ("rack=0", "a link needs a rack and a path"),
            ("rack=0,path=-1", "is not a number"),
            ("rack=0,path=1,loss=1.5", "must lie between 0 and 1"),
            ("rack=0,path=1,loss=NaN", "must lie between 0 and 1"),
            (
                "rack=0,path=1,direction=left",
                "is not a direction: up (from the rack), down or both",
            ),
            ("rack=0,path=1,for=3", "has no unit"),
            ("rack=0,path=1,spine=3", "is not a key of a link"),
            ("rack=0,path=1,rack=2", "rack is given twice"),
        ] {
            let error = lossy_link(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn lossy_links_follow_schedule() {
        let of = |text: &str| lossy_link(text).expect("valid link");
        let schedule = LinkFaultSchedule::new(vec![
            of("rack=0,path=0,direction=up,for=3s"),
            of("rack=1,path=1,direction=up,after=2s,for=2s"),
            of("rack=2,path=2,direction=up"),
        ]);
        let at = |s: u64| {
            let links = schedule.lossy_links_at(s * 1_000_000_000);
            links.iter().map(|lossy| lossy.link.rack).collect::<Vec<_>>()
        };
        assert_eq!([0, 2, 3, 4].map(at), [vec![0, 2], vec![0, 1, 2], vec![1, 2], vec![2]]);
        assert_eq!(schedule.changes_ns, [4_000_000_000, 3_000_000_000, 2_000_000_000]);
    }
}
