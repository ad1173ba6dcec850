//! What clients send.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Random keys and one value.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    random: Xoshiro256PlusPlus,
    keys: u64,
    value: Vec<u8>,
}

impl Workload {
    /// Returns a source of keys, other ones for each seed.
    pub(super) fn new(seed: u64, keys: u64, value_bytes: usize) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { random, keys, value: vec![b'v'; value_bytes] }
    }

    /// Returns the key of a number, as `redis-benchmark` writes it.
    pub(super) fn key_of(number: u64) -> Vec<u8> {
        format!("key:{number:012}").into_bytes()
    }

    /// Returns a random key.
    pub(super) fn key(&mut self) -> Vec<u8> {
        Self::key_of(self.below(self.keys))
    }

    /// Returns whether something happens that happens in this share of cases, in percent.
    pub(super) fn is_chosen(&mut self, percent: u8) -> bool {
        self.below(100) < percent.into()
    }

    /// Returns the value of all keys.
    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }

    /// A remainder prefers small numbers by less than one in 10^12 for the bounds used here.
    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }
}

/// Returns a command in the protocol of Redis.
pub(super) fn resp(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns a transaction of these commands, and the reply that it must have: `replies` are those of
/// the commands.
pub(super) fn multi(commands: &[Vec<u8>], replies: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut bytes = resp(&[b"MULTI"]);
    commands.iter().for_each(|command| bytes.extend_from_slice(command));
    bytes.extend(resp(&[b"EXEC"]));
    let mut expected = b"+OK\r\n".to_vec();
    commands.iter().for_each(|_| expected.extend_from_slice(b"+QUEUED\r\n"));
    expected.extend(format!("*{}\r\n", commands.len()).into_bytes());
    expected.extend_from_slice(replies);
    (bytes, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_has_the_replies_of_its_commands() {
        let (sent, expected) = multi(&[resp(&[b"SET", b"k", b"v"])], b"+OK\r\n");
        let text =
            "*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*1\r\n$4\r\nEXEC\r\n";
        assert_eq!(String::from_utf8_lossy(&sent), text);
        assert_eq!(String::from_utf8_lossy(&expected), "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    }

    #[test]
    fn keys_are_of_the_range() {
        let mut workload = Workload::new(1, 2, 3);
        let mut keys: Vec<Vec<u8>> = (0..50).map(|_| workload.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys, [b"key:000000000000", b"key:000000000001"]);
        assert_eq!(workload.value(), b"vvv");
        assert!(!workload.is_chosen(0) && workload.is_chosen(100));
    }
}
