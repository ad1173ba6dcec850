//! Emulated racks with several paths between each two: the choices of scheduled transfer.
//!
//! The switch has one link to each process, and emulates a fabric that has more: a frame of a
//! granted timeslot names its path, and counts as crossing the link up from its sender's rack to
//! that path, and the link down from there to its receiver's rack. Each of these links may lose
//! frames. Other frames have no path, cross no link and are not lost here.

use onepipe_wire::{Opcode, SHORT_HEADER_LEN, Slot, parse_header};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::faults::bernoulli;
use crate::{StartError, Stats};

/// A fabric of racks, numbered as in its arbiter (`onepipe_arbiter::Fabric`).
#[derive(Clone, Debug, PartialEq)]
pub struct Racks {
    /// Number of endpoints, rack by rack: the processes below this number. 1 to 4,096.
    pub nodes: u32,
    /// Endpoints per rack, 1 to 64.
    pub rack_nodes: u32,
    /// Paths from a rack to any other, 1 to 64.
    pub paths: u32,
    /// Links that lose frames. Losses are drawn from a stream that starts at
    /// [`crate::Faults::seed`].
    pub lossy: Vec<LossyLink>,
}

/// A link that loses frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossyLink {
    /// The link.
    pub link: Link,
    /// The probability that a frame is lost there, from 0 to 1.
    pub loss: f64,
}

/// One direction of the link between a rack and a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// The rack.
    pub rack: u32,
    /// The path.
    pub path: u32,
    /// The direction.
    pub direction: Direction,
}

/// The direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the rack.
    Up,
    /// To the rack.
    Down,
}

/// The load of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// The link.
    pub link: Link,
    /// Frames that arrived at it.
    pub frames: u64,
    /// Those of them that were lost there.
    pub lost: u64,
}

impl Racks {
    /// Returns the number of racks.
    pub fn count(&self) -> u32 {
        self.nodes.div_ceil(self.rack_nodes.max(1))
    }

    /// Checks the racks and the links in `lossy`.
    ///
    /// # Errors
    /// [`StartError`], which names what does not exist.
    pub fn check(&self, lossy: &[LossyLink]) -> Result<(), StartError> {
        let in_range = |range: std::ops::RangeInclusive<u32>, field, value: u32| match range {
            range if range.contains(&value) => Ok(()),
            _ => Err(StartError::OutOfRange { field, value: value.into() }),
        };
        in_range(1..=4_096, "nodes", self.nodes)?;
        in_range(1..=64, "rack_nodes", self.rack_nodes)?;
        in_range(1..=64, "paths", self.paths)?;
        for LossyLink { link, loss } in lossy {
            let Link { rack, path, .. } = *link;
            if rack >= self.count() || path >= self.paths {
                let (racks, paths) = (self.count(), self.paths);
                return Err(StartError::UnknownLink { rack, path, racks, paths });
            }
            if !(0.0..=1.0).contains(loss) {
                return Err(StartError::Loss(*loss));
            }
        }
        Ok(())
    }
}

/// The state of the links.
#[derive(Debug)]
pub(crate) struct RackLinks {
    racks: Racks,
    random: Xoshiro256PlusPlus,
    /// Rack by rack, path by path, up and down.
    links: Vec<LinkState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LinkState {
    loss: f64,
    frames: u64,
    lost: u64,
}

impl RackLinks {
    /// Creates the links of racks that were checked.
    pub(crate) fn new(racks: Racks, seed: u64) -> Self {
        let count = 2 * racks.count() * racks.paths;
        let lossy = racks.lossy.clone();
        let mut links = Self {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            links: vec![LinkState::default(); count as usize],
            racks,
        };
        links.set_lossy(&lossy);
        links
    }

    pub(crate) fn racks(&self) -> &Racks {
        &self.racks
    }

    /// Makes these links, which were checked, lose frames from now on, and no others.
    pub(crate) fn set_lossy(&mut self, lossy: &[LossyLink]) {
        self.links.iter_mut().for_each(|link| link.loss = 0.0);
        for LossyLink { link, loss } in lossy {
            let index = self.index(*link);
            self.links[index].loss = *loss;
        }
    }

