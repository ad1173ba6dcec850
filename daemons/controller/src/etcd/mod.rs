//! The store for replicas on several machines: an etcd cluster.
//!
//! The active replica is a key bound to a lease; the epoch is another key. Every write is a
//! transaction that etcd carries out only while the epoch is the writer's: a deposed replica writes
//! nothing, however late its request arrives.

mod cluster;
mod config;
mod keys;
mod replace;

use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use onepipe_base::ProcessId;
use onepipe_controller::{Epoch, Record, Store, StoreError};

use cluster::{Answer, Cluster, is_compacted, is_expired};
pub use config::{EtcdConfig, EtcdError};
use keys::{Keys, number};

/// How often a transaction that has lost a race to another one is retried.
const RACES_MAX: u32 = 8;
/// Records per read.
const PAGE_RECORDS: i64 = 256;

/// Records in etcd, and an election by lease.
///
/// Every call blocks, for [`EtcdConfig::deadline`] or a few times that. It must not be made from
/// within an asynchronous runtime.
#[derive(Debug)]
pub struct EtcdStore {
    cluster: Cluster,
    keys: Keys,
    lease_ttl_s: i64,
    /// The term of this replica while it is active, as far as it knows.
    term: Option<Term>,
}

#[derive(Debug)]
struct Term {
    epoch: Epoch,
    replica: ProcessId,
    lease: i64,
    /// The current generation of the log.
    generation: u64,
    /// The highest generation that this epoch has started to write: none is written twice.
    generation_last: u64,
    /// Number of this epoch's next record.
    next: u64,
}

/// The state of the election in etcd.
#[derive(Debug)]
struct ElectionState {
    active: Option<Active>,
    epoch: Epoch,
    epoch_revision: i64,
    generation: u64,
    generation_revision: i64,
}

#[derive(Debug)]
struct Active {
    replica: u64,
    lease: i64,
    revision: i64,
}

impl EtcdStore {
    /// Creates a store in the etcd that `config` names. No request is sent yet.
    ///
    /// # Errors
    /// When an endpoint is no valid address.
    pub fn new(config: &EtcdConfig) -> Result<Self, EtcdError> {
        Ok(Self {
            cluster: Cluster::new(config)?,
            keys: Keys::new(&config.prefix),
            lease_ttl_s: i64::from(config.lease_ttl_s.max(1)),
            term: None,
        })
    }

