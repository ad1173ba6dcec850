//! Accepts clients.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onepipe_block::{Connection, Export, ExportError};
use socket2::{Socket, TcpKeepalive};

use crate::address::Address;
use crate::blocks::Blocks;
use crate::options::ServerOptions;
use crate::session::Session;
use crate::stats::{Counters, ServerStats};

/// Time without traffic after which a host is asked whether it is still there, the time between
/// two such questions, and their number. A host that has vanished holds a connection for 2 min.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);
/// Pause after a failed accept: the system has no descriptor left, and others must end first.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The protocol does not allow such a device.
    #[error("cannot export the device")]
    Export(#[from] ExportError),
    /// The address is not free.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: Address,
        /// The error of the system.
        source: io::Error,
    },
    /// The system has no thread left.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// A server that runs until it is stopped or dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: Address,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    listener: Socket,
    is_tcp: bool,
    blocks: Arc<dyn Blocks>,
    export: Export,
    options: ServerOptions,
    counters: Arc<Counters>,
    sessions: Mutex<Sessions>,
    /// Signalled when a session ends.
    ended: Condvar,
    is_stopping: AtomicBool,
}

#[derive(Default)]
struct Sessions {
    running: BTreeMap<u64, Arc<Session>>,
    /// Sessions so far.
    started: u64,
}

/// Serves a device to NBD clients.
///
/// # Errors
/// If the address is not free, or the device has a size that the protocol does not allow.
pub fn serve(
    address: &Address,
    blocks: Arc<dyn Blocks>,
    options: ServerOptions,
) -> Result<Server, ServeError> {
    let export = Export {
        name: options.export_name.clone(),
        description: options.description.clone(),
        size: blocks.size(),
        is_read_only: blocks.is_read_only(),
        is_flush_shared: blocks.is_flush_shared(),
        knows_allocation: blocks.knows_allocation(),
        block_sizes: blocks.block_sizes(),
    };
    export.check()?;
    let (listener, bound) = address
        .listen()
        .map_err(|source| ServeError::Listen { address: address.clone(), source })?;
    let shared = Arc::new(Shared {
        listener,
        is_tcp: matches!(bound, Address::Tcp(_)),
        blocks,
        export,
        options,
        counters: Arc::default(),
        sessions: Mutex::default(),
        ended: Condvar::new(),
        is_stopping: AtomicBool::new(false),
    });
    let acceptor = {
        let shared = Arc::clone(&shared);
        spawn("nbd-accept", move || accept(&shared)).map_err(ServeError::Thread)?
    };
    Ok(Server { shared, address: bound, acceptor: Some(acceptor) })
}

impl Server {
    /// Returns the address at which clients connect.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the number of connections at this time.
    pub fn connections(&self) -> usize {
        self.shared.lock().running.len()
    }

    /// Returns the counters.
    pub fn stats(&self) -> ServerStats {
        let connections = self.shared.lock().started;
        self.shared.counters.read(connections)
    }

    /// Stops: no client is accepted, requests in flight are completed as long as the options say,
    /// and all clients are disconnected. Returns the counters at the end.
    pub fn stop(self) -> ServerStats {
        let shared = Arc::clone(&self.shared);
        drop(self);
        let connections = shared.lock().started;
        shared.counters.read(connections)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.is_stopping.store(true, Ordering::Release);
        // Ends the wait in `accept`, on Linux.
        if let Err(error) = self.shared.listener.shutdown(Shutdown::Both) {
            tracing::warn!(%error, "cannot close the socket that listens");
        }
        if acceptor.join().is_err() {
            tracing::error!("the thread that accepts NBD clients has panicked");
        }
        self.address.remove();
        self.shared.end_sessions();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_sessions(&self) {
        for phase in [Session::shut_down, Session::disconnect] {
            let running: Vec<_> = self.lock().running.values().cloned().collect();
            for session in running {
                phase(&session);
            }
            if self.has_ended(Instant::now() + self.options.stop_timeout) {
                return;
            }
        }
        tracing::error!("the device does not complete requests of NBD clients that are gone");
    }

    /// Waits until all sessions have ended. Returns whether they have.
    fn has_ended(&self, deadline: Instant) -> bool {
        let mut sessions = self.lock();
        while !sessions.running.is_empty() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            let waited = self.ended.wait_timeout(sessions, left);
            sessions = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Serves a client on a thread of its own.
    fn start(self: &Arc<Shared>, socket: Socket) -> io::Result<()> {
        if self.is_tcp {
            let (time, interval, retries) = KEEPALIVE;
            let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval);
            socket.set_tcp_keepalive(&keepalive.with_retries(retries))?;
            // A reply does not wait for the acknowledgement of an earlier one.
            socket.set_tcp_nodelay(true)?;
        }
        let connection = Connection::new(self.export.clone(), self.options.connection);
        let connection = connection.expect("the export was checked when the server started");
        let session = Arc::new(Session::new(connection, socket, Arc::clone(&self.counters)));
        let id = {
            let mut sessions = self.lock();
            if sessions.running.len() >= self.options.connections_max {
                let max = self.options.connections_max;
                tracing::warn!(connections_max = max, "an NBD client is disconnected: too many");
                return Ok(());
            }
            let id = sessions.started;
            sessions.started += 1;
            sessions.running.insert(id, Arc::clone(&session));
            id
        };
        let running = Running { shared: Arc::clone(self), id };
        spawn("nbd-reader", move || {
            let shared = &running.shared;
            let timeout = shared.options.handshake_timeout;
            if let Err(error) = session.run(&*shared.blocks, timeout) {
                tracing::error!(%error, "cannot serve an NBD client");
            }
            drop(running);
        })?;
        Ok(())
    }
}

/// Counts a session as running until it is dropped.
struct Running {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.lock().running.remove(&self.id);
        self.shared.ended.notify_all();
    }
}

fn accept(shared: &Arc<Shared>) {
    while !shared.is_stopping.load(Ordering::Acquire) {
        let started = shared.listener.accept().and_then(|(socket, _)| shared.start(socket));
        if let Err(error) = started
            && !shared.is_stopping.load(Ordering::Acquire)
        {
            tracing::warn!(%error, "cannot accept an NBD client");
            thread::sleep(ACCEPT_BACKOFF);
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}
