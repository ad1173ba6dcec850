//! A connection with its socket.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use onepipe_kv::Command;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Sleep;

use super::connection::Connection;
use super::mailbox::Mailbox;
use crate::backend::{Backend, BackendError, Replies};

/// Number of bytes that are read at once.
const READ_MAX: usize = 64 << 10;
/// Time for which a closed connection waits until the client has read its last replies. If the
/// socket were closed while bytes of the client are unread, the system would drop the replies.
const LINGER: Duration = Duration::from_secs(1);

thread_local! {
    /// The buffer of all connections of the thread, so that an idle connection has none.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_MAX]);
}

/// Drives a connection with its socket. The future ends when the socket is to be closed.
pub(super) struct Session {
    socket: TcpStream,
    connection: Connection,
    backend: Arc<dyn Backend>,
    mailbox: Arc<Mailbox>,
    replies: Option<oneshot::Receiver<Replies>>,
    /// Whether the output has replies to a transaction. Without them it waits for those to the
    /// transaction in flight, so that `MULTI` to `EXEC`, sent at once, are answered at once.
    has_replies: bool,
    /// Whether the client sends no further bytes. Its last requests are still answered.
    is_input_over: bool,
    /// The end of the time in which bytes of the client are read and dropped.
    linger: Option<Pin<Box<Sleep>>>,
}

impl Session {
    pub(super) fn new(
        socket: TcpStream,
        connection: Connection,
        backend: Arc<dyn Backend>,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        Self {
            socket,
            connection,
            backend,
            mailbox,
            replies: None,
            has_replies: false,
            is_input_over: false,
            linger: None,
        }
    }

    /// Takes the replies of the transaction in flight, if they are there.
    fn poll_replies(&mut self, cx: &mut Context<'_>) {
        let Some(receiver) = &mut self.replies else { return };
        if let Poll::Ready(replies) = Pin::new(receiver).poll(cx) {
            (self.replies, self.has_replies) = (None, true);
            let dropped = |_| Err(BackendError::Ended("the transaction has no outcome".into()));
            self.connection.handle_replies(replies.unwrap_or_else(dropped));
        }
    }

    fn begin(&mut self, commands: Vec<Command>) {
        let (sender, receiver) = oneshot::channel();
        self.replies = Some(receiver);
        let mailbox = Arc::clone(&self.mailbox);
        let on_replies = move |replies| mailbox.put((sender, replies));
        self.backend.begin(commands, Box::new(on_replies));
    }

    /// Sends until nothing is left, or until the socket is full. Returns whether bytes were sent.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.replies.is_some() && !self.has_replies {
            return Ok(false);
        }
        let mut has_sent = false;
        while !self.connection.output().is_empty() {
            match Pin::new(&mut self.socket).poll_write(cx, self.connection.output()) {
                Poll::Ready(count) => self.connection.handle_sent(count?),
                Poll::Pending => break,
            }
            has_sent = true;
        }
        self.has_replies &= !self.connection.output().is_empty();
        Ok(has_sent)
    }

    /// Notifies the client that there are no further replies, and reads what it sends until it
    /// closes the socket, too.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_first = self.linger.is_none();
        if is_first {
            ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
        }
        let timer = self.linger.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if timer.as_mut().poll(cx).is_ready() {
            self.is_input_over = true;
            return Poll::Ready(Ok(()));
        }
        self.poll_receive(cx)
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
            self.is_input_over = buffer.filled().is_empty();
            self.connection.handle_input(buffer.filled());
            Poll::Ready(Ok(()))
        })
    }
}

impl Future for Session {
    type Output = io::Result<()>;

    /// Advances until the next step waits for the backend or for the socket. Each step that cannot
    /// proceed has registered the waker.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let session = self.get_mut();
        loop {
            session.poll_replies(cx);
            if session.replies.is_none()
                && let Some(commands) = session.connection.poll_transaction()
            {
                session.begin(commands);
                continue;
            }
            if session.poll_send(cx)? {
                // Requests that waited until the output is sent can be executed.
                continue;
            }
            let is_answered = session.replies.is_none() && session.connection.output().is_empty();
            if is_answered && (session.is_input_over || session.connection.has_overflowed()) {
                return Poll::Ready(Ok(()));
            }
            if is_answered && session.connection.is_closed() {
                ready!(session.poll_linger(cx))?;
                continue;
            }
            if session.is_input_over || !session.connection.wants_input() {
                return Poll::Pending;
            }
            ready!(session.poll_receive(cx))?;
        }
    }
}
