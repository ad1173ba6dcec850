//! Next hops, as ranges of equal-cost ports.

use onepipe_base::Port;

/// Consecutive ports, at least one: equal-cost next hops, of which [`crate::Spread`] selects one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: u16,
    count: u16,
}

impl PortRange {
    /// Returns the ports `first..first + count`.
    ///
    /// # Panics
    /// If there is none, or the last one exceeds the largest port number.
    pub const fn new(first: Port, count: u16) -> Self {
        assert!(count > 0 && first.0 <= u16::MAX - (count - 1));
        Self { first: first.0, count }
    }

    /// Returns the range of the single port `port`.
    pub const fn one(port: Port) -> Self {
        Self { first: port.0, count: 1 }
    }

    /// Returns the lowest port.
    pub const fn first(self) -> Port {
        Port(self.first)
    }

    /// Returns the number of ports.
    pub const fn count(self) -> u16 {
        self.count
    }

    /// Returns the port with index `nth`, modulo their number.
    #[inline]
    pub const fn nth(self, nth: u32) -> Port {
        let port = Port(self.first + (nth % self.count as u32) as u16);
        debug_assert!(self.contains(port));
        port
    }

    /// Returns whether `port` is in the range.
    #[inline]
    pub const fn contains(self, port: Port) -> bool {
        port.0.wrapping_sub(self.first) < self.count
    }

    /// Iterates over the ports in order.
    pub fn iter(self) -> impl Iterator<Item = Port> {
        (0..u32::from(self.count)).map(move |nth| self.nth(nth))
    }
}

/// The next hop of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextHop {
    /// Any of these lower ports: the destination lies below.
    Down(PortRange),
    /// Any upper port.
    Up,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_range_contains_its_ports() {
        let range = PortRange::new(Port(4), 3);
        assert!(!range.contains(Port(3)) && range.contains(Port(6)) && !range.contains(Port(7)));
        assert_eq!(range.nth(4), Port(5));
        assert_eq!(PortRange::new(Port(u16::MAX), 1).nth(0), Port(u16::MAX));
    }
}
