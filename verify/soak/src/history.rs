//! What the processes were to send and what they printed, judged against the guarantees of
//! docs/spec: order, causality, at most once, atomicity, and a report for every loss.

use std::collections::BTreeMap;
use std::fmt;

/// A run of one process, from its start to its end: the process id and the number of the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    pub process: usize,
    pub number: u32,
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} (start {})", self.process, self.number)
    }
}

/// A scattering that a process was to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub from: Instance,
    pub number: u64,
}

struct Sent {
    is_reliable: bool,
    /// The receivers, and of each the instance that had delivered messages when this one was sent.
    to: Vec<(usize, Option<u32>)>,
    /// Highest timestamp of this service that the sender had printed.
    after: u64,
    /// Timestamp with which it was delivered first.
    timestamp: Option<u64>,
    delivered: Vec<Instance>,
}

/// What was seen of the current instance of a process.
#[derive(Clone, Copy, Default)]
struct Current {
    number: u32,
    is_up: bool,
    /// Timestamp and sender of the last delivery, best effort and reliable: each service has an
    /// order of its own.
    last: [Option<(u64, usize)>; 2],
    count_sent: u64,
}

/// Everything that was sent since the last [`History::complete`].
#[derive(Default)]
pub struct History {
    current: Vec<Current>,
    sent: BTreeMap<Id, Sent>,
    /// Messages from a instance to a process that were reported as not delivered.
    reports: BTreeMap<(Instance, usize), u64>,
    violations: Vec<String>,
    pub count_delivered: u64,
    pub count_sent: u64,
}

impl History {
    pub fn new(processes: usize) -> Self {
        Self { current: vec![Current::default(); processes], ..Self::default() }
    }

    /// Records the start of a process. Returns its instance.
    pub fn start(&mut self, process: usize) -> Instance {
        let number = self.current[process].number + 1;
        self.current[process] = Current { number, is_up: true, ..Current::default() };
        Instance { process, number }
    }

    pub fn end(&mut self, process: usize) {
        self.current[process].is_up = false;
    }

    /// Returns whether the current instance of a process has delivered anything.
    pub fn has_delivered(&self, process: usize) -> bool {
        let current = self.current[process];
        current.is_up && current.last.iter().any(Option::is_some)
    }

    /// Returns whether the current instance of a process is not its first.
    pub fn has_restarted(&self, process: usize) -> bool {
        self.current[process].number > 1
    }

    fn instance(&self, process: usize) -> Instance {
        Instance { process, number: self.current[process].number }
    }

    fn is_current(&self, instance: Instance) -> bool {
        let current = self.current[instance.process];
        current.is_up && current.number == instance.number
    }

    /// Records that `process` is to send to `to`. Returns the line to write to the process.
    pub fn send(&mut self, process: usize, to: &[usize], is_reliable: bool) -> (Id, String) {
        let alive = |to: &usize| (*to, self.has_delivered(*to).then(|| self.instance(*to).number));
        let to = to.iter().map(alive).collect();
        let from = self.instance(process);
        let current = &mut self.current[process];
        current.count_sent += 1;
        self.count_sent += 1;
        let id = Id { from, number: current.count_sent };
        let last = current.last[usize::from(is_reliable)];
        let after = last.map_or(0, |(timestamp, _)| timestamp);
        let sent = Sent { is_reliable, to, after, timestamp: None, delivered: Vec::new() };
        let receivers: Vec<String> = sent.to.iter().map(|(to, _)| to.to_string()).collect();
        let line = format!("{} L{} N{}", receivers.join(","), from.number, id.number);
        self.sent.insert(id, sent);
        (id, line)
    }

    /// Records a line `TIMESTAMP FROM L<start> N<number>` that `process` has printed. Returns the
    /// scattering.
    pub fn deliver(&mut self, process: usize, line: &str) -> Option<Id> {
        let receiver = self.instance(process);
        let Some((timestamp, id)) = parse(line) else {
            self.violate(format!("{receiver} printed {line:?}, which was never sent"));
            return None;
        };
        self.count_delivered += 1;
        let Some(sent) = self.sent.get_mut(&id) else {
            self.violate(format!("{receiver} printed {line:?}, which was never sent, or long ago"));
            return None;
        };
        let mut violations = Vec::new();
        let position = (timestamp, id.from.process);
        let last = self.current[process].last[usize::from(sent.is_reliable)].replace(position);
        if last.is_some_and(|last| last >= position) {
            violations.push(format!("order: {receiver} printed {line:?} after {last:?}"));
        }
        if sent.to.iter().all(|(to, _)| *to != process) {
            violations.push(format!("{receiver} printed {line:?}, sent to others only"));
        }
        if sent.delivered.contains(&receiver) {
            violations.push(format!("at most once: {receiver} printed {line:?} twice"));
        }
        if *sent.timestamp.get_or_insert(timestamp) != timestamp {
            violations.push(format!("order: {line:?} had another timestamp elsewhere"));
        }
        if timestamp <= sent.after {
            let after = sent.after;
            violations.push(format!("causality: {line:?} was sent after timestamp {after}"));
        }
        sent.delivered.push(receiver);
        violations.into_iter().for_each(|violation| self.violate(violation));
        Some(id)
    }

    /// Records that `process` has printed that a message to `to` was not delivered, or may not
    /// have been.
    pub fn report(&mut self, process: usize, to: usize) {
        let instance = self.instance(process);
        *self.reports.entry((instance, to)).or_default() += 1;
    }

