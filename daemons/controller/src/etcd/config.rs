//! The configuration and the errors of the etcd store.

use std::time::Duration;

use onepipe_controller::RecordError;

/// The address of an etcd cluster and the timeouts of calls to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Client addresses of its members, like `http://10.0.0.1:2379`. At least one; all of them, if
    /// the store is to survive the loss of a member.
    pub endpoints: Vec<String>,
    /// Prefix of all keys of this fabric. Default `/onepipe/default/`: two fabrics on one etcd need
    /// two.
    pub prefix: String,
    /// Lease of an active replica that does not renew, in whole seconds. At least 1, default 5.
    /// etcd raises it to one and a half of its own election timeouts.
    pub lease_ttl_s: u32,
    /// Deadline of one call of the store, with all attempts. Default 5 s: an etcd that has lost its
    /// leader has a new one in one or two.
    pub deadline: Duration,
    /// Timeout of one attempt at one member. Default 1 s.
    pub attempt_timeout: Duration,
}

impl EtcdConfig {
    /// Returns the defaults for a cluster with these members.
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

/// Why an operation of the etcd store has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// The configuration names no member.
    #[error("no etcd endpoint is configured")]
    NoEndpoint,
    /// A configured member is no valid address.
    #[error("{endpoint:?} is not a valid etcd endpoint")]
    Endpoint {
        /// As configured.
        endpoint: String,
        /// The cause.
        source: etcd_client::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for the etcd client")]
    Thread(#[source] std::io::Error),
    /// No member has answered in time: the network is down, or the cluster has no quorum. The call
    /// may be repeated at any time.
    #[error("etcd at {endpoints} is unavailable: {reason}")]
    Unavailable {
        /// All members.
        endpoints: String,
        /// The error of the last attempt.
        reason: String,
    },
    /// A member has answered with an error.
    #[error("etcd at {endpoint} rejected the request")]
    Refused {
        /// The member.
        endpoint: String,
        /// Its error.
        source: etcd_client::Error,
    },
    /// Another program has written under the prefix.
    #[error("the etcd key {key:?} does not belong to a controller: {value:?}")]
    Foreign {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A record is not readable by this version.
    #[error("the record under etcd key {key:?} is unreadable")]
    Record {
        /// Its key.
        key: String,
        /// The cause.
        source: RecordError,
    },
}
