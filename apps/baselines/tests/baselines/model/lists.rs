//! Lists that are read and appended to, with a recorded history.

use std::collections::BTreeMap;

use onepipe_base::Timestamp;
use onepipe_baselines::{Finished, KeyUse, Keyed, Part};
use onepipe_history::{Found, InFlight, Operation, Recorder};
use onepipe_transaction::{Exact, Reader, State, Writer};

use super::{Load, Random};

/// Number of lists of a shard.
const LISTS: u64 = 3;

/// The lists of a shard. A part is a list of operations: 0 and a list read it, 1, a list and an
/// element append the element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    lists: BTreeMap<u64, Vec<u64>>,
}

fn operations(part: &[u8]) -> Vec<(u64, Option<u64>)> {
    let (mut reader, mut operations) = (Reader(part), Vec::new());
    while let Some(code) = reader.u8() {
        let list = reader.u64().expect("a list");
        operations.push((list, (code == 1).then(|| reader.u64().expect("an element"))));
    }
    operations
}

impl Lists {
    fn append_list(&self, list: u64, results: &mut Vec<u8>) {
        let elements = self.lists.get(&list).map(Vec::as_slice).unwrap_or_default();
        let mut writer = Writer(results);
        writer.u32(elements.len() as u32);
        elements.iter().for_each(|element| writer.u64(*element));
    }
}

impl State for Lists {
    fn execute(&mut self, _: Timestamp, part: &[u8], results: &mut Vec<u8>) {
        for (list, element) in operations(part) {
            match element {
                Some(element) => self.lists.entry(list).or_default().push(element),
                None => self.append_list(list, results),
            }
        }
    }

    fn read(&self, _: Timestamp, part: &[u8], results: &mut Vec<u8>) -> Exact {
        self.read_values(part, results);
        Exact { from: None, until: None }
    }

    fn digest(&self) -> u64 {
        let all =
            self.lists.iter().flat_map(|(list, elements)| std::iter::once(list).chain(elements));
        all.fold(7, |digest: u64, word| digest.wrapping_mul(0x100_0000_01b3) ^ *word)
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn load(&mut self, _: &[u8]) -> bool {
        false
    }
}

impl Keyed for Lists {
    fn uses(part: &[u8]) -> (bool, bool) {
        let operations = operations(part);
        let count =
            |is_write| operations.iter().filter(|(_, one)| one.is_some() == is_write).count();
        (count(false) > 0, count(true) > 0)
    }

    fn keys(&self, part: &[u8]) -> Vec<KeyUse> {
        let mut uses: BTreeMap<u64, bool> = BTreeMap::new();
        for (list, element) in operations(part) {
            *uses.entry(list).or_default() |= element.is_some();
        }
        uses.into_iter().map(|(key, is_write)| KeyUse { key, is_write }).collect()
    }

    fn read_values(&self, part: &[u8], results: &mut Vec<u8>) {
        for (list, element) in operations(part) {
            if element.is_none() {
                self.append_list(list, results);
            }
        }
    }
}

/// Random transactions: each shard's operations, and the record of what was found.
pub struct ListLoad {
    shards: u16,
    pub recorder: Recorder,
    next_element: u64,
    open: BTreeMap<u32, (InFlight, Vec<Part>)>,
}

impl ListLoad {
    pub fn new(shards: u16) -> Self {
        let open = BTreeMap::new();
        Self { shards, recorder: Recorder::new(), next_element: 0, open }
    }

    fn part(&mut self, shard: u16, class: u64, random: &mut Random) -> Part {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        let list = random.below(LISTS);
        let (mut reads, mut writes) = (class == 0, class == 1);
        if class == 2 {
            reads = random.percent(50);
            writes = !reads || random.percent(50);
        }
        if reads {
            writer.u8(0);
            writer.u64(list);
        }
        if writes {
            // Half of them are based on what was read.
            let list = if random.percent(50) { list } else { random.below(LISTS) };
            self.next_element += 1;
            writer.u8(1);
            writer.u64(list);
            writer.u64(self.next_element);
        }
        Part::new::<Lists>(shard, bytes)
    }
}

/// Returns the operations of all parts, with the results of the reads if there are any.
fn recorded(parts: &[Part], results: Option<&[(u16, Vec<u8>)]>) -> Vec<Operation> {
    let mut recorded = Vec::new();
    for part in parts {
        let result = results.map(|all| {
            let (_, bytes) = all.iter().find(|(shard, _)| *shard == part.shard).expect("results");
            bytes.as_slice()
        });
        let mut reader = Reader(result.unwrap_or_default());
        for (list, element) in operations(&part.bytes) {
            let key = (u64::from(part.shard) * LISTS + list) as i64;
            recorded.push(match element {
                Some(element) => Operation::append(key, element as i64),
                None if result.is_none() => Operation::read(key),
                None => {
                    let count = reader.u32().expect("a length");
                    let elements = (0..count).map(|_| reader.u64().expect("an element") as i64);
                    Operation::Read { key: key.into(), found: Found::List(elements.collect()) }
                }
            });
        }
    }
    recorded
}

impl Load for ListLoad {
    fn next(&mut self, client: u32, random: &mut Random) -> Vec<Part> {
        let class = random.below(3);
        let mut parts = Vec::new();
        while parts.is_empty() {
            for shard in 0..self.shards {
                if random.percent(60) {
                    parts.push(self.part(shard, class, random));
                }
            }
        }
        let in_flight = self.recorder.invoke(client, recorded(&parts, None));
        self.open.insert(client, (in_flight, parts.clone()));
        parts
    }

    fn done(&mut self, client: u32, finished: Finished) {
        let (in_flight, parts) = self.open.remove(&client).expect("a transaction ends once");
        in_flight.ok(recorded(&parts, Some(&finished.results)));
    }
}
