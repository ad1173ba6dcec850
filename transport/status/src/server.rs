//! The HTTP server of the status.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use onepipe_transport_driver::Doorbell;
use tokio::sync::oneshot;

use crate::connections::{ConnectionCounters, LimitedListener};
use crate::{Status, metrics};

/// How long an HTTP request waits for the daemon's report.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The reply channel of one pending request.
type StatusRequest<S> = oneshot::Sender<S>;

/// Pending requests for a report, as the daemon sees them.
#[derive(Debug)]
pub struct StatusRequests<S>(Receiver<StatusRequest<S>>);

impl<S> StatusRequests<S> {
    /// Responds to all pending requests.
    pub fn respond(&self, mut report: impl FnMut() -> S) {
        while let Ok(reply) = self.0.try_recv() {
            // The HTTP client may have gone; then the report is dropped.
            let _ = reply.send(report());
        }
    }
}

/// The server's end of the channel to the daemon.
#[derive(Clone)]
struct RequestSender<S> {
    requests: Sender<StatusRequest<S>>,
    doorbell: Doorbell,
    counters: Arc<ConnectionCounters>,
}

/// The server's thread; dropping the value stops it.
#[derive(Debug)]
pub struct Server {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves HTTP at `listener`. Each request rings `doorbell` to wake the daemon.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start<S: Status>(
        listener: TcpListener,
        doorbell: Doorbell,
    ) -> io::Result<(Self, StatusRequests<S>)> {
        let (requests, receiver) = channel();
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel::<()>();
        let counters = Arc::new(ConnectionCounters::default());
        let connection_counters = Arc::clone(&counters);
        let routes = Router::new()
            .route("/status", get(status::<S>))
            .route("/metrics", get(metrics_text::<S>))
            .with_state(RequestSender { requests, doorbell, counters });
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let listener = LimitedListener::new(listener, connection_counters);
            // Open connections are closed when the server stops.
            tokio::select! {
                served = axum::serve(listener, routes) => served,
                _ = ended => Ok(()),
            }
        };
        let thread = std::thread::Builder::new().name("status".to_owned()).spawn(move || {
            // Errors concern single connections and are their clients' affair.
            let _ = runtime.block_on(serve);
        })?;
        Ok((Self { end: Some(end), thread: Some(thread) }, StatusRequests(receiver)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Binds a listener at `listen` and returns it with its address.
///
/// # Errors
/// If the system refuses the address.
pub fn bind(listen: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(listen)?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

async fn request_report<S: Status>(sender: &RequestSender<S>) -> Result<S, StatusCode> {
    let (reply, response) = oneshot::channel();
    sender.requests.send(reply).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    sender.doorbell.ring();
    match tokio::time::timeout(RESPONSE_TIMEOUT, response).await {
        Ok(Ok(report)) => Ok(report),
        _ => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

async fn status<S: Status>(State(sender): State<RequestSender<S>>) -> Result<Response, StatusCode> {
    let report = request_report(&sender).await?;
    let text = serde_json::to_string(&report).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

async fn metrics_text<S: Status>(
    State(sender): State<RequestSender<S>>,
) -> Result<Response, StatusCode> {
    let report = request_report(&sender).await?;
    let text = metrics::encode_with_connections(report, Arc::clone(&sender.counters));
    let text = text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}
