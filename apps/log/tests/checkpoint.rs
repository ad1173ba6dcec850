//! What a checkpoint of a log holds, and what the log is after a restart from it.

use std::collections::BTreeSet;

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_log::{ClientOptions, LogClient, LogReplica, Record, ReplicaOptions, Stored, View};

const REPLICA: ProcessId = ProcessId(0);
const CLIENT: ProcessId = ProcessId(1);
const PAYLOAD_LEN: usize = 4_096;

/// A replica without others, its client, and its disk.
struct Log {
    replica: LogReplica,
    client: LogClient,
    disk: Vec<Record>,
    sent: u64,
}

fn replicas() -> BTreeSet<ProcessId> {
    [REPLICA].into()
}

impl Log {
    fn new() -> Log {
        let replica = LogReplica::new(REPLICA, replicas(), ReplicaOptions::default());
        let client = LogClient::new(1, View::first([REPLICA]), ClientOptions::default());
        Log { replica, client, disk: Vec::new(), sent: 0 }
    }

    /// Appends an entry, and stores and commits it.
    fn append(&mut self) {
        let now = Mono::from_ns(self.sent);
        self.client.append(now, vec![7; PAYLOAD_LEN]).expect("none is in flight");
        let request = self.client.poll_scattering().expect("it is sent").payload;
        self.sent += 1;
        self.replica.on_message(false, Timestamp::from_ns(self.sent), CLIENT, &request);
        self.disk.extend(std::iter::from_fn(|| self.replica.poll_record()));
        self.replica.on_stored(self.disk.last().expect("an entry is recorded").number);
        while let Some(reply) = self.replica.poll_scattering() {
            self.client.on_message(now, REPLICA, &reply.payload);
        }
        let position = self.client.poll_committed().expect("the only replica has it").position;
        self.replica.on_committed(position.index + 1, position.checksum);
    }

    /// Returns the replica as after a restart from a checkpoint and the records behind.
    fn restored(&self, (number, bytes): (u64, &[u8]), applied: u64) -> LogReplica {
        let behind = self.disk.iter().filter(|record| record.number > number);
        let records: Vec<_> = behind.cloned().collect();
        let stored = Stored { checkpoint: Some((number, bytes)), records: &records, applied };
        let options = ReplicaOptions::default();
        LogReplica::restore(REPLICA, replicas(), options, stored).expect("it is one of a log")
    }
}

#[test]
fn checkpoint_has_no_entry_that_its_records_have() {
    let mut log = Log::new();
    let number = |log: &Log, after| log.replica.checkpoint(after).map(|(number, _)| number);
    assert_eq!(number(&log, 0), None, "nothing is recorded");
    (0..10).for_each(|_| log.append());
    assert_eq!(number(&log, 0), None, "all entries are in the records");
    log.replica.on_applied(6);
    assert_eq!(log.replica.base_len(), 6);
    let (last, bytes) = log.replica.checkpoint(0).expect("six entries were trimmed");
    assert_eq!(last, 6);
    assert!(bytes.len() < PAYLOAD_LEN, "{} bytes", bytes.len());
    assert_eq!(number(&log, last), None, "it would be the same");

    let restored = log.restored((last, &bytes), 6);
    assert_eq!((restored.base_len(), restored.len()), (6, 10));
    assert_eq!(restored.checksum(10), log.replica.checksum(10));
    (6..10).for_each(|index| assert!(restored.unstable_entry(index).is_some(), "{index}"));
}
