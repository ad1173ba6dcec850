//! The order of shortest-first: urgent flows, then all others by remaining backlog.

use crate::flow::Flow;

/// Batches without service after which a flow is urgent, whatever its backlog.
const AGE_URGENT: u8 = 32;
/// Cap of ages, as stamps count batches modulo 256.
const AGE_CAP: u8 = 128;
/// Interval in batches at which flows are checked for urgency.
const AGE_CHECK_BATCHES: u8 = 4;
/// Number of distinct backlogs in the sort order; longer ones are equal.
const BUCKETS: usize = 256;

#[inline]
fn length(flow: Flow) -> usize {
    (flow.backlog() as usize).min(BUCKETS - 1)
}

//= spec/arbiter.md#R11
/// Sorts `flows` into `sorted`, which is as long: urgent flows first, then the others by backlog,
/// stably. Returns the number of urgent flows.
///
/// `now` is the number of the batch, modulo 256.
pub(super) fn sort(flows: &[Flow], now: u8, sorted: &mut [Flow]) -> usize {
    if now.is_multiple_of(AGE_CHECK_BATCHES) {
        return sort_all(flows, now, sorted);
    }
    let (ends, run) = sorted_run(flows);
    if run < flows.len() / 4 {
        return sort_all(flows, now, sorted);
    }
    let (run, rest) = flows.split_at(run);
    merge(run, &ends, rest, now, sorted)
}

/// Returns the sort key; 0 is for urgent flows, as no backlog is 0.
#[inline]
fn key(flow: Flow, now: u8) -> usize {
    if flow.age(now) >= AGE_URGENT { 0 } else { length(flow) }
}

fn sort_all(flows: &[Flow], now: u8, sorted: &mut [Flow]) -> usize {
    let mut counts = [0u32; BUCKETS];
    for flow in flows {
        counts[key(*flow, now)] += 1;
    }
    let urgent = counts[0] as usize;
    let mut begin = 0;
    for count in &mut counts {
        begin += core::mem::replace(count, begin);
    }
    for flow in flows {
        let offset = &mut counts[key(*flow, now)];
        sorted[*offset as usize] = *flow;
        *offset += 1;
    }
    cap_ages(&mut sorted[..urgent], now)
}

/// Caps the ages of urgent flows and returns their number.
fn cap_ages(flows: &mut [Flow], now: u8) -> usize {
    for flow in &mut *flows {
        *flow = flow.with_age(AGE_CAP, now);
    }
    flows.len()
}

/// Merges the sorted `run` of flows that were blocked in the last batch with `rest`, which is
/// sorted here. A flow found urgent in an earlier batch and not served is part of `rest`.
fn merge(
    mut run: &[Flow],
    ends: &[u32; BUCKETS],
    rest: &[Flow],
    now: u8,
    sorted: &mut [Flow],
) -> usize {
    let mut counts = [0u32; BUCKETS];
    for flow in rest {
        counts[key(*flow, now)] += 1;
    }
    let urgent = counts[0] as usize;
    let (all, mut to) = (run.len(), 0);
    for (count, end) in counts.iter_mut().zip(ends) {
        if *count > 0 {
            let before = run.len() - (all - *end as usize);
            let (first, tail) = run.split_at(before);
            sorted[to..][..before].copy_from_slice(first);
            (run, to) = (tail, to + before);
            to += core::mem::replace(count, to as u32) as usize;
        }
    }
    sorted[to..][..run.len()].copy_from_slice(run);
    for flow in rest {
        let offset = &mut counts[key(*flow, now)];
        sorted[*offset as usize] = *flow;
        *offset += 1;
    }
    cap_ages(&mut sorted[..urgent], now)
}

/// Returns the length of the sorted prefix of `flows`, and the end of each backlog within it.
fn sorted_run(flows: &[Flow]) -> ([u32; BUCKETS], usize) {
    let mut ends = [0; BUCKETS];
    let mut run = 0;
    for (at, flow) in flows.iter().enumerate() {
        let length = length(*flow);
        if length != run {
            if length < run {
                ends[run..].fill(at as u32);
                return (ends, at);
            }
            ends[run..length].fill(at as u32);
            run = length;
        }
    }
    ends[run..].fill(flows.len() as u32);
    (ends, flows.len())
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn flows() -> impl Strategy<Value = Vec<Flow>> {
        let flow = (0u16..9, 0u16..9, prop_oneof![1u32..40, 200u32..300], 0u8..60);
        let flow = flow.prop_map(|(src, dst, backlog, age)| {
            Flow::new(src, dst, backlog, 0u8.wrapping_sub(age))
        });
        (prop::collection::vec(flow.clone(), 0..300), prop::collection::vec(flow, 0..40)).prop_map(
            |(mut sorted, rest)| {
                sorted.sort_by_key(|flow| length(*flow));
                sorted.extend(rest);
                sorted
            },
        )
    }

    proptest! {
        #[test]
        fn merge_sorts_stably(flows in flows()) {
            let flows: Vec<_> = flows.into_iter().map(|flow| flow.with_age(3, 1)).collect();
            let mut sorted = alloc::vec![Flow::default(); flows.len()];
            prop_assert_eq!(sort(&flows, 1, &mut sorted), 0);
            let mut expected = flows.clone();
            expected.sort_by_key(|flow| length(*flow));
            prop_assert_eq!(sorted, expected);
        }

        //= spec/arbiter.md#R11
        #[test]
        fn urgent_flows_come_first(flows in flows()) {
            let mut sorted = alloc::vec![Flow::default(); flows.len()];
            let urgent = sort(&flows, 0, &mut sorted);
            let is_urgent = |flow: &&Flow| flow.age(0) >= AGE_URGENT;
            prop_assert_eq!(urgent, flows.iter().filter(is_urgent).count());
            prop_assert!(sorted[..urgent].iter().all(|flow| flow.age(0) == AGE_CAP));
            prop_assert!(sorted[urgent..].is_sorted_by_key(|flow| length(*flow)));
            prop_assert!(!sorted[urgent..].iter().any(|flow| is_urgent(&flow)));
        }
    }
}
