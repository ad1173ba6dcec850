//! One client: a thread that reads and begins requests, and one that sends replies.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use onepipe_block::{Connection, Request};
use socket2::Socket;

use crate::blocks::{Blocks, Completion};
use crate::stats::Counters;

/// Length of the buffer that a thread reads into.
const READ_LEN: usize = 256 << 10;

/// A client's connection and its socket.
pub struct Session {
    connection: Mutex<Connection>,
    /// Signalled after each change of the connection.
    changed: Condvar,
    socket: Socket,
    counters: Arc<Counters>,
}

/// What a reader does next.
enum Next {
    Begin(Vec<Request>),
    Read { is_transmitting: bool },
    End,
}

impl Session {
    /// Takes over a socket.
    pub fn new(connection: Connection, socket: Socket, counters: Arc<Counters>) -> Session {
        let connection = Mutex::new(connection);
        Session { connection, changed: Condvar::new(), socket, counters }
    }

    /// Serves the client until the session ends.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn run(
        self: &Arc<Session>,
        blocks: &dyn Blocks,
        handshake_timeout: Duration,
    ) -> io::Result<()> {
        let writer = {
            let session = Arc::clone(self);
            thread::Builder::new().name("nbd-writer".into()).spawn(move || session.write())?
        };
        self.read(blocks, Instant::now() + handshake_timeout);
        if writer.join().is_err() {
            tracing::error!("the writer of an NBD connection has panicked");
        }
        Ok(())
    }

    /// Accepts no further request; the session ends when those in flight are complete.
    pub fn shut_down(&self) {
        self.change(Connection::handle_shutdown);
    }

    /// Disconnects the client.
    pub fn disconnect(&self) {
        // An error means that it is disconnected already.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.change(Connection::handle_output_end);
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic in another thread of the session does not make the connection unusable: its
        // methods assert before they change anything.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Connection)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn read(self: &Arc<Session>, blocks: &dyn Blocks, handshake_deadline: Instant) {
        let mut buffer = vec![0; READ_LEN];
        let mut was_transmitting = false;
        loop {
            match self.next() {
                Next::Begin(requests) => {
                    for request in requests {
                        self.begin(request, blocks);
                    }
                }
                Next::Read { is_transmitting } => {
                    // The time of the handshake is limited, and that between requests is not.
                    let is_limited = match is_transmitting {
                        true if was_transmitting => Ok(()),
                        true => self.socket.set_read_timeout(None),
                        false => self.limit_read(handshake_deadline),
                    };
                    was_transmitting = is_transmitting;
                    match is_limited.and_then(|()| self.read_some(&mut buffer)) {
                        Ok(0) => self.change(Connection::handle_input_end),
                        Ok(count) => {
                            self.change(|connection| connection.handle_input(&buffer[..count]));
                        }
                        Err(error) => {
                            tracing::debug!(%error, "cannot read from an NBD client");
                            self.change(Connection::handle_input_end);
                        }
                    }
                }
                Next::End => return,
            }
        }
    }

    fn limit_read(&self, deadline: Instant) -> io::Result<()> {
        match deadline.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => self.socket.set_read_timeout(Some(left)),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn read_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.socket).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Waits until there are requests to begin, there is a reason to read, or the session ends.
    fn next(&self) -> Next {
        let mut connection = self.lock();
        loop {
            let requests: Vec<Request> = std::iter::from_fn(|| connection.poll_request()).collect();
            if !requests.is_empty() {
                return Next::Begin(requests);
            }
            if connection.end().is_some() {
                return Next::End;
            }
            if connection.wants_input() {
                return Next::Read { is_transmitting: connection.is_transmitting() };
            }
            connection = self.changed.wait(connection).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Begins a request without holding the lock: its completion takes it.
    fn begin(self: &Arc<Session>, request: Request, blocks: &dyn Blocks) {
        let session = Arc::clone(self);
        let id = request.id;
        self.counters.on_begin(&request.command);
        let completion = Completion::new(move |reply| {
            session.counters.on_reply(&reply);
            session.change(|connection| connection.handle_reply(id, reply));
        });
        blocks.begin(request.command, completion);
    }

    fn write(&self) {
        while let Some(bytes) = self.next_output() {
            match (&self.socket).write_all(&bytes) {
                Ok(()) => self.change(|connection| connection.handle_sent(bytes.len())),
                Err(error) => {
                    tracing::debug!(%error, "cannot send to an NBD client");
                    self.disconnect();
                }
            }
        }
        if let Some(end) = self.lock().end() {
            tracing::debug!(%end, "an NBD connection has ended");
        }
        // Wakes the reader, too. An error means that the client has closed the connection.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Waits for bytes to send. Returns `None` when the connection is closed.
    fn next_output(&self) -> Option<Vec<u8>> {
        let mut connection = self.lock();
        loop {
            if let Some(bytes) = connection.poll_output() {
                return Some(bytes);
            }
            if connection.is_closed() {
                return None;
            }
            connection = self.changed.wait(connection).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
