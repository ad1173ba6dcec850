//! Where figures 14a to 14c contradict other numbers of the paper.

use crate::experiment::ContradictedPoints;
use crate::verdict::{Contradiction, Stated};

/// Rate of a host's link in Gbit/s.
const LINK_GBPS: f64 = 100.0;
/// What a process sends or receives at the most, by figures 8a and 11.
const SENDS: Stated =
    Stated { value: 5.3, text: "5.3 M/s of a process with 64-byte messages (figure 8a, the most)" };
/// Frames of RoCEv2's unreliable datagrams take 90 bytes of a link without their payload: 38 of
/// Ethernet, 20 of IP, 8 of UDP, 12, 8 and 4 of InfiniBand. 1Pipe adds 24 (section 6.1). Each
/// message takes at least one ("each 1Pipe message is fragmented into one or more UD packets"), and
/// a key has 8 bytes. So with 512 processes, where 31 of 32 messages leave their host, two requests
/// and two replies of 1.877 M transactions/s in each of 16 processes take 110 Gbit/s, without
/// values.
pub(super) const FRAMES: Contradiction = Contradiction::Exceeds(
    Stated {
        value: 109.9,
        text: "110 Gbit/s from a host without values (figure 14a: 1.877 M transactions/s of two \
               requests and two replies in 16 processes, in frames of 114 bytes, with keys of 8)",
    },
    LINK_RATE,
);
const LINK_RATE: Stated = Stated { value: LINK_GBPS, text: "its 100 Gbit/s (section 7.1)" };
/// One process alone does as many transactions as one of many, so a message of a process to itself
/// counts like any other.
pub(super) const MESSAGES: Contradiction = Contradiction::Exceeds(
    Stated {
        value: 7.2,
        text: "7.2 to 7.7 M messages/s that a process sends (figure 14a: two requests and two \
               replies a transaction)",
    },
    SENDS,
);
const MESSAGES_NONTX: Contradiction = Contradiction::Exceeds(
    Stated {
        value: 7.7,
        text: "7.7 to 8.6 M messages/s that a process sends (figure 14a: two requests and two \
               replies a transaction)",
    },
    Stated { value: 5.4, text: "5.4 M/s of a process of any system (figure 8a)" },
);
/// YCSB's Zipf distribution has the constant 0.99, so of 2^64 keys, the most that 64 bits allow,
/// the hottest has 1.77 % of the operations, and of fewer keys more. Its process sends 2 requests,
/// 2 replies and 2 x 1.77 % of the number of processes for a transaction of each process.
pub(super) const HOT_KEY: Contradiction = Contradiction::Exceeds(
    Stated {
        value: 6.7,
        text: "6.7 M messages/s and more, with 512 processes 27.9, that the process of the hottest \
               key sends (figure 14a; of YCSB's Zipf distribution over all keys of 64 bits it has \
               1.8 % of the operations)",
    },
    SENDS,
);
pub(super) const HOT_KEY_NONTX: Contradiction = Contradiction::Exceeds(
    Stated {
        value: 7.4,
        text: "7.4 M messages/s and more, with 512 processes 32.9, that the process of the hottest \
               key sends (figure 14a; of YCSB's Zipf distribution over all keys of 64 bits it has \
               1.8 % of the operations)",
    },
    Stated { value: 5.4, text: "5.4 M/s of a process of any system (figure 8a)" },
);
pub(super) const HOT_KEY_LOAD: Contradiction = Contradiction::Exceeds(
    Stated {
        value: 26.5,
        text: "26.5 M messages/s that the process of the hottest key sends at 95 % of the peak rate \
               (figure 14a, 512 processes; of YCSB's Zipf distribution over all keys of 64 bits it \
               has 1.8 % of the operations)",
    },
    SENDS,
);
/// Values of a host in figure 14c: each operation carries one, in a request or in a reply.
pub(super) const VALUES: Contradiction = Contradiction::Exceeds(
    Stated {
        value: 179.0,
        text: "179 to 189 Gbit/s of values from a host (figure 14c: 194 bytes in ETC's mean)",
    },
    LINK_RATE,
);
const VALUES_NONTX: Contradiction = Contradiction::Exceeds(
    Stated {
        value: 193.0,
        text: "193 to 211 Gbit/s of values from a host (figure 14c: 194 bytes in ETC's mean)",
    },
    LINK_RATE,
);
pub(super) const VALUES_YCSB: Contradiction = Contradiction::Exceeds(
    Stated {
        value: 124.0,
        text: "124 to 130 Gbit/s of values from a host (figure 14c: 194 bytes in ETC's mean)",
    },
    LINK_RATE,
);
const VALUES_NONTX_YCSB: Contradiction = Contradiction::Exceeds(
    Stated {
        value: 136.0,
        text: "136 to 142 Gbit/s of values from a host (figure 14c: 194 bytes in ETC's mean)",
    },
    LINK_RATE,
);

/// FaRM's values, and for each operation a frame of at least 86 bytes in each direction (that of
/// RoCEv2's reads), unless operations of a transaction on one of 512 shards share them.
const VALUES_FARM: Contradiction = Contradiction::Exceeds(
    Stated {
        value: 140.0,
        text: "140 Gbit/s and more from a host, of which 86 to 91 are values and the rest the \
               headers of a request and a reply for each operation (figure 14c: 194 bytes in ETC's \
               mean)",
    },
    LINK_RATE,
);

/// Points of figures 14a and 14c, all of them.
const fn all_points(numbers: Contradiction) -> ContradictedPoints {
    ContradictedPoints { first: 2.0, last: 512.0, numbers }
}

pub(super) const UNIFORM_POINTS: &[ContradictedPoints] =
    &[all_points(MESSAGES), ContradictedPoints { first: 512.0, last: 512.0, numbers: FRAMES }];
pub(super) const YCSB_POINTS: &[ContradictedPoints] = &[all_points(HOT_KEY)];
pub(super) const NONTX_POINTS: &[ContradictedPoints] = &[all_points(MESSAGES_NONTX)];
pub(super) const NONTX_YCSB_POINTS: &[ContradictedPoints] = &[all_points(HOT_KEY_NONTX)];
pub(super) const SHARE_POINTS: &[ContradictedPoints] =
    &[ContradictedPoints { first: 0.1, last: 50.0, numbers: HOT_KEY_LOAD }];
pub(super) const SIZE_POINTS: &[ContradictedPoints] = &[all_points(VALUES)];
pub(super) const SIZE_YCSB_POINTS: &[ContradictedPoints] = &[all_points(VALUES_YCSB)];
pub(super) const SIZE_FARM_POINTS: &[ContradictedPoints] = &[all_points(VALUES_FARM)];
pub(super) const SIZE_NONTX_POINTS: &[ContradictedPoints] = &[all_points(VALUES_NONTX)];
pub(super) const SIZE_NONTX_YCSB_POINTS: &[ContradictedPoints] = &[all_points(VALUES_NONTX_YCSB)];