    fn index(&self, Link { rack, path, direction }: Link) -> usize {
        let side = match direction {
            Direction::Up => 0,
            Direction::Down => 1,
        };
        ((rack * self.racks.paths + path) * 2 + side) as usize
    }

    /// Sends a frame over its links. Returns whether it arrives.
    pub(crate) fn carry(&mut self, frame: &[u8], stats: &mut Stats) -> bool {
        let Ok((header, Opcode::Slot)) = parse_header(frame) else { return true };
        let (src, dst) = (header.src().0, header.dst().0);
        let [from, to] = [src, dst].map(|process| process / self.racks.rack_nodes);
        if from == to {
            return true;
        }
        let path = frame.get(SHORT_HEADER_LEN..).and_then(Slot::path).map(u32::from);
        let is_known = src < self.racks.nodes && dst < self.racks.nodes;
        let Some(path) = path.filter(|path| is_known && *path < self.racks.paths) else {
            stats.frames_without_path += 1;
            return true;
        };
        let up = Link { rack: from, path, direction: Direction::Up };
        let down = Link { rack: to, path, direction: Direction::Down };
        self.cross(up) && self.cross(down)
    }

    fn cross(&mut self, link: Link) -> bool {
        let index = self.index(link);
        let link = &mut self.links[index];
        link.frames += 1;
        let is_lost = bernoulli(&mut self.random, link.loss);
        link.lost += u64::from(is_lost);
        !is_lost
    }

    /// Returns the load of each link, ordered by rack, then by path, up before down.
    pub(crate) fn report(&self) -> impl Iterator<Item = LinkReport> + '_ {
        let Racks { paths, .. } = self.racks;
        self.links.iter().zip(0..).map(move |(LinkState { frames, lost, .. }, index): (_, u32)| {
            let direction = [Direction::Up, Direction::Down][index as usize % 2];
            let (rack, path) = (index / 2 / paths, index / 2 % paths);
            let link = Link { rack, path, direction };
            LinkReport { link, frames: *frames, lost: *lost }
        })
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Incarnation, ProcessId};
    use onepipe_wire::{ANY_LINK, Header, NO_PATH, SLOT_HEADER_LEN, header_len, seal};

    use super::*;

    /// Three racks of two, the last one with one, and four paths.
    fn racks(lossy: &[LossyLink]) -> Racks {
        Racks { nodes: 5, rack_nodes: 2, paths: 4, lossy: lossy.to_vec() }
    }

