//! Events of a switch.

use onepipe_base::Port;

/// A change in which links take part in the barriers, and in what they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SwitchEvent {
    /// The first frame on a link, or the first one after a loss or a leave.
    LinkJoined(Port),
    /// The link was idle for longer than the link timeout, or was reported lost; it is out of the
    /// barriers.
    LinkLost(Port),
    /// The process left; its link is out of the barriers.
    LinkLeft(Port),
    /// The peer does not receive this switch any more; the link is out of the barriers.
    LinkOneWay(Port),
    /// A new incarnation has replaced the previous one, which is out of the barriers.
    LinkRestarted(Port),
    /// The commits of the link that was just lost, left or restarted are held until a controller
    /// resolves it. Follows the event that gives the reason.
    LinkFrozen(Port),
    /// A controller has resolved a frozen link: it holds no commits any more.
    LinkResolved(Port),
    /// A controller is at this port.
    ControllerJoined(Port),
    /// The controller at this port has timed out.
    ControllerLost(Port),
    /// This switch was declared dead while running: all links are forgotten, and the next
    /// incarnation has started.
    Restarted,
}
