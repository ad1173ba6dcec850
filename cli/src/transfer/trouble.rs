//! Why an end of scheduled transfer does not get on.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use onepipe::ClientStats;

use super::Place;
use super::end::{Counted, End};
use crate::number::readable_ns;

/// Who is told that nobody listens is told so within this.
const REFUSAL: Duration = Duration::from_millis(200);
/// As often is noted what is counted,
const NOTED_EACH: Duration = Duration::from_secs(1);
/// and kept so many times: what nobody has answered for two seconds is not answered.
const NOTES: usize = 3;

/// What was counted in the last seconds.
#[derive(Debug, Default)]
pub struct Recent(VecDeque<Counted>);

impl Recent {
    /// Whether the time to note it has come.
    pub fn is_due(&self, lived: Duration) -> bool {
        self.0.back().is_none_or(|last| lived - last.lived >= NOTED_EACH)
    }

    /// Notes it.
    pub fn note(&mut self, counted: Counted) {
        self.0.push_back(counted);
        if self.0.len() > NOTES {
            self.0.pop_front();
        }
    }

    /// What was counted two to three seconds ago, or `then` if that is later.
    fn after(&self, then: &Counted) -> Counted {
        let oldest = self.0.front().filter(|oldest| oldest.lived > then.lived);
        *oldest.unwrap_or(then)
    }
}

/// Whether it is known that nobody listens at a UDP address. No answer is no proof.
fn is_refused(addr: SocketAddr) -> bool {
    let own = match addr {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let ask = || {
        let socket = UdpSocket::bind(own)?;
        socket.connect(addr)?;
        socket.set_read_timeout(Some(REFUSAL))?;
        // Of no bytes: whoever listens takes it for nothing.
        socket.send(&[])?;
        socket.recv(&mut [0])
    };
    ask().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

impl End {
    /// Why nothing gets on, and has not since `before`, as far as it is not another endpoint's
    /// affair. What went well until seconds ago is no excuse.
    pub fn trouble(&self, before: &Counted) -> Option<String> {
        let Place { udp, arbiter, nodes, slot, .. } = &self.place;
        let before = self.recent.after(before);
        let (was, is) = (&before.endpoint, self.transfer.endpoint_stats());
        let since = |count: fn(&ClientStats) -> u64| count(is) - count(was);
        let answers = since(|it| it.control_received);
        let apart = since(|it| it.clock_apart);
        let heard = answers + apart + since(|it| it.control_bad) + since(|it| it.slots_received);
        let granted = since(|it| it.granted);
        let useless = (since(|it| it.late), since(|it| it.ahead));
        let slot = readable_ns(*slot);
        if heard == 0 && is_refused(*udp) {
            return Some(format!("nobody listens at {udp}: `onepipe switch` does not run there"));
        }
        let ids = arbiter.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        if answers == 0
            && let Some(unlike) = self.unlike.last()
        {
            return Some(format!("{unlike}: --slot and --nodes must be the arbiter's"));
        }
        if answers == 0 && apart > 0 {
            return Some(format!(
                "an arbiter answers ({ids} was asked), but its clock shows a time more than a second \
                 before or after that of this host: timeslots need clocks that agree"
            ));
        }
        let asked = since(|it| it.control_sent) > 0;
        match self.answered {
            None if answers == 0 && asked => {
                return Some(format!(
                    "no arbiter answers: {ids} was asked, behind the switch at {udp}, as endpoint \
                     {} of {nodes} for timeslots of {slot}; does `onepipe arbiter` run there with \
                     this --process, --nodes {nodes} and --slot {slot}?",
                    self.process
                ));
            }
            // Who wants nothing is not answered.
            Some((last, at)) if answers == 0 && asked && self.under_way() > 0 => {
                let silent = (self.lived - at).as_secs_f64();
                return Some(format!(
                    "arbiter {last} answered until {silent:.1} s ago, and no arbiter does any more \
                     ({ids} was asked, behind the switch at {udp}): do they still run?"
                ));
            }
            _ => {}
        }
        if granted == 0 && useless != (0, 0) {
            return Some(format!(
                "arbiter {} gives timeslots that have passed ({}) or are too far ahead ({}): is the \
                 clock of this host the same as the arbiter's within its --lead (some milliseconds), \
                 and its --slot {slot}, as here?",
                self.asked, useless.0, useless.1
            ));
        }
        if granted == 0 && self.under_way() > 0 {
            return Some(format!("arbiter {} gives no timeslots (of {slot})", self.asked));
        }
        None
    }
}
