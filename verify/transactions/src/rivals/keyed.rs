//! The keys of values as rows.

use std::collections::BTreeMap;

use onepipe_baselines::{KeyUse, Keyed};

use crate::values::{Values, for_each};

impl Keyed for Values {
    fn uses(part: &[u8]) -> (bool, bool) {
        let (mut reads, mut writes) = (false, false);
        for_each(part, |_, value| match value {
            Some(_) => writes = true,
            None => reads = true,
        });
        (reads, writes)
    }

    fn keys(&self, part: &[u8]) -> Vec<KeyUse> {
        let mut uses: BTreeMap<u64, bool> = BTreeMap::new();
        for_each(part, |key, value| *uses.entry(key).or_default() |= value.is_some());
        uses.into_iter().map(|(key, is_write)| KeyUse { key, is_write }).collect()
    }

    fn read_values(&self, part: &[u8], results: &mut Vec<u8>) {
        for_each(part, |key, value| {
            if value.is_none() {
                self.append(key, results);
            }
        });
    }
}
