//! Selection among equal-cost paths.

use onepipe_base::{Port, ProcessId, Psn};

use crate::PortRange;

/// How frames are spread over equal-cost paths. The selection is a pure function of the frame's
/// header and the node's salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spread {
    /// All frames from a sender to a receiver take one path (ECMP), and stay in order.
    PerFlow,
    /// Each packet takes its own path: better balance, but packets may be reordered (driver rule
    /// D4).
    PerPacket,
}

/// The header fields of a frame that determine its choice among equal next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    /// The sender.
    pub src: ProcessId,
    /// The receiver.
    pub dst: ProcessId,
    /// The packet sequence number.
    pub psn: Psn,
}

impl Spread {
    /// Selects one of `ports` for a frame. `salt` differs between nodes: with equal salts, all
    /// flows that reach a node by the same choice would make the same choice there again
    /// (polarisation).
    #[inline]
    pub fn choose(self, ports: PortRange, salt: u32, flow: FlowKey) -> Port {
        let FlowKey { src, dst, psn } = flow;
        if ports.count() == 1 {
            return ports.first();
        }
        let flow = u64::from(src.0) << 32 | u64::from(dst.0);
        let packet = match self {
            Self::PerFlow => 0,
            Self::PerPacket => u64::from(psn.0),
        };
        let draw = mix(mix(flow ^ u64::from(salt).wrapping_mul(GOLDEN_RATIO))
            ^ packet.wrapping_mul(GOLDEN_RATIO));
        // Scales the high bits to the range: no division, and no relevant bias below 2^16 ports.
        let nth = ((draw >> 32) * u64::from(ports.count())) >> 32;
        debug_assert!(nth < u64::from(ports.count()), "the draw is scaled to the range");
        ports.nth(nth as u32)
    }
}

/// 2^64 divided by the golden ratio, odd (Knuth's multiplicative hash).
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64 (Steele, Lea, Flood: OOPSLA 2014): every input bit reaches every
/// output bit.
#[inline]
const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: PortRange = PortRange::new(Port(8), 8);

    fn choose(spread: Spread, salt: u32, src: u32, dst: u32, psn: u32) -> Port {
        let flow = FlowKey { src: ProcessId(src), dst: ProcessId(dst), psn: Psn(psn) };
        spread.choose(PORTS, salt, flow)
    }

    #[test]
    fn flows_keep_their_path_and_packets_do_not() {
        let port = |spread, psn| choose(spread, 1, 2, 3, psn);
        assert!((0..100).all(|psn| port(Spread::PerFlow, psn) == port(Spread::PerFlow, 0)));
        assert!((0..100).any(|psn| port(Spread::PerPacket, psn) != port(Spread::PerPacket, 0)));
    }

    #[test]
    fn flows_and_packets_spread_evenly() {
        let (mut flows, mut packets) = ([0; 8], [0; 8]);
        for n in 0..8_000u32 {
            flows[choose(Spread::PerFlow, 5, n % 89, n / 89, 0).index() - 8] += 1;
            packets[choose(Spread::PerPacket, 5, 1, 2, n).index() - 8] += 1;
        }
        for count in flows.into_iter().chain(packets) {
            assert!((850..1_150).contains(&count), "{count} of 8000 on one port of 8");
        }
    }

    #[test]
    fn tiers_choose_independently() {
        let mut second = [0; 8];
        for n in 0..64_000u32 {
            let (src, dst) = (n % 253, n / 253);
            if choose(Spread::PerFlow, 1, src, dst, 0) == Port(8) {
                second[choose(Spread::PerFlow, 2, src, dst, 0).index() - 8] += 1;
            }
        }
        assert!(second.iter().all(|count| (800..1_200).contains(count)), "{second:?}");
    }
}
