//! Settings of a group and of a member.

use std::fmt;
use std::time::Duration;

use onepipe_bulk::{Algorithm, Config, Delivery, Plain};
use onepipe_transport_bulk::{Carrier, Listener};

use crate::Idle;

/// A callback for each complete object: its number and its bytes.
pub type OnObject = Box<dyn FnMut(u32, &[u8]) + Send>;

/// Settings of a group, each with a default. All members must agree on those marked *for all*.
pub struct GroupOptions {
    /// For all: the number of the group. Groups that share listeners must have different numbers.
    /// Default 1.
    pub group: u64,
    /// For all: the carrier of frames. Default: TCP.
    pub carrier: Carrier,
    /// For all: the schedule of blocks. Default: the binomial pipeline.
    pub algorithm: Algorithm,
    /// For all: when objects are delivered. Default: at once.
    pub delivery: Delivery,
    /// For all: maximum number of objects in flight, 1 to 8. Default 4.
    pub objects_max: u32,
    /// Length of each block of objects sent, in bytes. Default 1 MiB.
    pub block_len: u32,
    /// Whether each block of objects sent has a digest (XXH3-64) that every receiver verifies.
    /// Default yes. Without digests bytes are protected by TCP's checksum only.
    pub has_digests: bool,
    /// Maximum length of an accepted object, in bytes. Default 2^40.
    pub object_len_max: u64,
    /// Maximum number of bytes of objects in transit to this member or not yet received by its
    /// user; a single object is always accepted. Senders wait beyond it. Default 256 MiB.
    pub memory_bytes_max: u64,
    /// How long to wait for the other members at the start. Default 10 s.
    pub join_timeout: Duration,
    /// Failure timeout of a member that does not respond; one whose connection breaks fails at
    /// once. Default 5 s.
    pub dead_after: Duration,
    /// What to do with the core while idle. Default [`Idle::Backoff`].
    pub idle: Idle,
    /// The listener of this process. Default: one of its own at its address in the list.
    pub listener: Option<Listener>,
    /// A callback for each object: see [`GroupOptions::on_object`]. Default none.
    pub on_object: Option<OnObject>,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            group: 1,
            carrier: Carrier::default(),
            algorithm: Algorithm::Plain(Plain::Pipeline),
            delivery: Delivery::AtOnce,
            objects_max: 4,
            block_len: 1 << 20,
            has_digests: true,
            object_len_max: 1 << 40,
            memory_bytes_max: 256 << 20,
            join_timeout: Duration::from_secs(10),
            dead_after: Duration::from_secs(5),
            idle: Idle::default(),
            listener: None,
            on_object: None,
        }
    }
}

impl GroupOptions {
    /// Calls `on_object` with the number and the bytes of each object as soon as it is complete
    /// here, on the group's own thread, with the bytes in place. The object is received later all
    /// the same.
    #[must_use]
    pub fn on_object(mut self, on_object: impl FnMut(u32, &[u8]) + Send + 'static) -> Self {
        self.on_object = Some(Box::new(on_object));
        self
    }

    /// The configuration of the machine: members are numbered by rank.
    pub(super) fn config(&self, members: usize, own: u32) -> Config {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let config = Config {
            algorithm: self.algorithm.clone(),
            delivery: self.delivery,
            objects_max: self.objects_max,
            block_len: self.block_len,
            has_digests: self.has_digests,
            object_len_max: self.object_len_max,
            dead_after_ns: nanoseconds(self.dead_after),
            ..self.carrier.config(self.group, members, own)
        };
        self.carrier.adapt(config)
    }
}

impl fmt::Debug for GroupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupOptions")
            .field("group", &self.group)
            .field("carrier", &self.carrier)
            .field("algorithm", &self.algorithm)
            .field("delivery", &self.delivery)
            .field("objects_max", &self.objects_max)
            .field("block_len", &self.block_len)
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}
