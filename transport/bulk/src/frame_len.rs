//! The length of frames over UDP, on which the members of a group agree before it starts.

use std::io;
use std::net::{SocketAddr, TcpStream};

use onepipe_bulk::PIECE_FRONT_LEN;
use rustix::net::sockopt;

use crate::carrier::STREAM_PIECE_LEN;

/// Length of a long frame in bytes: as over streams, its piece is whole pages. Routes that carry it
/// in one packet do not leave the host, so no router can be in the way of a long packet.
const LONG_FRAME_LEN: u16 = STREAM_PIECE_LEN as u16 + PIECE_FRONT_LEN as u16;
/// Length in bytes of the headers of UDP and of IPv4, or IPv6, without options.
const IPV4_UDP_LEN: u32 = 20 + 8;
const IPV6_UDP_LEN: u32 = 40 + 8;

/// What a member sends to the others before the group starts, in one value: the length of a frame
/// in the upper half and the UDP port in the lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advertisement {
    /// Length of the longest frame that the member can exchange with all others, in bytes.
    pub frame_len: u16,
    /// Port of the member's UDP socket.
    pub udp_port: u16,
}

impl Advertisement {
    pub fn value(self) -> u32 {
        u32::from(self.frame_len) << 16 | u32::from(self.udp_port)
    }

    //= spec/bulk.md#R31
    /// Parses a value; `None` without a length or a port. Earlier versions send a port only, and
    /// refuse a value with more than that.
    pub fn parse(value: u32) -> Option<Self> {
        let (frame_len, udp_port) = ((value >> 16) as u16, value as u16);
        (frame_len > 0 && udp_port > 0).then_some(Self { frame_len, udp_port })
    }
}

//= spec/bulk.md#R31
/// Returns the length of the longest frame for these connections, in bytes.
pub(crate) fn longest(configured: usize, streams: &[Option<TcpStream>]) -> usize {
    longest_over(configured, streams.iter().flatten().map(packet_len))
}

/// Returns the length of a long frame if all routes carry it in one packet, else the configured
/// length. `routes` are the lengths of their packets without headers, as far as they are known.
fn longest_over(configured: usize, mut routes: impl Iterator<Item = io::Result<u32>>) -> usize {
    let is_long = |route: io::Result<u32>| route.is_ok_and(|len| len >= LONG_FRAME_LEN.into());
    match routes.all(is_long) {
        true => configured.max(LONG_FRAME_LEN.into()),
        false => configured,
    }
}

/// Returns the length of the longest UDP payload that the route of a connection carries in one
/// packet, as far as the kernel knows.
fn packet_len(stream: &TcpStream) -> io::Result<u32> {
    let (mtu, headers_len) = match stream.peer_addr()? {
        SocketAddr::V4(_) => (sockopt::ip_mtu(stream)?, IPV4_UDP_LEN),
        SocketAddr::V6(_) => (sockopt::ipv6_mtu(stream)?, IPV6_UDP_LEN),
    };
    Ok(mtu.saturating_sub(headers_len))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    //= spec/bulk.md#R31
    #[test]
    fn advertisement_needs_a_length_and_a_port() {
        let sent = Advertisement { frame_len: LONG_FRAME_LEN, udp_port: 40_000 };
        assert_eq!(Advertisement::parse(sent.value()), Some(sent));
        assert!(u16::try_from(sent.value()).is_err(), "earlier versions refuse the value");
        for value in [0, 40_000, u32::from(LONG_FRAME_LEN) << 16] {
            assert_eq!(Advertisement::parse(value), None, "{value}");
        }
        let longest = Advertisement { frame_len: u16::MAX, udp_port: u16::MAX };
        assert_eq!(Advertisement::parse(u32::MAX), Some(longest));
    }

    //= spec/bulk.md#R31
    #[test]
    fn frames_are_long_only_where_all_routes_carry_them() {
        let long = u32::from(LONG_FRAME_LEN);
        let cases: [(&[Option<u32>], bool); 7] = [
            (&[], true),
            (&[Some(long)], true),
            (&[Some(65_508), Some(long), Some(u32::MAX)], true),
            (&[Some(65_508), Some(long - 1)], false),
            // An interface for jumbo frames leads to routers that may have a smaller MTU.
            (&[Some(8_972)], false),
            (&[Some(65_508), Some(1_472), Some(65_508)], false),
            (&[Some(65_508), None], false),
        ];
        for (routes, is_long) in cases {
            let unknown = || io::Error::from(io::ErrorKind::NotConnected);
            let routes = || routes.iter().map(|len| len.ok_or_else(unknown));
            let expected = if is_long { long as usize } else { 1_472 };
            assert_eq!(longest_over(1_472, routes()), expected);
            assert_eq!(longest_over(64_000, routes()), 64_000, "configured longer");
        }
    }

    //= spec/bulk.md#R31
    #[test]
    fn loopback_carries_long_frames() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // Not every host has IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let at = listener.local_addr().expect("the listener is bound");
            let connect = || Some(TcpStream::connect(at).expect("the listener accepts"));
            let streams = [None, connect(), connect()];
            assert_eq!(longest(1_472, &streams), LONG_FRAME_LEN.into());
        }
    }
}
