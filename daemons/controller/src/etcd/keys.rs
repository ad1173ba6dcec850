//! The keys in etcd. Numbers are text, so that `etcdctl get --prefix` shows them.

use etcd_client::KeyValue;
use onepipe_controller::Epoch;

use super::EtcdError;

/// The keys of one fabric.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The id of the active replica; bound to its lease.
    pub(super) fn active(&self) -> String {
        format!("{}active", self.prefix)
    }

    /// The current epoch.
    pub(super) fn epoch(&self) -> String {
        format!("{}epoch", self.prefix)
    }

    /// The current generation of the log. Each [`onepipe_controller::Store::replace`] writes
    /// another one beside it, and then changes this key.
    pub(super) fn generation(&self) -> String {
        format!("{}generation", self.prefix)
    }

    /// The prefix of all records of all generations.
    pub(super) fn logs(&self) -> String {
        format!("{}log/", self.prefix)
    }

    /// The prefix of all records of `generation`.
    pub(super) fn log(&self, generation: u64) -> String {
        format!("{}log/{generation:010}/", self.prefix)
    }

    /// The end of the range of all records of all generations.
    pub(super) fn logs_end(&self) -> String {
        // '0' follows '/'.
        format!("{}log0", self.prefix)
    }

    /// The key of the `number`th record written in `epoch`. Keys in order are records in order,
    /// because no epoch writes after a later one has started.
    pub(super) fn record(&self, generation: u64, epoch: Epoch, number: u64) -> String {
        format!("{}{:010}/{number:010}", self.log(generation), epoch.0)
    }
}

/// Returns the number under a key, and the revision that wrote it. An absent key has number 0 and
/// revision 0.
pub(super) fn number(pair: Option<&KeyValue>) -> Result<(u64, i64), EtcdError> {
    let Some(pair) = pair else { return Ok((0, 0)) };
    let text = std::str::from_utf8(pair.value()).ok();
    match text.and_then(|text| text.parse().ok()) {
        Some(number) => Ok((number, pair.mod_revision())),
        None => Err(EtcdError::Foreign {
            key: String::from_utf8_lossy(pair.key()).into_owned(),
            value: String::from_utf8_lossy(pair.value()).into_owned(),
        }),
    }
}