    fn frame(opcode: Opcode, src: u32, dst: u32, path: u8) -> Vec<u8> {
        let front = header_len(opcode as u8);
        let mut frame = vec![0; front + SLOT_HEADER_LEN];
        let slot = Slot { label: [ANY_LINK; 4], timeslot: 0, path, earlier: [NO_PATH; 3] };
        slot.write(&mut frame[front..]).expect("there is room");
        let header = Header::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(1));
        seal(&mut frame, header, SLOT_HEADER_LEN);
        frame
    }

    fn up(rack: u32, path: u32) -> Link {
        Link { rack, path, direction: Direction::Up }
    }

    fn down(rack: u32, path: u32) -> Link {
        Link { rack, path, direction: Direction::Down }
    }

    fn used_links(links: &RackLinks) -> Vec<(Link, u64, u64)> {
        let all = links.report().filter(|report| report.frames > 0);
        all.map(|report| (report.link, report.frames, report.lost)).collect()
    }

    #[test]
    fn frame_crosses_one_uplink_and_one_downlink_of_its_path() {
        let dead =
            [LossyLink { link: up(1, 2), loss: 1.0 }, LossyLink { link: down(2, 0), loss: 1.0 }];
        let (mut links, mut stats) = (RackLinks::new(racks(&dead), 7), Stats::default());
        let mut carry =
            |src, dst, path| links.carry(&frame(Opcode::Slot, src, dst, path), &mut stats);
        assert!(carry(0, 3, 2), "the downlink works");
        assert!(!carry(3, 0, 2), "lost on the uplink, so it does not reach the downlink");
        assert!(carry(2, 4, 1) && !carry(2, 4, 0) && carry(4, 2, 0));
        let expected = [
            (up(0, 2), 1, 0),
            (up(1, 0), 1, 0),
            (down(1, 0), 1, 0),
            (up(1, 1), 1, 0),
            (up(1, 2), 1, 1),
            (down(1, 2), 1, 0),
            (up(2, 0), 1, 0),
            (down(2, 0), 1, 1),
            (down(2, 1), 1, 0),
        ];
        assert_eq!(used_links(&links), expected);
        links.set_lossy(&[]);
        assert!(links.carry(&frame(Opcode::Slot, 3, 0, 2), &mut stats), "it is repaired");
        assert_eq!(stats, Stats::default());
    }

    #[test]
    fn frames_without_path_cross_no_link() {
        let all =
            (0..3).flat_map(|rack| (0..4).flat_map(move |path| [up(rack, path), down(rack, path)]));
        let dead: Vec<LossyLink> = all.map(|link| LossyLink { link, loss: 1.0 }).collect();
        let (mut links, mut stats) = (RackLinks::new(racks(&dead), 7), Stats::default());
        for opcode in [Opcode::Fcp, Opcode::Drops, Opcode::Data, Opcode::Beacon] {
            assert!(links.carry(&frame(opcode, 0, 2, 1), &mut stats), "{opcode:?}");
        }
        assert!(links.carry(&frame(Opcode::Slot, 2, 3, NO_PATH), &mut stats), "within a rack");
        assert!(links.carry(&[], &mut stats));
        assert_eq!(stats.frames_without_path, 0);
        // Its arbiter is configured for another fabric.
        for (src, dst, path) in [(0, 2, NO_PATH), (0, 2, 4), (0, 5, 1), (9, 0, 1)] {
            assert!(links.carry(&frame(Opcode::Slot, src, dst, path), &mut stats));
        }
        assert_eq!((stats.frames_without_path, used_links(&links)), (4, vec![]));
        assert!(!links.carry(&frame(Opcode::Slot, 0, 2, 3), &mut stats));
    }

    #[test]
    fn loss_rate_is_as_configured_and_seeded() {
        let lossy = [LossyLink { link: up(0, 3), loss: 0.25 }];
        let outcomes = |seed| {
            let (mut links, mut stats) = (RackLinks::new(racks(&lossy), seed), Stats::default());
            let frame = frame(Opcode::Slot, 1, 4, 3);
            (0..4_000).map(|_| links.carry(&frame, &mut stats)).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(7), outcomes(7));
        assert_ne!(outcomes(7), outcomes(8));
        let lost = outcomes(7).iter().filter(|passes| !**passes).count();
        assert!((900..1_100).contains(&lost), "{lost}");
    }

    #[test]
    fn invalid_links_are_rejected_with_the_valid_range() {
        let check = |link, loss| {
            let lossy = [LossyLink { link, loss }];
            racks(&[]).check(&lossy).map_err(|error| error.to_string())
        };
        assert_eq!(check(up(2, 3), 1.0), Ok(()));
        let nowhere = "there is no link of rack 3 to path 0: racks are 0 to 2 and paths 0 to 3";
        assert_eq!(check(up(3, 0), 1.0), Err(nowhere.to_owned()));
        assert!(check(down(0, 4), 1.0).is_err_and(|error| error.contains("rack 0 to path 4")));
        for loss in [-0.1, 1.5, f64::NAN] {
            let error =
                format!("loss = {loss} is out of range: a probability lies between 0 and 1");
            assert_eq!(check(up(0, 0), loss), Err(error));
        }
        for wrong in [
            Racks { nodes: 0, ..racks(&[]) },
            Racks { rack_nodes: 0, ..racks(&[]) },
            Racks { rack_nodes: 65, ..racks(&[]) },
            Racks { paths: 0, ..racks(&[]) },
            Racks { paths: 65, ..racks(&[]) },
        ] {
            assert!(wrong.check(&[]).is_err(), "{wrong:?}");
        }
    }
}