    pub fn violate(&mut self, violation: String) {
        self.violations.push(violation);
    }

    /// Removes and returns the violations found so far.
    pub fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    /// Returns what is missing: messages between live processes that were neither delivered nor
    /// reported, and reliable scatterings that only some live receivers have delivered.
    pub fn missing(&self) -> Vec<String> {
        let mut undelivered = BTreeMap::<(Instance, usize), u64>::new();
        let mut missing = Vec::new();
        for (id, sent) in &self.sent {
            let live = |(to, instance): &(usize, Option<u32>)| {
                let instance = Instance { process: *to, number: (*instance)? };
                self.is_current(instance).then_some(instance)
            };
            let (with, without): (Vec<Instance>, Vec<Instance>) = sent
                .to
                .iter()
                .filter_map(live)
                .partition(|instance| sent.delivered.contains(instance));
            if sent.is_reliable && !with.is_empty() && !without.is_empty() {
                missing.push(format!(
                    "atomicity: scattering {} of {} at {:?} was delivered by {with:?} and not by {without:?}",
                    id.number, id.from, sent.timestamp
                ));
            }
            if self.is_current(id.from) {
                for instance in without {
                    *undelivered.entry((id.from, instance.process)).or_default() += 1;
                }
            }
        }
        for ((from, to), count) in undelivered {
            let reported = self.reports.get(&(from, to)).copied().unwrap_or_default();
            if count > reported {
                missing.push(format!(
                    "loss: {from} sent {count} messages that process {to} did not deliver, \
                     and reported {reported}"
                ));
            }
        }
        missing
    }

    /// Forgets everything that was sent: it has been judged.
    pub fn complete(&mut self) {
        self.sent.clear();
        self.reports.clear();
    }
}

/// Parses `TIMESTAMP FROM L<start> N<number>`.
fn parse(line: &str) -> Option<(u64, Id)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [timestamp, from, instance, number] = words[..] else { return None };
    let from =
        Instance { process: from.parse().ok()?, number: instance.strip_prefix('L')?.parse().ok()? };
    let number = number.strip_prefix('N')?.parse().ok()?;
    Some((timestamp.parse().ok()?, Id { from, number }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the history of two processes that know each other.
    fn pair() -> History {
        let mut history = History::new(2);
        for process in 0..2 {
            history.start(process);
        }
        for (process, timestamp) in [(0, 1), (1, 2)] {
            let (_, line) = history.send(process, &[process], true);
            let text = line.split_once(' ').map(|(_, text)| text.to_owned());
            history
                .deliver(process, &format!("{timestamp} {process} {}", text.unwrap_or_default()));
        }
        assert_eq!((history.missing(), history.take_violations()), (vec![], vec![]));
        history
    }

    fn deliver(history: &mut History, process: usize, timestamp: u64, id: Id) {
        let Id { from, number } = id;
        let line = format!("{timestamp} {} L{} N{number}", from.process, from.number);
        history.deliver(process, &line);
    }

    fn violation(history: &mut History) -> String {
        history.take_violations().join("; ")
    }

    #[test]
    fn reversed_deliveries_violate_the_order() {
        let mut history = pair();
        let (first, _) = history.send(0, &[0, 1], true);
        let (second, _) = history.send(1, &[0, 1], true);
        deliver(&mut history, 0, 11, second);
        deliver(&mut history, 0, 10, first);
        assert!(violation(&mut history).starts_with("order"));
    }

    #[test]
    fn two_timestamps_of_a_scattering_violate_the_order() {
        let mut history = pair();
        let (id, _) = history.send(0, &[0, 1], true);
        deliver(&mut history, 0, 10, id);
        deliver(&mut history, 1, 11, id);
        assert!(violation(&mut history).contains("another timestamp"));
    }

    #[test]
    fn a_second_delivery_is_a_violation() {
        let mut history = pair();
        let (id, _) = history.send(0, &[1], false);
        deliver(&mut history, 1, 10, id);
        deliver(&mut history, 1, 10, id);
        assert!(violation(&mut history).contains("at most once"));
    }

    #[test]
    fn an_answer_before_its_question_violates_causality() {
        let mut history = pair();
        let (question, _) = history.send(0, &[1], true);
        deliver(&mut history, 1, 10, question);
        let (answer, _) = history.send(1, &[0], true);
        deliver(&mut history, 0, 9, answer);
        assert!(violation(&mut history).contains("causality"));
    }

    #[test]
    fn a_delivery_of_nothing_sent_is_a_violation() {
        let mut history = pair();
        history.deliver(0, "12 1 hello");
        assert!(violation(&mut history).contains("never sent"));
    }

    #[test]
    fn half_a_reliable_scattering_violates_atomicity() {
        let mut history = pair();
        let (id, _) = history.send(0, &[0, 1], true);
        deliver(&mut history, 1, 10, id);
        history.report(0, 0);
        assert!(history.missing().iter().any(|text| text.starts_with("atomicity")));
        deliver(&mut history, 0, 10, id);
        assert!(history.missing().is_empty());
    }

    #[test]
    fn a_loss_without_a_report_is_missing() {
        let mut history = pair();
        history.send(0, &[1], false);
        assert!(history.missing()[0].starts_with("loss"));
        history.report(0, 1);
        assert!(history.missing().is_empty());
    }

    #[test]
    fn nothing_is_expected_of_a_receiver_that_ended() {
        let mut history = pair();
        history.send(0, &[1], true);
        history.end(1);
        assert!(history.missing().is_empty());
    }
}
