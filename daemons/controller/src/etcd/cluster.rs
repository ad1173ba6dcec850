//! Calls to an etcd cluster whose members may fail.

use std::future::Future;
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions};
use tokio::runtime::{Builder, Runtime};

use super::{EtcdConfig, EtcdError};

/// Pause before another attempt: doubles from the first value to the second.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(250);

/// The members of an etcd cluster. Calls go to one member as long as it answers.
pub(super) struct Cluster {
    /// Keeps the connections alive between calls, on a thread of its own. Present until dropped.
    runtime: Option<Runtime>,
    members: Vec<Member>,
    /// Index of the member that calls go to.
    current: usize,
    deadline: Duration,
    attempt_timeout: Duration,
}

struct Member {
    endpoint: String,
    client: Client,
}

/// The result of a call.
pub(super) struct Answer<T> {
    pub(super) value: T,
    /// Whether earlier attempts were not answered: they may have taken effect as well.
    pub(super) is_repeated: bool,
}

impl Cluster {
    /// Creates the clients; no request is sent yet.
    pub(super) fn new(config: &EtcdConfig) -> Result<Self, EtcdError> {
        if config.endpoints.is_empty() {
            return Err(EtcdError::NoEndpoint);
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()
            .map_err(EtcdError::Thread)?;
        // A member that is partitioned from the others returns an error, instead of blocking.
        let options = ConnectOptions::new()
            .with_require_leader(true)
            .with_connect_timeout(config.attempt_timeout)
            .with_keep_alive(config.attempt_timeout, config.attempt_timeout);
        let members = config.endpoints.iter().map(|endpoint| {
            let connected = runtime.block_on(Client::connect([endpoint], Some(options.clone())));
            let endpoint = endpoint.clone();
            match connected {
                Ok(client) => Ok(Member { endpoint, client }),
                Err(source) => Err(EtcdError::Endpoint { endpoint, source }),
            }
        });
        let members = members.collect::<Result<_, _>>()?;
        let (deadline, attempt_timeout) = (config.deadline, config.attempt_timeout);
        Ok(Self { runtime: Some(runtime), members, current: 0, deadline, attempt_timeout })
    }

    /// Calls one member after the other until one answers or the deadline has passed.
    pub(super) fn call<T, F>(
        &mut self,
        request: impl Fn(Client) -> F,
    ) -> Result<Answer<T>, EtcdError>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let Some(runtime) = &self.runtime else {
            unreachable!("the runtime is present until dropped")
        };
        let until = Instant::now() + self.deadline;
        let mut pause = RETRY_MIN;
        let mut is_repeated = false;
        loop {
            let member = &self.members[self.current];
            let timeout = until.saturating_duration_since(Instant::now()).min(self.attempt_timeout);
            let attempt =
                async { tokio::time::timeout(timeout, request(member.client.clone())).await };
            let reason = match runtime.block_on(attempt) {
                Ok(Ok(value)) => return Ok(Answer { value, is_repeated }),
                Ok(Err(source)) if is_final(&source) => {
                    return Err(EtcdError::Refused { endpoint: member.endpoint.clone(), source });
                }
                Ok(Err(error)) => format!("{}: {}", member.endpoint, message_of(&error)),
                Err(_) => format!("{}: no answer within {timeout:?}", member.endpoint),
            };
            self.current = (self.current + 1) % self.members.len();
            is_repeated = true;
            if Instant::now() + pause >= until {
                return Err(EtcdError::Unavailable { endpoints: self.endpoints(), reason });
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(RETRY_MAX);
        }
    }

    pub(super) fn endpoints(&self) -> String {
        let endpoints: Vec<&str> =
            self.members.iter().map(|member| member.endpoint.as_str()).collect();
        endpoints.join(",")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Does not wait for calls in progress: their results are not needed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("endpoints", &self.endpoints()).finish_non_exhaustive()
    }
}

/// Returns whether another attempt would get the same error.
fn is_final(error: &etcd_client::Error) -> bool {
    use etcd_client::Error;
    // Invalid argument, not found, already exists, permission denied, failed precondition, out of
    // range, unimplemented, unauthenticated: gRPC codes that concern the request, not the state of
    // the server.
    const REQUEST_ERRORS: [i32; 8] = [3, 5, 6, 7, 9, 11, 12, 16];
    match error {
        Error::GRpcStatus(status) => REQUEST_ERRORS.contains(&i32::from(status.code())),
        Error::IoError(_) | Error::TransportError(_) | Error::WatchError(_) => false,
        _ => true,
    }
}

/// Returns whether the requested revision was compacted.
pub(super) fn is_compacted(error: &EtcdError) -> bool {
    const OUT_OF_RANGE: i32 = 11;
    let EtcdError::Refused { source: etcd_client::Error::GRpcStatus(status), .. } = error else {
        return false;
    };
    i32::from(status.code()) == OUT_OF_RANGE
}

/// Returns whether a lease has expired.
pub(super) fn is_expired(error: &EtcdError) -> bool {
    use etcd_client::Error;
    const NOT_FOUND: i32 = 5;
    match error {
        EtcdError::Refused { source: Error::LeaseKeepAliveError(_), .. } => true,
        EtcdError::Refused { source: Error::GRpcStatus(status), .. } => {
            i32::from(status.code()) == NOT_FOUND
        }
        _ => false,
    }
}

/// Returns the message of an error, without details of the transport.
fn message_of(error: &etcd_client::Error) -> String {
    match error {
        etcd_client::Error::GRpcStatus(status) => status.message().to_owned(),
        error => error.to_string(),
    }
}
