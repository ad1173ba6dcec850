//! What the client of the group multicast and what its replicas printed: all in one order, and
//! everything that is complete at every replica.

/// The lines of one group.
#[derive(Default)]
pub struct Group {
    count_sent: u64,
    /// What the replicas have delivered, by position.
    order: Vec<String>,
    /// Number of positions that each replica has delivered.
    lens: Vec<usize>,
    count_completed: u64,
}

impl Group {
    pub fn new(replicas: usize) -> Self {
        Self { lens: vec![0; replicas], ..Self::default() }
    }

    /// Returns the next line for the client.
    pub fn send(&mut self) -> String {
        self.count_sent += 1;
        format!("N{}", self.count_sent)
    }

    /// Records a line that the client has printed: a message is complete.
    pub fn complete(&mut self, _line: &str) {
        self.count_completed += 1;
    }

    /// Records a line that a replica has printed. Returns the violation.
    pub fn deliver(&mut self, replica: usize, line: &str) -> Option<String> {
        let position = self.lens[replica];
        self.lens[replica] += 1;
        let Some(expected) = self.order.get(position) else {
            let is_repeated = self.order.iter().rev().take(1_000).any(|other| other == line);
            self.order.push(line.to_owned());
            return is_repeated.then(|| format!("group: replica {replica} printed {line:?} twice"));
        };
        (expected != line).then(|| {
            format!("group: replica {replica} printed {line:?} at position {position}, another {expected:?}")
        })
    }

    /// Returns the number of messages that are complete.
    pub fn count_completed(&self) -> u64 {
        self.count_completed
    }

    /// Returns what is missing: messages that are not complete, or not delivered by a replica.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let Self { count_sent, count_completed, .. } = self;
        if count_completed < count_sent {
            missing.push(format!("group: {count_completed} of {count_sent} messages are complete"));
        }
        for (replica, len) in self.lens.iter().enumerate() {
            if (*len as u64) < *count_sent {
                missing.push(format!("group: replica {replica} delivered {len} of {count_sent}"));
            }
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_order_at_a_replica_is_a_violation() {
        let mut group = Group::new(2);
        let (first, second) = (group.send(), group.send());
        for line in [&first, &second] {
            assert_eq!(group.deliver(0, line), None);
        }
        assert!(group.deliver(1, &second).is_some());
    }

    #[test]
    fn an_undelivered_message_is_missing() {
        let mut group = Group::new(1);
        let line = group.send();
        group.complete(&line);
        assert_eq!(group.missing().len(), 1);
        group.deliver(0, &line);
        assert!(group.missing().is_empty());
    }

    #[test]
    fn a_second_delivery_is_a_violation() {
        let mut group = Group::new(1);
        let line = group.send();
        assert_eq!(group.deliver(0, &line), None);
        assert!(group.deliver(0, &line).is_some());
    }
}
