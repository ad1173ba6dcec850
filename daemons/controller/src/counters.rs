//! Counters by name.

use std::collections::BTreeMap;

use onepipe_controller::Stats;

macro_rules! by_name {
    ($stats:expr, $($name:ident),* $(,)?) => {{
        // Destructured, so that a new counter cannot be forgotten here.
        let Stats { $($name),* } = $stats;
        BTreeMap::from([$((stringify!($name).to_owned(), *$name)),*])
    }};
}

/// Returns the counters of the machine.
pub(crate) fn counters(stats: &Stats) -> BTreeMap<String, u64> {
    by_name!(
        stats,
        frames_taken,
        frames_sent,
        dropped_malformed,
        dropped_foreign,
        dropped_stale,
        dropped_range,
        dropped_standby,
        dropped_full,
        dropped_excessive,
        announcements,
        evaluations,
        visits,
        duplicate_registrations,
        unknown_peers,
        failures,
        switch_failures,
        leaves,
        inexact,
        partitions,
        floods,
        floods_restarted,
        retransmissions,
        relayed,
        relays_refused,
        pings_unanswered,
        undeliverables,
        recoveries,
        store_failures,
        events_lost,
    )
}
