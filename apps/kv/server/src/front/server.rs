//! The sockets and threads of a front.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use super::commands::error;
use super::connection::Connection;
use super::mailbox::Mailbox;
use super::options::FrontOptions;
use super::reply::{self, Protocol};
use super::service::Service;
use super::session::Session;
use crate::backend::Backend;

/// Number of connections that the kernel accepts ahead of the front.
const BACKLOG: i32 = 1_024;
/// Time after which accepting is tried again, for instance when there are no file descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Why a front cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FrontError {
    /// The front cannot listen at the address.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// A thread of the front cannot start.
    #[error("cannot start a thread of the front")]
    Thread(#[source] io::Error),
}

/// A front that serves clients. It stops when it is dropped.
pub struct Front {
    local_address: SocketAddr,
    stop: Option<watch::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Front {
    /// Returns the address at which the front listens, with the port that the system has chosen if
    /// the given one was 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_address
    }

    /// Closes all connections and waits for the threads to end. Transactions in flight are still
    /// executed, without replies to their clients.
    pub fn stop(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.stop = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the front has panicked");
            }
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.join();
    }
}

/// A connection on its path from the acceptor to its thread.
type Accepted = (TcpStream, Connection);

/// Starts a front that listens at `address` and executes with `backend`.
///
/// Each thread serves its connections with an event loop of its own, so that a connection never
/// changes threads and takes no lock besides those of the backend. A thread that is busy finds the
/// replies of several transactions at once and needs no wake-up for each. The number of threads is
/// half the number of cores: the others are for the fabric.
///
/// # Errors
/// [`FrontError`] if the address is in use, or if the system has no memory for threads.
pub fn serve(
    address: SocketAddr,
    backend: Arc<dyn Backend>,
    options: FrontOptions,
) -> Result<Front, FrontError> {
    let listener = listen(address).map_err(|source| FrontError::Listen { address, source })?;
    let local = listener.local_addr();
    let local_address = local.map_err(|source| FrontError::Listen { address, source })?;
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
        threads => threads,
    };
    let service = Service::new(backend, options, local_address);
    let (stop, stopped) = watch::channel(());
    // The front ends the threads that have started if another one cannot.
    let mut front = Front { local_address, stop: Some(stop), threads: Vec::new() };
    let mut workers = Vec::new();
    for index in 0..threads {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (service, stopped) = (service.clone(), stopped.clone());
        let mailbox = Arc::new(Mailbox::default());
        let work = work(receiver, service, Arc::clone(&mailbox), stopped);
        front.start(format!("resp-{index}"), mailbox, work)?;
        workers.push(sender);
    }
    // No transaction is begun by the acceptor.
    let mailbox = Arc::default();
    front.start("resp-accept".into(), mailbox, accept(listener, service, workers, stopped))?;
    Ok(front)
}

impl Front {
    fn start(
        &mut self,
        name: String,
        mailbox: Arc<Mailbox>,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), FrontError> {
        let runtime = runtime(mailbox).map_err(FrontError::Thread)?;
        let thread = std::thread::Builder::new().name(name);
        let thread = thread.spawn(move || runtime.block_on(future));
        self.threads.push(thread.map_err(FrontError::Thread)?);
        Ok(())
    }
}

/// Makes the event loop of a thread, which looks into `mailbox` before it sleeps.
fn runtime(mailbox: Arc<Mailbox>) -> io::Result<Runtime> {
    let woken = Arc::clone(&mailbox);
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_park(move || mailbox.before_sleep())
        .on_thread_unpark(move || woken.after_sleep())
        .build()
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Accepts connections and passes them to the workers in turn.
async fn accept(
    listener: std::net::TcpListener,
    service: Arc<Service>,
    workers: Vec<mpsc::UnboundedSender<Accepted>>,
    mut stopped: watch::Receiver<()>,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot accept connections"),
    };
    let mut workers = workers.iter().cycle();
    loop {
        let accepted = tokio::select! {
            _ = stopped.changed() => return,
            accepted = listener.accept() => accepted,
        };
        let result = match accepted {
            Ok((socket, address)) => match Connection::open(&service, address) {
                Some(connection) => {
                    let worker = workers.next();
                    socket.into_std().map(|socket| {
                        // A worker that has ended has been stopped, as will be the acceptor.
                        worker.map(|worker| worker.send((socket, connection)).ok());
                    })
                }
                None => {
                    refuse(&socket);
                    Ok(())
                }
            },
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            tracing::warn!(%error, "a connection was not accepted");
            tokio::time::sleep(ACCEPT_RETRY).await;
        }
    }
}

/// Sends the error of Redis. A new socket has enough space for it.
fn refuse(socket: &tokio::net::TcpStream) {
    let mut output = Vec::new();
    let reply = error("ERR max number of clients reached");
    reply::encode(&reply, Protocol::Resp2, &mut output);
    if let Err(error) = socket.try_write(&output) {
        tracing::debug!(%error, "a client was not notified that there are too many");
    }
}

/// Serves the connections that the acceptor passes.
async fn work(
    mut accepted: mpsc::UnboundedReceiver<Accepted>,
    service: Arc<Service>,
    mailbox: Arc<Mailbox>,
    mut stopped: watch::Receiver<()>,
) {
    let replies = Arc::clone(&mailbox);
    tokio::spawn(async move { replies.pass_on().await });
    loop {
        let (socket, connection) = tokio::select! {
            _ = stopped.changed() => return,
            accepted = accepted.recv() => match accepted {
                Some(accepted) => accepted,
                None => return,
            },
        };
        let socket =
            socket.set_nodelay(true).and_then(|()| tokio::net::TcpStream::from_std(socket));
        match socket {
            Ok(socket) => {
                let backend = service.backend.clone();
                let session = Session::new(socket, connection, backend, mailbox.clone());
                tokio::spawn(async move {
                    if let Err(error) = session.await {
                        tracing::debug!(%error, "a client has left");
                    }
                });
            }
            Err(error) => tracing::warn!(%error, "a connection was not accepted"),
        }
    }
}
