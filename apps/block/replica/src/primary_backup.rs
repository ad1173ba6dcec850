//! Replication by a primary and backups with one disk write after the other, for comparison.
//!
//! client → primary writes → backup 1 writes → backup 2 writes → replies along the same path
//!
//! With three replicas an operation takes six messages and three disk writes, each after the one
//! before. Messages between two neighbours arrive in order and are not lost, as over TCP.

use std::collections::VecDeque;

/// A message between neighbours in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainMessage {
    /// An operation, towards the last backup.
    Write {
        /// Number of the operation, from 1, without gaps.
        number: u64,
        /// What to write.
        payload: Vec<u8>,
    },
    /// All replicas from the sender on have written an operation; towards the client.
    Done {
        /// Number of the operation.
        number: u64,
    },
}

/// What a replica does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainOutput {
    /// Writes an operation to the disk, after all before.
    Store {
        /// Number of the operation.
        number: u64,
        /// What to write.
        payload: Vec<u8>,
    },
    /// Sends a message to the next backup.
    Next(ChainMessage),
    /// Sends a message to the replica before, or to the client.
    Previous(ChainMessage),
}

/// The primary, or a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainNode {
    is_last: bool,
    /// The last operation that was received.
    received: u64,
    /// The last operation that all replicas behind have written.
    done: u64,
    /// Operations that are being written.
    storing: VecDeque<(u64, Vec<u8>)>,
    outputs: VecDeque<ChainOutput>,
}

impl ChainNode {
    /// Creates a replica. The last one has none behind it.
    pub fn new(is_last: bool) -> ChainNode {
        let (storing, outputs) = (VecDeque::new(), VecDeque::new());
        ChainNode { is_last, received: 0, done: 0, storing, outputs }
    }

    /// Handles a message of a neighbour.
    ///
    /// # Panics
    /// If a message was lost, or is not in order.
    pub fn handle_message(&mut self, message: ChainMessage) {
        match message {
            ChainMessage::Write { number, payload } => {
                assert_eq!(number, self.received + 1, "operations arrive in order");
                self.received = number;
                self.storing.push_back((number, payload.clone()));
                self.outputs.push_back(ChainOutput::Store { number, payload });
            }
            ChainMessage::Done { number } => self.complete(number),
        }
    }

    /// Notes that all operations up to a number are durable here: they go on to the next replica,
    /// or the last one replies.
    pub fn handle_stored(&mut self, until: u64) {
        while let Some((number, payload)) = self.storing.pop_front_if(|one| one.0 <= until) {
            if self.is_last {
                self.complete(number);
            } else {
                let message = ChainMessage::Write { number, payload };
                self.outputs.push_back(ChainOutput::Next(message));
            }
        }
    }

    fn complete(&mut self, number: u64) {
        assert_eq!(number, self.done + 1, "operations are completed in order");
        self.done = number;
        self.outputs.push_back(ChainOutput::Previous(ChainMessage::Done { number }));
    }

    /// Returns what to do next.
    pub fn poll_output(&mut self) -> Option<ChainOutput> {
        self.outputs.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes one operation through three replicas. Returns what happened, in order.
    #[test]
    fn three_writes_and_six_messages_follow_each_other() {
        let mut nodes = [false, false, true].map(ChainNode::new);
        let mut happened = Vec::new();
        let mut message = Some((0, ChainMessage::Write { number: 1, payload: b"x".to_vec() }));
        happened.push("client to 0".to_string());
        while let Some((to, received)) = message.take() {
            nodes[to].handle_message(received);
            while let Some(output) = nodes[to].poll_output() {
                match output {
                    ChainOutput::Store { number, .. } => {
                        happened.push(format!("{to} writes"));
                        nodes[to].handle_stored(number);
                    }
                    ChainOutput::Next(next) => {
                        happened.push(format!("{to} to {}", to + 1));
                        message = Some((to + 1, next));
                    }
                    ChainOutput::Previous(done) if to == 0 => {
                        happened.push("0 to client".into());
                        assert_eq!(done, ChainMessage::Done { number: 1 });
                    }
                    ChainOutput::Previous(done) => {
                        happened.push(format!("{to} to {}", to - 1));
                        message = Some((to - 1, done));
                    }
                }
            }
        }
        let expected = [
            "client to 0",
            "0 writes",
            "0 to 1",
            "1 writes",
            "1 to 2",
            "2 writes",
            "2 to 1",
            "1 to 0",
            "0 to client",
        ];
        assert_eq!(happened, expected);
    }

    #[test]
    fn nothing_goes_on_before_it_is_stored() {
        let mut primary = ChainNode::new(false);
        for number in 1..=2 {
            primary.handle_message(ChainMessage::Write { number, payload: Vec::new() });
            assert!(matches!(primary.poll_output(), Some(ChainOutput::Store { .. })));
        }
        assert_eq!(primary.poll_output(), None);
        primary.handle_stored(1);
        let next = ChainMessage::Write { number: 1, payload: Vec::new() };
        assert_eq!(primary.poll_output(), Some(ChainOutput::Next(next)));
        assert_eq!(primary.poll_output(), None);
    }
}
