//! The values of the maps, as `src/kernel/*.h` lay them out, and what the daemon writes in front of
//! the frames that it sends.

use std::net::SocketAddrV4;

use onepipe_base::{Instance, Port, Timestamp, WIRE_MODULUS};

/// Number of ports of a switch in the kernel, an upper one included.
pub const PORTS_MAX: usize = 64;

/// Length of the Ethernet, IPv4 and UDP headers in front of a frame, in bytes.
pub const DATAGRAM_HEADERS_LEN: usize = 14 + 20 + 8;

pub(crate) const CONTROL_LEN: usize = 2 * 8 + 8 * 4 + PORTS_MAX * 4;
pub(crate) const REGISTER_LEN: usize = 2 * 8 + 6 * 4;
pub(crate) const REGISTERS_LEN: usize = PORTS_MAX * REGISTER_LEN;
pub(crate) const OUTPUT_LEN: usize = 12 + 4 * 4;
pub(crate) const JOINER_LEN: usize = 12 + 4;

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
    /// Frames that were passed up for replication, modulo 2^16.
    pub detoured: u16,
    /// How many of these have been replicated, modulo 2^16.
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

/// What the program does with a frame of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sends it to the neighbour at a port.
    Send(Port),
    /// Notes that of the frames from `port` that were passed up for replication `returned` have
    /// been replicated, modulo 2^16, and drops it.
    Release {
        /// The port from which they came.
        port: Port,
        /// Their number.
        returned: u16,
    },
}

impl Command {
    /// Writes the headers in front of a frame of `frame_len` bytes. The program fills in the
    /// addresses.
    pub fn write(self, frame_len: usize, headers: &mut [u8; DATAGRAM_HEADERS_LEN]) {
        // Locally administered Ethernet addresses.
        let (kind, port, number) = match self {
            Self::Send(port) => (0, port, 0),
            Self::Release { port, returned } => (1, port, returned),
        };
        let [high, low] = number.to_be_bytes();
        headers[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, kind, port.0 as u8, high, low]);
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
