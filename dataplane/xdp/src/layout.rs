//! The values of the maps, as `src/kernel/*.h` lay them out, and what the daemon writes in front of
//! the frames that it sends.

use std::net::SocketAddrV4;

use onepipe_base::{Instance, Port, Timestamp, WIRE_MODULUS};
use onepipe_wire::HEADER_LEN;

/// Number of ports of a switch in the kernel, an upper one included.
pub const PORTS_MAX: usize = 64;

/// Length of the Ethernet, IPv4 and UDP headers in front of a frame, in bytes.
pub const DATAGRAM_HEADERS_LEN: usize = 14 + 20 + 8;

pub(crate) const CONTROL_LEN: usize = 2 * 8 + 8 * 4 + PORTS_MAX * 4;
pub(crate) const REGISTER_LEN: usize = 2 * 8 + 6 * 4;
pub(crate) const REGISTERS_LEN: usize = PORTS_MAX * REGISTER_LEN;
pub(crate) const OUTPUT_LEN: usize = 12 + 4 * 4;
pub(crate) const JOINER_LEN: usize = 12 + 4;

/// Where the hop tag, and the barrier before the commit barrier, begin in a frame.
const TAG_AT: usize = 28;
const PROMISES_AT: usize = 44;
/// Stands for "there is no upper port".
const NO_PORT: u32 = u32::MAX;

/// A neighbour and how frames reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Index of the device on which its frames arrive, and by which those to it leave.
    pub ifindex: u32,
    /// Its address.
    pub address: SocketAddrV4,
    /// The address at which it knows this switch.
    pub own: std::net::Ipv4Addr,
    /// Ethernet address of the next hop to it.
    pub mac: [u8; 6],
    /// Ethernet address of the switch's device.
    pub own_mac: [u8; 6],
    /// The only instance that may send on the link; `None`: a switch, which passes frames of
    /// others.
    pub instance: Option<Instance>,
}

/// What the neighbour at a port has promised, in 48 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// The barrier in ns, or the mark of a link that nothing feeds.
    pub barrier: u64,
    /// The commit barrier in ns.
    pub commit: u64,
    /// The generation of the port whose promise this is.
    pub generation: u32,
    /// Frames of this generation so far, modulo 2^32.
    pub frames: u32,
    /// Whether nothing feeds the link.
    pub is_unfed: bool,
    /// Number of the last frame that was passed up for replication, modulo 2^16.
    pub detoured: u16,
    /// Number of the last of these frames that was replicated, modulo 2^16.
    pub returned: u16,
}

/// What the program needs to know besides links and routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) reference: Timestamp,
    pub(crate) ahead_ns_max: u64,
    pub(crate) ports: u16,
    pub(crate) lower_ports: u16,
    pub(crate) listen: SocketAddrV4,
    pub(crate) generator: u32,
    pub(crate) cpu: u32,
    pub(crate) generations: [u32; PORTS_MAX],
}

impl Control {
    pub(crate) fn encode(&self) -> [u8; CONTROL_LEN] {
        let mut value = [0; CONTROL_LEN];
        let up = if self.ports > self.lower_ports { self.lower_ports.into() } else { NO_PORT };
        let words = [
            self.ports.into(),
            self.lower_ports.into(),
            up,
            address_word(*self.listen.ip()),
            port_word(self.listen.port()),
            self.generator,
            self.cpu,
            0,
        ];
        let reference = self.reference.as_ns() % WIRE_MODULUS;
        value[..8].copy_from_slice(&reference.to_le_bytes());
        value[8..16].copy_from_slice(&self.ahead_ns_max.to_le_bytes());
        for (bytes, word) in
            value[16..].chunks_exact_mut(4).zip(words.iter().chain(&self.generations))
        {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        value
    }
}

/// Returns an address as the program reads it from a packet.
fn address_word(address: std::net::Ipv4Addr) -> u32 {
    u32::from_le_bytes(address.octets())
}

/// Returns a UDP port as the program reads it from a packet.
fn port_word(port: u16) -> u32 {
    u16::from_le_bytes(port.to_be_bytes()).into()
}

/// Returns the key of a link.
pub(crate) fn link_key(ifindex: u32, address: SocketAddrV4) -> [u32; 3] {
    [ifindex, address_word(*address.ip()), port_word(address.port())]
}

/// Returns the value of a link.
pub(crate) fn link(neighbour: &Neighbour, port: Port, generation: u32) -> [u32; 5] {
    let (address, incarnation) = match neighbour.instance {
        Some(instance) => (instance.address.to_bits(), instance.incarnation.0),
        None => (0, 0),
    };
    [port.0.into(), generation, address, incarnation, neighbour.instance.is_none().into()]
}

/// Returns the value of an output; one of generation 0 does not exist.
pub(crate) fn output(neighbour: &Neighbour, generation: u32) -> [u8; OUTPUT_LEN] {
    let mut value = [0; OUTPUT_LEN];
    value[..6].copy_from_slice(&neighbour.mac);
    value[6..12].copy_from_slice(&neighbour.own_mac);
    let words = [
        address_word(*neighbour.address.ip()),
        address_word(neighbour.own),
        port_word(neighbour.address.port()),
        generation,
    ];
    for (bytes, word) in value[12..].chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    value
}

/// Returns the neighbour that has sent a Join from `address`, as the program has noted it.
pub(crate) fn joiner(
    ifindex: u32,
    address: SocketAddrV4,
    value: &[u8; JOINER_LEN],
    instance: Option<Instance>,
) -> Neighbour {
    let mac = |at: usize| -> [u8; 6] { std::array::from_fn(|index| value[at + index]) };
    let own: [u8; 4] = std::array::from_fn(|index| value[12 + index]);
    // The frame was sent to the switch's device by the next hop to its sender.
    Neighbour { ifindex, address, own: own.into(), mac: mac(6), own_mac: mac(0), instance }
}

/// Returns the register of `port`, whatever its generation.
pub(crate) fn register(registers: &[u8; REGISTERS_LEN], port: Port) -> Register {
    let value = &registers[port.index() * REGISTER_LEN..][..REGISTER_LEN];
    let double = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| value[at + index]));
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| value[at + index]));
    Register {
        barrier: double(0),
        commit: double(8),
        generation: word(16),
        frames: word(20),
        is_unfed: word(24) != 0,
        detoured: word(28) as u16,
        returned: word(32) as u16,
    }
}

