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
    Write(u32),
    /// The controller receives a reply of the store.
    Answer(u32),
}

const LIFE_BITS: u32 = 13;

impl Alarm {
    pub fn of(token: u32) -> Self {
        let life = (token >> 16) & ((1 << LIFE_BITS) - 1);
        match token >> (16 + LIFE_BITS) {
            0 => Self::Load,
            1 => Self::Callback(life),
            2 => Self::Rejoin(life),
            3 => Self::Campaign(life),
            4 => Self::Write(life),
            _ => Self::Answer(life),
        }
    }

    pub fn token(self, port: Port) -> u32 {
        let (kind, life) = match self {
            Self::Load => (0, 0),
            Self::Callback(life) => (1, life),
            Self::Rejoin(life) => (2, life),
            Self::Campaign(life) => (3, life),
            Self::Write(life) => (4, life),
            Self::Answer(life) => (5, life),
        };
        kind << (16 + LIFE_BITS) | (life & ((1 << LIFE_BITS) - 1)) << 16 | u32::from(port.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_what_it_is_for() {
        for alarm in [
            Alarm::Load,
            Alarm::Callback(3),
            Alarm::Rejoin(1),
            Alarm::Campaign(8_191),
            Alarm::Write(0),
            Alarm::Answer(77),
        ] {
            let token = alarm.token(Port(65_535));
            assert_eq!((Alarm::of(token), token as u16), (alarm, 65_535));
        }
        assert_eq!(Alarm::Load.token(Port(9)), 9);
    }
}