    fn transact(&mut self, txn: Txn) -> Result<Answer<TxnResponse>, EtcdError> {
        self.cluster.call(|client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        })
    }

    fn grant(&mut self) -> Result<i64, EtcdError> {
        let ttl = self.lease_ttl_s;
        let grant = |client: etcd_client::Client| async move {
            client.lease_client().grant(ttl, None).await
        };
        Ok(self.cluster.call(grant)?.value.id())
    }

    /// Revokes a lease. If that fails, it expires.
    fn revoke(&mut self, lease: i64) {
        let revoke =
            |client: etcd_client::Client| async move { client.lease_client().revoke(lease).await };
        let _ = self.cluster.call(revoke);
    }

    fn state(&mut self) -> Result<ElectionState, EtcdError> {
        let get = |key| TxnOp::get(key, None);
        let keys = [self.keys.active(), self.keys.epoch(), self.keys.generation()];
        let answer = self.transact(Txn::new().and_then(keys.map(get)))?;
        let [active, epoch, generation] = pairs(&answer.value);
        let active = match &active {
            None => None,
            Some(pair) => {
                let (replica, revision) = number(Some(pair))?;
                Some(Active { replica, lease: pair.lease(), revision })
            }
        };
        let (epoch_number, epoch_revision) = number(epoch.as_ref())?;
        let (generation, generation_revision) = number(generation.as_ref())?;
        let Ok(epoch) = u32::try_from(epoch_number).map(Epoch) else {
            let (key, value) = (self.keys.epoch(), epoch_number.to_string());
            return Err(EtcdError::Foreign { key, value });
        };
        Ok(ElectionState { active, epoch, epoch_revision, generation, generation_revision })
    }

    /// Becomes active with `lease`, if no other replica is.
    fn try_activate(&mut self, replica: ProcessId, lease: i64) -> Result<Option<Term>, EtcdError> {
        let mut reason = String::new();
        for _ in 0..RACES_MAX {
            let state = self.state()?;
            let mut term = Term {
                epoch: state.epoch,
                replica,
                lease,
                generation: state.generation,
                generation_last: state.generation,
                next: 1,
            };
            let active_revision = match &state.active {
                // An earlier attempt succeeded, but its answer was lost.
                Some(active) if active.lease == lease => return Ok(Some(term)),
                Some(active) if active.replica != u64::from(replica.0) => return Ok(None),
                active => active.as_ref().map_or(0, |active| active.revision),
            };
            let Some(epoch) = state.epoch.0.checked_add(1).map(Epoch) else {
                let (key, value) = (self.keys.epoch(), state.epoch.0.to_string());
                return Err(EtcdError::Foreign { key, value });
            };
            term.epoch = epoch;
            let unchanged = |key, revision| Compare::mod_revision(key, CompareOp::Equal, revision);
            let bytes = encode(&Record::Epoch { epoch, replica });
            let bound = PutOptions::new().with_lease(lease);
            let txn = Txn::new()
                .when([
                    unchanged(self.keys.active(), active_revision),
                    unchanged(self.keys.epoch(), state.epoch_revision),
                    unchanged(self.keys.generation(), state.generation_revision),
                ])
                .and_then([
                    TxnOp::put(self.keys.active(), replica.0.to_string(), Some(bound)),
                    TxnOp::put(self.keys.epoch(), epoch.0.to_string(), None),
                    TxnOp::put(self.keys.generation(), state.generation.to_string(), None),
                    TxnOp::put(self.keys.record(state.generation, epoch, 0), bytes, None),
                ]);
            if self.transact(txn)?.value.succeeded() {
                return Ok(Some(term));
            }
            reason = format!("epoch {} was not the last any more", state.epoch.0);
        }
        Err(self.lost_race(reason))
    }

    /// Returns this replica's term, if it is that of `epoch`.
    fn term_of(&mut self, epoch: Epoch) -> Result<&mut Term, StoreError<EtcdError>> {
        match &mut self.term {
            Some(term) if term.epoch == epoch => Ok(term),
            _ => Err(StoreError::Deposed),
        }
    }

    /// Notes that the epoch is over.
    fn mark_deposed(&mut self) -> StoreError<EtcdError> {
        self.term = None;
        StoreError::Deposed
    }

    /// Returns the condition that `epoch` is current.
    fn guard(&self, epoch: Epoch) -> Compare {
        Compare::value(self.keys.epoch(), CompareOp::Equal, epoch.0.to_string())
    }

    fn lost_race(&self, reason: String) -> EtcdError {
        EtcdError::Unavailable { endpoints: self.cluster.endpoints(), reason }
    }

    /// Keeps the lease alive. Returns false if it has expired.
    fn keep_alive(&mut self, lease: i64) -> Result<bool, EtcdError> {
        let keep_alive = |client: etcd_client::Client| async move {
            client.lease_client().keep_alive(lease).await
        };
        match self.cluster.call(keep_alive) {
            Ok(_) => Ok(true),
            Err(error) if is_expired(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Binds the active key to a new lease, if the epoch is still current.
    fn rebind(&mut self, epoch: Epoch, replica: ProcessId) -> Result<bool, EtcdError> {
        let lease = self.grant()?;
        let bound = PutOptions::new().with_lease(lease);
        let txn = Txn::new().when([self.guard(epoch)]).and_then([TxnOp::put(
            self.keys.active(),
            replica.0.to_string(),
            Some(bound),
        )]);
        let succeeded = self.transact(txn)?.value.succeeded();
        match &mut self.term {
            Some(term) if succeeded => term.lease = lease,
            _ => self.revoke(lease),
        }
        Ok(succeeded)
    }

    /// Reads the log of the current generation as of one revision.
    fn read(&mut self) -> Result<Vec<Record>, EtcdError> {
        let key = self.keys.generation();
        let answer = self.cluster.call(|client| {
            let key = key.clone();
            async move { client.kv_client().get(key, None).await }
        })?;
        let (generation, _) = number(answer.value.kvs().first())?;
        let revision = answer.value.header().map_or(0, |header| header.revision());
        let (mut from, end) = (self.keys.log(generation), self.keys.log(generation + 1));
        let mut records = Vec::new();
        loop {
            let options = GetOptions::new()
                .with_range(end.clone())
                .with_limit(PAGE_RECORDS)
                .with_revision(revision);
            let answer = self.cluster.call(|client| {
                let (from, options) = (from.clone(), options.clone());
                async move { client.kv_client().get(from, Some(options)).await }
            })?;
            let page = answer.value;
            for pair in page.kvs() {
                from = String::from_utf8_lossy(pair.key()).into_owned();
                let decoded = Record::decode(pair.value());
                records.push(decoded.map_err(|source| {
                    let key = from.clone();
                    EtcdError::Record { key, source }
                })?);
            }
            if !page.more() {
                return Ok(records);
            }
            // The next possible key.
            from.push('\0');
        }
    }
}

/// Returns the first pair of each get operation.
fn pairs<const N: usize>(response: &TxnResponse) -> [Option<KeyValue>; N] {
    let mut responses = response.op_responses().into_iter();
    [(); N].map(|()| match responses.next() {
        Some(TxnOpResponse::Get(mut get)) => get.take_kvs().into_iter().next(),
        _ => None,
    })
}

fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

impl Store for EtcdStore {
    type Error = EtcdError;

    fn campaign(&mut self, replica: ProcessId) -> Result<Option<Epoch>, EtcdError> {
        // A waiting replica campaigns often, and must not leave leases behind.
        if self.state()?.active.is_some_and(|active| active.replica != u64::from(replica.0)) {
            return Ok(None);
        }
        let lease = self.grant()?;
        let activated = self.try_activate(replica, lease);
        let previous = self.term.take();
        match activated {
            Ok(Some(term)) => {
                let epoch = term.epoch;
                self.term = Some(term);
                // No key is bound to the previous lease any more.
                if let Some(previous) = previous {
                    self.revoke(previous.lease);
                }
                Ok(Some(epoch))
            }
            not_active => {
                self.revoke(lease);
                not_active.map(|_| None)
            }
        }
    }

    fn renew(&mut self, epoch: Epoch) -> Result<(), StoreError<EtcdError>> {
        let Term { lease, replica, .. } = *self.term_of(epoch)?;
        let is_alive = self.keep_alive(lease).map_err(StoreError::Failed)?;
        let txn =
            Txn::new().when([self.guard(epoch)]).and_then([TxnOp::get(self.keys.active(), None)]);
        let answer = self.transact(txn).map_err(StoreError::Failed)?.value;
        if !answer.succeeded() {
            return Err(self.mark_deposed());
        }
        let [active] = pairs(&answer);
        let is_bound = active.is_some_and(|active| active.lease() == lease);
        if is_alive && is_bound {
            return Ok(());
        }
        match self.rebind(epoch, replica) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.mark_deposed()),
            Err(error) => Err(StoreError::Failed(error)),
        }
    }

    fn resign(&mut self, epoch: Epoch) -> Result<(), StoreError<EtcdError>> {
        let lease = self.term_of(epoch)?.lease;
        let txn = Txn::new()
            .when([self.guard(epoch)])
            .and_then([TxnOp::delete(self.keys.active(), None)]);
        let succeeded = self.transact(txn).map_err(StoreError::Failed)?.value.succeeded();
        self.term = None;
        self.revoke(lease);
        if succeeded { Ok(()) } else { Err(StoreError::Deposed) }
    }

    fn load(&mut self) -> Result<Vec<Record>, EtcdError> {
        // Reads are as of one revision, which may be compacted meanwhile.
        for _ in 1..RACES_MAX {
            match self.read() {
                Err(error) if is_compacted(&error) => {}
                read => return read,
            }
        }
        self.read()
    }

    fn append(&mut self, epoch: Epoch, record: &Record) -> Result<(), StoreError<EtcdError>> {
        let bytes = encode(record);
        for _ in 0..RACES_MAX {
            let term = self.term_of(epoch)?;
            let (generation, number) = (term.generation, term.next);
            term.next += 1;
            if self.write(epoch, generation, number, &bytes)? {
                return Ok(());
            }
        }
        let reason = "the log was replaced again and again".to_owned();
        Err(StoreError::Failed(self.lost_race(reason)))
    }

    fn replace(&mut self, epoch: Epoch, records: &[Record]) -> Result<(), StoreError<EtcdError>> {
        self.replace_log(epoch, records)
    }
}
