//! Where a process is to be found directly.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Octets of a here's payload.
pub const HERE_OCTETS: usize = 20;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    asks: u8,
    reserved: u8,
    udp_port: U16,
    ip: [u8; 16],
}

const _: () = assert!(size_of::<Layout>() == HERE_OCTETS);

/// A process tells another one where it can be reached directly, past the aggregators (design:
/// docs/design/overlay.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here {
    /// Whether an answer is asked for.
    pub asks: bool,
    /// Where its sender believes that it can be reached.
    pub address: SocketAddr,
}

impl Here {
    /// Writes the payload. Answers the octets used, or `None` when `room` is too small.
    pub fn write(&self, room: &mut [u8]) -> Option<usize> {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let layout = Layout {
            asks: u8::from(self.asks),
            reserved: 0,
            udp_port: U16::new(self.address.port()),
            ip: ip.octets(),
        };
        room.get_mut(..HERE_OCTETS)?.copy_from_slice(layout.as_bytes());
        Some(HERE_OCTETS)
    }

    /// Reads the payload of a frame with opcode [`crate::Opcode::Here`].
    ///
    /// # Errors
    /// When the payload is too short, or neither asks nor answers.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok((layout, _)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (HERE_OCTETS, payload.len());
            return Err(DecodeError::Truncated { part: "here", need, got });
        };
        let asks = match layout.asks {
            0 => false,
            1 => true,
            value => return Err(DecodeError::Field { field: "asks", value: value.into() }),
        };
        let ip = Ipv6Addr::from(layout.ip).to_canonical();
        Ok(Self { asks, address: SocketAddr::new(ip, layout.udp_port.get()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_address_come_back() {
        for address in ["10.1.2.3:4410", "[fd00::7]:65535", "0.0.0.0:0"] {
            for asks in [false, true] {
                let here = Here { asks, address: address.parse().expect("an address") };
                let mut octets = [0xee; HERE_OCTETS];
                assert_eq!(here.write(&mut octets), Some(HERE_OCTETS));
                assert_eq!(Here::parse(&octets), Ok(here));
                assert_eq!(here.write(&mut octets[1..]), None);
                assert!(Here::parse(&octets[1..]).is_err());
                octets[0] = 2;
                assert!(Here::parse(&octets).is_err());
            }
        }
    }
}
