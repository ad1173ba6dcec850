//! Address advertisements: the address at which a process is reachable directly.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use zerocopy::byteorder::big_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Length of the payload of an address advertisement.
pub const ADDRESS_AD_LEN: usize = 36;
/// Length of one without nonce and proof, as earlier releases send it.
const SHORT_LEN: usize = 20;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    wants_reply: u8,
    reserved: u8,
    udp_port: U16,
    ip: [u8; 16],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Proof {
    nonce: U64,
    proof: U64,
}

const _: () = assert!(size_of::<Layout>() == SHORT_LEN);
const _: () = assert!(size_of::<Layout>() + size_of::<Proof>() == ADDRESS_AD_LEN);

/// A process advertises to another the address at which it is reachable directly, without a switch
/// in between (docs/design/overlay.md, "How do processes find each other?").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressAd {
    /// Whether an advertisement is requested in return.
    pub wants_reply: bool,
    /// The address at which the sender expects to be reachable.
    pub address: SocketAddr,
    /// In an advertisement by the tree: a number for the receiver alone, to be returned as `proof`
    /// in direct advertisements. 0: none.
    pub nonce: u64,
    /// In a direct advertisement: the nonce that the receiver has sent to this process by the tree.
    /// 0: none.
    pub proof: u64,
}

impl AddressAd {
    /// Writes the payload. Returns its length, or `None` if `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let layout = Layout {
            wants_reply: u8::from(self.wants_reply),
            reserved: 0,
            udp_port: U16::new(self.address.port()),
            ip: ip.octets(),
        };
        let proof = Proof { nonce: U64::new(self.nonce), proof: U64::new(self.proof) };
        let (front, back) = buf.get_mut(..ADDRESS_AD_LEN)?.split_at_mut(SHORT_LEN);
        front.copy_from_slice(layout.as_bytes());
        back.copy_from_slice(proof.as_bytes());
        Some(ADDRESS_AD_LEN)
    }

    /// Parses the payload of a frame with opcode [`crate::Opcode::AddressAd`].
    ///
    /// # Errors
    /// If the payload is too short, or `wants_reply` is neither 0 nor 1.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok((layout, rest)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (SHORT_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "address advertisement", need, got });
        };
        let wants_reply = match layout.wants_reply {
            0 => false,
            1 => true,
            value => return Err(DecodeError::Field { field: "wants_reply", value: value.into() }),
        };
        let ip = Ipv6Addr::from(layout.ip).to_canonical();
        let address = SocketAddr::new(ip, layout.udp_port.get());
        let (nonce, proof) = Proof::ref_from_prefix(rest)
            .map_or((0, 0), |(proof, _)| (proof.nonce.get(), proof.proof.get()));
        Ok(Self { wants_reply, address, nonce, proof })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_and_ipv6_round_trip() {
        for address in ["10.1.2.3:4410", "[fd00::7]:65535", "0.0.0.0:0"] {
            for wants_reply in [false, true] {
                let address = address.parse().expect("an address");
                let ad = AddressAd { wants_reply, address, nonce: u64::MAX - 1, proof: 7 };
                let mut bytes = [0xee; ADDRESS_AD_LEN];
                assert_eq!(ad.write(&mut bytes), Some(ADDRESS_AD_LEN));
                assert_eq!(AddressAd::parse(&bytes), Ok(ad));
                assert_eq!(ad.write(&mut bytes[1..]), None);
                let short = AddressAd { nonce: 0, proof: 0, ..ad };
                assert_eq!(AddressAd::parse(&bytes[..ADDRESS_AD_LEN - 1]), Ok(short));
                assert_eq!(AddressAd::parse(&bytes[..SHORT_LEN]), Ok(short));
                assert!(AddressAd::parse(&bytes[..SHORT_LEN - 1]).is_err());
                bytes[0] = 2;
                assert!(AddressAd::parse(&bytes).is_err());
            }
        }
    }
}
