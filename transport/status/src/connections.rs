//! The connections of HTTP clients: a limit of their number, and of their time.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// Maximum number of open connections: a fabric has a few monitors.
pub(crate) const CONNECTIONS_MAX: usize = 32;
/// Maximum time from the begin of a connection to its end: a client that sends its request or reads
/// the response more slowly is cut off. A monitor that keeps its connection opens another one.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept: file descriptors may be in short supply.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Counters of connections that were cut off.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounters {
    refused: AtomicU64,
    timed_out: AtomicU64,
}

impl ConnectionCounters {
    /// Returns the number of connections refused because too many were open.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of connections closed because they took too long.
    pub(crate) fn timed_out(&self) -> u64 {
        self.timed_out.load(Ordering::Relaxed)
    }
}

/// A listener whose connections have both limits.
#[derive(Debug)]
pub(crate) struct LimitedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    timeout: Duration,
    counters: Arc<ConnectionCounters>,
}

impl LimitedListener {
    pub(crate) fn new(listener: TcpListener, counters: Arc<ConnectionCounters>) -> Self {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self { listener, permits, timeout: CONNECTION_TIMEOUT, counters }
    }
}

impl Listener for LimitedListener {
    type Io = LimitedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedStream, SocketAddr) {
        loop {
            let Ok((stream, addr)) = self.listener.accept().await else {
                sleep(ACCEPT_RETRY).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let deadline = Box::pin(sleep(self.timeout));
            let counters = Arc::clone(&self.counters);
            return (LimitedStream { stream, deadline, counters, _permit: permit }, addr);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails at its deadline.
#[derive(Debug)]
pub(crate) struct LimitedStream {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    counters: Arc<ConnectionCounters>,
    /// Returned to the listener when the connection ends.
    _permit: OwnedSemaphorePermit,
}

impl LimitedStream {
    /// Fails once the deadline has passed; otherwise the task is woken then.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.deadline.is_elapsed() || self.deadline.as_mut().poll(cx).is_ready() {
            self.counters.timed_out.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read;
    use std::net::TcpStream as BlockingStream;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(test);
    }

    async fn listener(timeout: Duration) -> (LimitedListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("a port");
        let listener = LimitedListener::new(listener, Arc::default());
        (LimitedListener { timeout, ..listener }, addr)
    }

    #[test]
    fn slow_client_is_cut_off() {
        run(async {
            let (mut listener, addr) = listener(Duration::from_millis(10)).await;
            let mut client = BlockingStream::connect(addr).expect("it listens");
            let (mut stream, _) = listener.accept().await;
            let mut bytes = [0];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut buffer));
            let error = read.await.expect_err("the client sends nothing");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            drop(stream);
            assert_eq!(client.read(&mut [0]).expect("closed"), 0);
            assert_eq!(listener.counters.timed_out(), 1);
            assert_eq!(listener.permits.available_permits(), CONNECTIONS_MAX);
        });
    }

    #[test]
    fn connections_have_a_limit() {
        run(async {
            let (mut listener, addr) = listener(Duration::from_secs(1000)).await;
            let connect = || BlockingStream::connect(addr).expect("it listens");
            let mut open = Vec::new();
            for _ in 0..CONNECTIONS_MAX {
                open.push((connect(), listener.accept().await));
            }
            let mut refused = connect();
            while listener.counters.refused() == 0 {
                let accept = tokio::time::timeout(Duration::from_millis(10), listener.accept());
                assert!(accept.await.is_err(), "nothing is accepted");
            }
            assert_eq!(refused.read(&mut [0]).expect("closed"), 0);
            drop(open.pop());
            let _next = connect();
            listener.accept().await;
            assert_eq!(listener.counters.refused(), 1);
        });
    }
}
