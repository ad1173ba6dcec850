//! When keys expire.

use onepipe_base::Timestamp;

use super::view::View;
use super::writer::Writer;
use crate::key::Key;
use crate::operation::{Deadline, ExpireCondition, TimeUnit};
use crate::value::Value;

const NS_PER_MS: u64 = 1_000_000;
const MS_PER_S: u64 = 1_000;
/// Reply if the key is absent.
const ABSENT: Value = Value::Integer(-2);
/// Reply if the key has no expiry.
const WITHOUT_EXPIRY: Value = Value::Integer(-1);

/// Returns the time until a key expires: in milliseconds, rounded up, or in seconds, to which these
/// milliseconds are rounded half up, as in Redis. The interval in which the read is exact ends when
/// the number changes.
pub(super) fn time_to_live(view: &View<'_>, key: &Key, unit: TimeUnit) -> Value {
    let Some(entry) = view.entry(key) else { return ABSENT };
    let Some(expiry) = entry.expiry else { return WITHOUT_EXPIRY };
    let left_ms = expiry.since_ns(view.at()).div_ceil(NS_PER_MS);
    // The number stays the same as long as `left_ms` is from `least` to `most`.
    let (number, least, most) = match unit {
        TimeUnit::Milliseconds => (left_ms, left_ms, left_ms),
        TimeUnit::Seconds => {
            let seconds = (left_ms + MS_PER_S / 2) / MS_PER_S;
            let least = (seconds * MS_PER_S).saturating_sub(MS_PER_S / 2).max(1);
            (seconds, least, seconds * MS_PER_S + MS_PER_S / 2 - 1)
        }
    };
    view.exact_from(expiry.saturating_sub_ns(most.saturating_mul(NS_PER_MS)));
    view.exact_until(expiry.saturating_sub_ns((least - 1).saturating_mul(NS_PER_MS)));
    integer(number)
}

/// Returns the time at which a key expires, since the UNIX epoch.
pub(super) fn expire_time(view: &View<'_>, key: &Key, unit: TimeUnit) -> Value {
    let Some(entry) = view.entry(key) else { return ABSENT };
    let Some(expiry) = entry.expiry else { return WITHOUT_EXPIRY };
    let ms = expiry.as_ns() / NS_PER_MS;
    match unit {
        TimeUnit::Milliseconds => integer(ms),
        TimeUnit::Seconds => integer((ms + MS_PER_S / 2) / MS_PER_S),
    }
}

fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

impl Writer<'_> {
    pub(super) fn expire(
        &mut self,
        key: &Key,
        deadline: Deadline,
        condition: ExpireCondition,
    ) -> Value {
        let Some(present) = self.view().entry(key).map(|entry| entry.expiry) else {
            return Value::Integer(0);
        };
        let expiry = deadline.resolve(self.at());
        let is_later = present.is_some_and(|present| expiry > present);
        let is_earlier = present.is_none_or(|present: Timestamp| expiry < present);
        let holds = match condition {
            ExpireCondition::Always => true,
            ExpireCondition::IfNone => present.is_none(),
            ExpireCondition::IfSome => present.is_some(),
            ExpireCondition::IfLater | ExpireCondition::IfSomeAndLater => is_later,
            ExpireCondition::IfEarlier => is_earlier,
            ExpireCondition::IfSomeAndEarlier => present.is_some() && is_earlier,
        };
        if holds {
            self.set_expiry(key, Some(expiry));
        }
        Value::Integer(holds.into())
    }

    pub(super) fn persist(&mut self, key: &Key) -> Value {
        let has_expiry = self.view().entry(key).is_some_and(|entry| entry.expiry.is_some());
        if has_expiry {
            self.set_expiry(key, None);
        }
        Value::Integer(has_expiry.into())
    }
}
