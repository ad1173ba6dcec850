//! Purposes of alarms at a host.

use onepipe_base::Port;

/// Purpose of an alarm. The token consists of the kind, 13 bits of the incarnation and the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// The process submits a scattering.
    Load,
    /// The application returns from its failure callback.
    Callback(u32),
    /// The process rejoins as a new incarnation.
    Rejoin(u32),
    /// The controller renews or requests its lease.
    Campaign(u32),
    /// The store handles a record of the controller.
    StoreWrite(u32),
    /// The controller receives a reply of the store.
    StoreReply(u32),
}

const INCARNATION_BITS: u32 = 13;

impl Alarm {
    pub fn of(token: u32) -> Self {
        let incarnation = (token >> 16) & ((1 << INCARNATION_BITS) - 1);
        match token >> (16 + INCARNATION_BITS) {
            0 => Self::Load,
            1 => Self::Callback(incarnation),
            2 => Self::Rejoin(incarnation),
            3 => Self::Campaign(incarnation),
            4 => Self::StoreWrite(incarnation),
            _ => Self::StoreReply(incarnation),
        }
    }

    pub fn token(self, port: Port) -> u32 {
        let (kind, incarnation) = match self {
            Self::Load => (0, 0),
            Self::Callback(incarnation) => (1, incarnation),
            Self::Rejoin(incarnation) => (2, incarnation),
            Self::Campaign(incarnation) => (3, incarnation),
            Self::StoreWrite(incarnation) => (4, incarnation),
            Self::StoreReply(incarnation) => (5, incarnation),
        };
        kind << (16 + INCARNATION_BITS)
            | (incarnation & ((1 << INCARNATION_BITS) - 1)) << 16
            | u32::from(port.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_round_trips() {
        for alarm in [
            Alarm::Load,
            Alarm::Callback(3),
            Alarm::Rejoin(1),
            Alarm::Campaign(8_191),
            Alarm::StoreWrite(0),
            Alarm::StoreReply(77),
        ] {
            let token = alarm.token(Port(65_535));
            assert_eq!((Alarm::of(token), token as u16), (alarm, 65_535));
        }
        assert_eq!(Alarm::Load.token(Port(9)), 9);
    }
}