/// Returns the content of a [`Command::Release`]: the promises, of 48 bits, where a frame has them.
pub fn release_content(barrier: u64, commit: u64) -> [u8; HEADER_LEN] {
    let mut content = [0; HEADER_LEN];
    content[PROMISES_AT..][..6].copy_from_slice(&barrier.to_be_bytes()[2..]);
    content[PROMISES_AT + 6..].copy_from_slice(&commit.to_be_bytes()[2..]);
    content
}

/// What the program does with a frame of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sends it to the neighbour at a port.
    Send(Port),
    /// Notes that all copies of a frame from `port` have left, and of the frames before it. Its
    /// promises, which follow ([`release_content`]), count from then on.
    Release {
        /// The port from which it came.
        port: Port,
        /// What the program has written into it.
        stamp: Stamp,
    },
}

/// Which frame of which neighbour was passed up for replication. The program writes it in place of
/// the first four bytes of the hop tag, which are 0 without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The generation of the neighbour, modulo 2^16.
    pub generation: u16,
    /// The number of the frame, modulo 2^16.
    pub number: u16,
}

impl Stamp {
    /// Takes the stamp out of a frame, which then is as it arrived. `None` if the frame is too
    /// short for one.
    pub fn take(frame: &mut [u8]) -> Option<Self> {
        let tag = frame.get_mut(TAG_AT..TAG_AT + 4)?.first_chunk_mut::<4>()?;
        let word = u32::from_le_bytes(core::mem::take(tag));
        Some(Self { generation: (word >> 16) as u16, number: word as u16 })
    }
}

impl Command {
    /// Writes the headers in front of a frame of `frame_len` bytes. The program fills in the
    /// addresses.
    pub fn write(self, frame_len: usize, headers: &mut [u8; DATAGRAM_HEADERS_LEN]) {
        // Locally administered Ethernet addresses.
        let none = Stamp { generation: 0, number: 0 };
        let (kind, port, stamp) = match self {
            Self::Send(port) => (0, port, none),
            Self::Release { port, stamp } => (1, port, stamp),
        };
        let [high, low] = stamp.number.to_be_bytes();
        let generation = stamp.generation.to_be_bytes();
        headers[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, kind, port.0 as u8, high, low]);
        headers[2..4].copy_from_slice(&generation);
        headers[12..14].copy_from_slice(&[0x08, 0x00]);
        let udp_len = (frame_len + 8) as u16;
        headers[14..].fill(0);
        headers[14] = 0x45;
        headers[16..18].copy_from_slice(&(udp_len + 20).to_be_bytes());
        headers[23] = 17;
        headers[38..40].copy_from_slice(&udp_len.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn control_has_the_layout_of_the_program() {
        let mut generations = [0; PORTS_MAX];
        generations[PORTS_MAX - 1] = 9;
        let control = Control {
            reference: Timestamp::from_ns(WIRE_MODULUS + 5),
            ahead_ns_max: 6,
            ports: 3,
            lower_ports: 2,
            listen: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 4410),
            generator: 7,
            cpu: 1,
            generations,
        };
        let value = control.encode();
        assert_eq!(value[..8], 5_u64.to_le_bytes());
        assert_eq!(value[24..28], 2_u32.to_le_bytes(), "the upper port");
        assert_eq!(value[28..32], [10, 0, 0, 1]);
        assert_eq!(value[32..34], 4410_u16.to_be_bytes());
        assert_eq!(value[CONTROL_LEN - 4..], 9_u32.to_le_bytes());
        let root = Control { lower_ports: 3, ..control };
        assert_eq!(root.encode()[24..28], NO_PORT.to_le_bytes());
    }

    #[test]
    fn registers_are_read_where_the_program_writes_them() {
        let mut value = [0; REGISTERS_LEN];
        value[REGISTER_LEN] = 3;
        value[REGISTER_LEN + 8] = 2;
        value[REGISTER_LEN + 16] = 1;
        value[REGISTER_LEN + 28] = 5;
        let expected = Register {
            barrier: 3,
            commit: 2,
            generation: 1,
            frames: 0,
            is_unfed: false,
            detoured: 5,
            returned: 0,
        };
        assert_eq!(register(&value, Port(1)), expected);
    }
}
