//! Diagnosis of a scheduled transfer that makes no progress.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use onepipe::ClientStats;

use super::EndpointOptions;
use super::counters::Counters;
use super::endpoint::Endpoint;
use crate::units::readable_ns;

/// Time for an ICMP port-unreachable error to arrive.
const PROBE_TIMEOUT: Duration = Duration::from_millis(200);

/// Returns whether a UDP port is known to be closed. A timeout proves nothing.
fn is_port_closed(addr: SocketAddr) -> bool {
    let local_addr = match addr {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let probe = || {
        let socket = UdpSocket::bind(local_addr)?;
        socket.connect(addr)?;
        socket.set_read_timeout(Some(PROBE_TIMEOUT))?;
        // An empty datagram, which every receiver ignores.
        socket.send(&[])?;
        socket.recv(&mut [0])
    };
    probe().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

impl Endpoint {
    /// Explains why there has been no progress since `before`, unless the peer is the cause. Only
    /// recent counters are used, as earlier success explains nothing.
    ///
    /// The checks follow the path of a request: first the switch, then the arbiter, then its
    /// grants. The first check that fails names the cause, as nothing behind it can work.
    pub fn diagnose(&self, before: &Counters) -> Option<String> {
        let EndpointOptions { udp, arbiter, nodes, slot, .. } = &self.options;
        let before = self.history.after(before);
        let (was, is) = (&before.endpoint, self.transfer.endpoint_stats());
        let recent = |count: fn(&ClientStats) -> u64| count(is) - count(was);
        let replies = recent(|stats| stats.control_received);
        let skewed = recent(|stats| stats.clock_skewed);
        let received = replies
            + skewed
            + recent(|stats| stats.control_bad)
            + recent(|stats| stats.slots_received);
        let granted = recent(|stats| stats.granted);
        let useless = (recent(|stats| stats.late), recent(|stats| stats.ahead));
        let slot = readable_ns(*slot);
        if received == 0 && is_port_closed(*udp) {
            return Some(format!(
                "no switch listens at {udp}: `onepipe switch` is not running there"
            ));
        }
        let ids = arbiter.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        if replies == 0
            && let Some(mismatched) = self.mismatched.last()
        {
            return Some(format!("{mismatched}: --slot and --nodes must be the arbiter's"));
        }
        if replies == 0 && skewed > 0 {
            return Some(format!(
                "an arbiter answers ({ids} was asked), but its clock differs by more than a \
                 second from that of this host: timeslots need synchronised clocks"
            ));
        }
        let has_asked = recent(|stats| stats.control_sent) > 0;
        match self.last_reply {
            None if replies == 0 && has_asked => {
                return Some(format!(
                    "no arbiter answers: {ids} was asked, behind the switch at {udp}, as endpoint \
                     {} of {nodes} for timeslots of {slot}; does `onepipe arbiter` run there with \
                     this --process, --nodes {nodes} and --slot {slot}?",
                    self.process
                ));
            }
            // An arbiter does not reply to an endpoint without demand.
            Some((last, at)) if replies == 0 && has_asked && self.pending() > 0 => {
                let idle_s = (self.running - at).as_secs_f64();
                return Some(format!(
                    "arbiter {last} answered until {idle_s:.1} s ago, and no arbiter does any more \
                     ({ids} was asked, behind the switch at {udp}): do they still run?"
                ));
            }
            _ => {}
        }
        if granted == 0 && useless != (0, 0) {
            return Some(format!(
                "arbiter {} grants timeslots that have passed ({}) or are too far ahead ({}): does the \
                 clock of this host agree with the arbiter's within its --lead (some milliseconds), \
                 and is its --slot {slot}, as here?",
                self.current_arbiter, useless.0, useless.1
            ));
        }
        if granted == 0 && self.pending() > 0 {
            // Two endpoints of one id reset each other's session, and one of them may get nothing.
            return Some(format!(
                "arbiter {} answers, but grants no timeslots (of {slot}): does another process use \
                 id {}?",
                self.current_arbiter, self.process
            ));
        }
        None
    }
}
