//! A state for tests: the list of all entries, which an entry must not join twice, and slots that
//! entries overwrite, whose parts may be newer than the image to which they belong.

use std::collections::BTreeMap;

use onepipe_log::{Entry, Part, PartRequest, Session, State};

const SLOTS: u64 = 5;
/// Entries of the list in one part.
const PART_LEN: u64 = 3;
/// The cursor of the first slot. Smaller ones are numbers of entries.
const FIRST_SLOT: u64 = 1 << 32;

/// An entry as the list has it.
type Item = (Session, u64);

/// Returns the slot that an entry writes.
fn slot((client, number): Item) -> u64 {
    (client.session * 3 + number) % SLOTS
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TestState {
    list: Vec<Item>,
    /// The last entry that has written each slot.
    slots: BTreeMap<u64, Item>,
    /// Index of the last entry that has written each slot, as far as it was since the state was
    /// opened with `known_from` entries.
    touched: BTreeMap<u64, u64>,
    known_from: u64,
    incoming: Vec<Item>,
    /// Lengths of the list that is on the disk, and that is being written to it.
    durable_list: Vec<Item>,
    syncing: Option<Vec<Item>>,
}

impl TestState {
    /// Returns the state after a loss of power: slots may have been written, or not, and so may the
    /// list that was being written.
    pub fn after_crash(&self, seed: u64) -> Self {
        let syncing = self.syncing.as_ref().filter(|_| (seed >> 9).is_multiple_of(2));
        let list = syncing.unwrap_or(&self.durable_list).clone();
        let mut slots = slots_of(&list);
        for (slot, item) in &self.slots {
            if (seed >> slot).is_multiple_of(2) {
                slots.insert(*slot, *item);
            }
        }
        let known_from = list.len() as u64;
        Self { durable_list: list.clone(), list, slots, known_from, ..Self::default() }
    }

    pub fn list(&self) -> &[Item] {
        &self.list
    }

    /// Returns what is wrong with the slots of a state that may be read.
    pub fn check(&self) -> Result<(), String> {
        let expected = slots_of(&self.list);
        match self.slots == expected {
            true => Ok(()),
            false => Err(format!("slots are {:?}, and the list says {expected:?}", self.slots)),
        }
    }

    /// Ends what [`State::begin_sync`] has begun.
    pub fn finish_sync(&mut self) {
        if let Some(list) = self.syncing.take() {
            self.durable_list = list;
        }
    }
}

fn slots_of(list: &[Item]) -> BTreeMap<u64, Item> {
    list.iter().map(|item| (slot(*item), *item)).collect()
}

fn encode(start: u64, items: &[Item]) -> Vec<u8> {
    let mut bytes = start.to_le_bytes().to_vec();
    for (client, number) in items {
        let numbers = [u64::from(client.process.0), client.session, *number];
        bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
    }
    bytes
}

fn decode(bytes: &[u8]) -> (u64, Vec<Item>) {
    let mut numbers = bytes
        .chunks(8)
        .map(|chunk| u64::from_le_bytes(chunk.try_into().expect("a test state has encoded them")));
    let start = numbers.next().expect("a part has a start");
    let mut items = Vec::new();
    while let (Some(process), Some(session), Some(number)) =
        (numbers.next(), numbers.next(), numbers.next())
    {
        let process = onepipe_base::ProcessId(process as u32);
        items.push((Session { process, session }, number));
    }
    (start, items)
}

impl State for TestState {
    fn apply(&mut self, index: u64, entry: &Entry) {
        assert_eq!(index, self.list.len() as u64, "entries are applied in order");
        let item = (entry.id.client, entry.id.number);
        self.list.push(item);
        self.slots.insert(slot(item), item);
        self.touched.insert(slot(item), index);
    }

    fn begin_sync(&mut self) {
        self.syncing = Some(self.list.clone());
    }

    fn durable_len(&self) -> u64 {
        self.durable_list.len() as u64
    }

    fn read_part(&mut self, request: &PartRequest) -> Option<Part> {
        let len = self.list.len() as u64;
        let end = request.image.unwrap_or(len);
        if request.cursor < FIRST_SLOT {
            let start = request.since + request.cursor;
            let stop = (start + PART_LEN).min(end);
            let items = self.list.get(start as usize..stop as usize).unwrap_or_default();
            let next = if stop < end { request.cursor + PART_LEN } else { FIRST_SLOT };
            return Some(Part { len, next: Some(next), bytes: encode(start, items) });
        }
        // Slots that were not written since are not sent.
        let is_stale = |slot: &u64| {
            let touched = self.touched.get(slot);
            request.since < self.known_from || touched.is_some_and(|at| *at >= request.since)
        };
        let slot = (request.cursor - FIRST_SLOT..SLOTS).find(is_stale);
        let item = slot.and_then(|slot| Some((slot, *self.slots.get(&slot)?)));
        let next = slot.map(|slot| FIRST_SLOT + slot + 1).filter(|next| *next < FIRST_SLOT + SLOTS);
        let bytes = item.map_or(Vec::new(), |(slot, item)| encode(slot, &[item]));
        Some(Part { len, next, bytes })
    }

    fn install_part(&mut self, since: u64, cursor: u64, bytes: &[u8]) {
        if cursor == 0 {
            self.incoming.clear();
        }
        if cursor < FIRST_SLOT {
            let (start, items) = decode(bytes);
            if cursor == 0 {
                assert_eq!(start, since, "the first part begins with what is lacking");
                self.incoming = self.list[..start as usize].to_vec();
            }
            self.incoming.extend(items);
        } else if !bytes.is_empty() {
            let (slot, items) = decode(bytes);
            self.slots.insert(slot, items[0]);
        }
    }

    fn finish_install(&mut self, len: u64) {
        assert_eq!(self.incoming.len() as u64, len, "all parts were installed");
        self.list = std::mem::take(&mut self.incoming);
        // Which slots were written is not known.
        self.touched.clear();
        self.known_from = len;
    }
}
