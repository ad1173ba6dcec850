//! What waves ask of this process, and when they are answered.

use onepipe_base::{Port, ProcessId, Psn};
use onepipe_wire::{FloodAck, FloodId, FloodKind, Opcode};

use super::ControlFrame;

/// The way by which a wave came, and its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// A wave over this link: answered by an echo.
    Link(Port),
    /// A notice of this controller: answered by a completion.
    Controller(ProcessId),
}

/// A notice that is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Open {
    id: FloodId,
    link: Option<Port>,
    controller: Option<ProcessId>,
    /// The composer has done what it asks.
    is_handled: bool,
}

/// Which waves were heard, which are answered, and which answers are to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waves {
    /// The highest epoch heard.
    epoch: u32,
    /// The last notice that was answered.
    answered: Option<FloodId>,
    open: Option<Open>,
    /// Answers to be sent, by kind and way: a later one takes an earlier one's place, as the wave
    /// does.
    owed: [Option<(Way, FloodAck)>; 6],
}

impl Waves {
    pub const fn new() -> Self {
        Self { epoch: 0, answered: None, open: None, owed: [None; 6] }
    }

    /// The highest epoch heard.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// A wave was heard. Answers false when its controller is not active any more.
    pub fn accepts(&mut self, id: FloodId) -> bool {
        let is_current = id.epoch >= self.epoch;
        self.epoch = self.epoch.max(id.epoch);
        is_current
    }

    /// A notice was heard, and something of it was news or nothing.
    pub fn on_notice(&mut self, id: FloodId, way: Way, is_news: bool) {
        if !is_news && self.answered >= Some(id) {
            return self.owe(way, id, FloodKind::Notice);
        }
        match &mut self.open {
            Some(open) if id <= open.id => {
                open.is_handled &= !is_news;
                if id == open.id {
                    open.add(way);
                }
            }
            open => {
                let new = Open { id, link: None, controller: None, is_handled: false };
                open.insert(new).add(way);
            }
        }
    }

    /// A wave was heard whose wish is done.
    pub fn owe(&mut self, way: Way, id: FloodId, kind: FloodKind) {
        let place = match kind {
            FloodKind::Notice => 0,
            FloodKind::Resume => 2,
            FloodKind::Freeze => 4,
        };
        let is_second = usize::from(matches!(way, Way::Controller(_)));
        self.owed[place + is_second] = Some((way, FloodAck { id, kind }));
    }

    /// Whether a notice waits for the composer.
    pub fn is_open(&self) -> bool {
        self.open.is_some_and(|open| !open.is_handled)
    }

    /// Everything that was told is done.
    pub fn on_handled(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_handled = true;
        }
    }

    /// Nothing stands in the way of an answer.
    pub fn on_clear(&mut self) {
        let Some(open) = self.open.take_if(|open| open.is_handled) else { return };
        self.answered = self.answered.max(Some(open.id));
        if let Some(port) = open.link {
            self.owe(Way::Link(port), open.id, FloodKind::Notice);
        }
        if let Some(process) = open.controller {
            self.owe(Way::Controller(process), open.id, FloodKind::Notice);
        }
    }

    pub fn wants_transmit(&self) -> bool {
        self.owed.iter().any(Option::is_some)
    }

    /// Writes the next answer.
    pub fn write(&mut self, own: ProcessId, payload: &mut [u8]) -> Option<ControlFrame> {
        let (way, echo) = self.owed.iter_mut().find_map(Option::take)?;
        let bytes = echo.write(payload)?;
        Some(match way {
            Way::Link(port) => ControlFrame {
                hop_port: Some(port),
                ..ControlFrame::to(own, Opcode::FloodAck, Psn::FIRST, bytes)
            },
            Way::Controller(to) => ControlFrame::to(to, Opcode::Completed, Psn::FIRST, bytes),
        })
    }
}

impl Open {
    fn add(&mut self, way: Way) {
        match way {
            Way::Link(port) => self.link = Some(port),
            Way::Controller(process) => self.controller = Some(process),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const LINK: Way = Way::Link(Port(0));

    fn id(epoch: u32, sequence: u32) -> FloodId {
        FloodId { epoch, sequence }
    }

    fn answers(waves: &mut Waves) -> Vec<(Opcode, u32)> {
        let mut payload = [0; 64];
        let mut all = Vec::new();
        while let Some(frame) = waves.write(ProcessId(1), &mut payload) {
            let echo = FloodAck::parse(&payload[..frame.bytes]).expect("just written");
            all.push((frame.opcode, echo.id.sequence));
        }
        all
    }

    #[test]
    fn an_answer_waits_until_all_is_handled_and_a_repeat_is_answered_at_once() {
        let mut waves = Waves::new();
        waves.on_notice(id(1, 3), LINK, true);
        waves.on_notice(id(1, 3), LINK, false);
        assert!(waves.is_open() && answers(&mut waves).is_empty());
        waves.on_clear();
        assert!(answers(&mut waves).is_empty(), "nobody has done anything");
        waves.on_handled();
        assert!(!waves.is_open() && answers(&mut waves).is_empty(), "not clear yet");
        waves.on_clear();
        assert_eq!(answers(&mut waves), [(Opcode::FloodAck, 3)]);
        waves.on_notice(id(1, 3), Way::Controller(ProcessId(9)), false);
        assert_eq!(answers(&mut waves), [(Opcode::Completed, 3)]);
        waves.on_notice(id(1, 2), LINK, false);
        assert_eq!(answers(&mut waves), [(Opcode::FloodAck, 2)], "an earlier one is done too");
    }

    #[test]
    fn a_later_wave_takes_an_earlier_one_s_place() {
        let mut waves = Waves::new();
        waves.on_notice(id(1, 3), LINK, true);
        waves.on_notice(id(2, 1), Way::Controller(ProcessId(9)), true);
        waves.on_notice(id(1, 3), LINK, false);
        waves.on_handled();
        waves.on_clear();
        assert_eq!(answers(&mut waves), [(Opcode::Completed, 1)]);
        assert!(waves.accepts(id(2, 0)) && !waves.accepts(id(1, 9)) && waves.accepts(id(3, 0)));
        assert_eq!(waves.epoch(), 3);
    }

    #[test]
    fn news_in_an_old_notice_opens_it_again() {
        let mut waves = Waves::new();
        waves.on_notice(id(1, 3), LINK, true);
        waves.on_handled();
        waves.on_notice(id(1, 2), LINK, true);
        assert!(waves.is_open());
        waves.on_handled();
        waves.on_clear();
        assert_eq!(answers(&mut waves), [(Opcode::FloodAck, 3)]);
        waves.on_notice(id(1, 2), LINK, true);
        assert!(waves.is_open() && answers(&mut waves).is_empty());
    }

    #[test]
    fn answers_of_each_kind_and_way_are_kept_apart() {
        let mut waves = Waves::new();
        let controller = Way::Controller(ProcessId(9));
        waves.owe(LINK, id(1, 1), FloodKind::Resume);
        waves.owe(LINK, id(1, 2), FloodKind::Resume);
        waves.owe(controller, id(1, 3), FloodKind::Resume);
        waves.owe(LINK, id(1, 4), FloodKind::Notice);
        let (echo, completed) = (Opcode::FloodAck, Opcode::Completed);
        assert_eq!(answers(&mut waves), [(echo, 4), (echo, 2), (completed, 3)]);
        assert!(!waves.wants_transmit());
    }
}
