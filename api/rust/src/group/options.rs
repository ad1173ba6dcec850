//! What a group is like, and what a member chooses for itself.

use std::fmt;
use std::time::Duration;

use onepipe_bulk::{Algorithm, Config, Delivery, Plain};
use onepipe_transport_bulk::{Carrier, Listener};

use crate::Idle;

/// What is called with each object as soon as it is here: its number and its bytes.
pub type OnObject = Box<dyn FnMut(u32, &[u8]) + Send>;

/// Settings of a group, each with a default. All members must say the same of those *for all*.
pub struct GroupOptions {
    /// For all: the group's name. Members that meet at the same doors for several groups give each
    /// another one. Default 1.
    pub group: u64,
    /// For all: what carries frames. Default: TCP.
    pub carrier: Carrier,
    /// For all: how blocks travel. Default: the binomial pipeline.
    pub algorithm: Algorithm,
    /// For all: when objects are handed out. Default: at once.
    pub delivery: Delivery,
    /// For all: objects that may be under way at a time, 1 to 8. Default 4.
    pub objects_max: u32,
    /// Bytes of each block of what we send. Default 1 MiB.
    pub block_len: u32,
    /// Whether each block of what we send has a digest (XXH3-64) that every receiver checks.
    /// Default yes. Without, bytes are trusted as far as TCP's own check.
    pub has_digests: bool,
    /// Bytes of an object that we take at most. Default 2^40.
    pub object_len_max: u64,
    /// Bytes of objects that may be on their way in, or have come and were not received; one
    /// object always may. Senders wait for more. Default 256 MiB.
    pub memory_bytes_max: u64,
    /// How long we wait for the others in the beginning. Default 10 s.
    pub join_timeout: Duration,
    /// A member that answers nothing for so long has failed; one whose connection breaks has at
    /// once. Default 5 s.
    pub dead_after: Duration,
    /// What to do when there is nothing to do. Default [`Idle::Backoff`].
    pub idle: Idle,
    /// Where this process is found. Default: a door of its own at its address in the list.
    pub listener: Option<Listener>,
    /// What is called with each object: see [`GroupOptions::on_object`]. Default nothing.
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
    /// Calls `on_object` with the number and the bytes of each object as soon as it is whole here,
    /// on the group's own thread, where the bytes lie. The object is received later all the same.
    #[must_use]
    pub fn on_object(mut self, on_object: impl FnMut(u32, &[u8]) + Send + 'static) -> Self {
        self.on_object = Some(Box::new(on_object));
        self
    }

    /// The machine's configuration: members are numbered by rank.
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
            .field("door", &self.listener)
            .finish_non_exhaustive()
    }
}
