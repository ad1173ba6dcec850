//! The words of a line of a story.

use onepipe_base::{Incarnation, Promises, Psn, Timestamp};
use onepipe_wire::{Flags, Opcode};

use super::ORIGIN_NS;

/// The words of a line: `name`, `name=number` or `"text"`. Texts contain no spaces.
#[derive(Clone, Copy)]
pub struct Words<'a>(pub &'a str);

impl<'a> Words<'a> {
    pub fn all(self) -> impl Iterator<Item = &'a str> {
        self.0.split_whitespace()
    }

    pub fn has(self, word: &str) -> bool {
        self.all().any(|item| item == word)
    }

    pub fn text(self, name: &str) -> Option<&'a str> {
        let mut pairs = self.all().filter_map(|word| word.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub fn number(self, name: &str) -> Option<u64> {
        self.text(name).map(number)
    }

    pub fn must(self, name: &str) -> u64 {
        self.number(name).unwrap_or_else(|| panic!("{name}= is missing in {:?}", self.0))
    }

    /// The number, or 0 without the word.
    pub fn small(self, name: &str) -> u32 {
        self.number(name).unwrap_or(0) as u32
    }

    pub fn psn(self, name: &str) -> Psn {
        Psn(self.small(name))
    }

    /// The incarnation of a peer is 1 unless the line names another.
    pub fn incarnation(self) -> Incarnation {
        Incarnation(self.number("inc").unwrap_or(1) as u32)
    }

    pub fn timestamp(self, name: &str) -> Option<Timestamp> {
        self.number(name).map(timestamp)
    }

    /// Both promises, which are equal unless the line names a commit.
    pub fn promises(self, otherwise: Timestamp) -> Promises {
        let barrier = self.timestamp("b").unwrap_or(otherwise);
        Promises { barrier, commit: self.timestamp("c").unwrap_or(barrier) }
    }

    pub fn flags(self) -> u8 {
        let names = FLAGS.iter().filter(|(name, _)| self.has(name));
        names.fold(0, |flags, (_, flag)| flags | flag)
    }

    pub fn opcode(self) -> Opcode {
        let mut all = Opcode::ALL.iter().copied();
        let found = all.find(|opcode| self.has(&kebab(*opcode)));
        found.unwrap_or_else(|| panic!("no frame in {:?}", self.0))
    }

    /// The messages of a scattering, or of a packet: `"text"` or a number of bytes, behind the
    /// destination and a colon if there is one.
    pub fn messages(self) -> Vec<(u32, Vec<u8>)> {
        let of_word = |word: &str| {
            let (to, payload) = word.split_once(':').unwrap_or(("0", word));
            let payload = match payload.strip_prefix('"') {
                Some(text) => text.trim_end_matches('"').as_bytes().to_vec(),
                None => vec![7; number(payload) as usize],
            };
            (number(to) as u32, payload)
        };
        self.all().filter(|word| word.contains([':', '"'])).map(of_word).collect()
    }
}

/// The flags of a frame that a story names.
pub const FLAGS: &[(&str, u8)] = &[
    ("ack-now", Flags::ACK_NOW),
    ("reserved", Flags::RESERVED),
    ("marked", Flags::CONGESTION),
    ("unordered", Flags::UNORDERED),
];

pub fn number(text: &str) -> u64 {
    text.replace('_', "").parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

pub fn timestamp(ns: u64) -> Timestamp {
    Timestamp::from_ns(ORIGIN_NS + ns)
}

/// Returns the name of an opcode as in `reliable-data`.
pub fn kebab(opcode: Opcode) -> String {
    let mut name = String::new();
    for character in format!("{opcode:?}").chars() {
        if character.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(character.to_ascii_lowercase());
    }
    name
}
