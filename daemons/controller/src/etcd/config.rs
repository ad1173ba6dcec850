//! Which etcd, and how patient to be with it.

use std::time::Duration;

use onepipe_controller::RecordError;

/// Where the etcd cluster is and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// The client addresses of its members, like `http://10.0.0.1:2379`. At least one; all of them,
    /// if the store is to go on without one.
    pub endpoints: Vec<String>,
    /// What the keys of this fabric begin with. Default `/onepipe/default/`: two fabrics on one
    /// etcd need two.
    pub prefix: String,
    /// How long an active replica that says nothing stays active, in whole seconds. At least 1,
    /// default 5. etcd raises it to one and a half of its own election timeouts.
    pub lease_ttl_s: u32,
    /// How long one call of the store may take in all, with all repetitions. Default 5 s: an etcd
    /// that has lost its leader has a new one in one or two.
    pub deadline: Duration,
    /// How long one member is waited for before the next one is asked. Default 1 s.
    pub attempt_timeout: Duration,
}

impl EtcdConfig {
    /// The defaults for a cluster with these members.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: "/onepipe/default/".to_owned(),
            lease_ttl_s: 5,
            deadline: Duration::from_secs(5),
            attempt_timeout: Duration::from_secs(1),
        }
    }
}

/// Why an etcd does not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// The configuration names no member.
    #[error("no etcd endpoint is configured")]
    NoEndpoint,
    /// What the configuration names is no address.
    #[error("{endpoint:?} is no etcd endpoint")]
    Endpoint {
        /// As configured.
        endpoint: String,
        /// What is wrong with it.
        source: etcd_client::Error,
    },
    /// The system gives it no thread.
    #[error("cannot start a thread for the etcd client")]
    Thread(#[source] std::io::Error),
    /// No member has answered in time: the network is cut, or the cluster has no quorum. It may be
    /// asked again at any time.
    #[error("etcd at {endpoints} is unavailable: {reason}")]
    Unavailable {
        /// All of them.
        endpoints: String,
        /// What the one asked last has said.
        reason: String,
    },
    /// It has answered, and will not do it.
    #[error("etcd at {endpoint} refuses")]
    Refused {
        /// The member asked.
        endpoint: String,
        /// What it says.
        source: etcd_client::Error,
    },
    /// Something else has written under the prefix.
    #[error("the etcd key {key:?} does not belong to a controller: {value:?}")]
    Foreign {
        /// Which key.
        key: String,
        /// What it holds.
        value: String,
    },
    /// It holds a record that this version cannot read.
    #[error("the record under etcd key {key:?} is unreadable")]
    Record {
        /// Its key.
        key: String,
        /// What is wrong with it.
        source: RecordError,
    },
}
