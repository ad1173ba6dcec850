//! The status, over HTTP.

use std::io;
use std::net::{SocketAddr, TcpListener};
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

use crate::{Status, metrics};

/// How long the daemon has to say how it is: it has other things to do, but not for that long.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Somebody wants to know.
type StatusRequest<S> = oneshot::Sender<S>;

/// What the daemon is asked.
#[derive(Debug)]
pub struct StatusRequests<S>(Receiver<StatusRequest<S>>);

impl<S> StatusRequests<S> {
    /// Answers all that were asked until now.
    pub fn respond(&self, mut report: impl FnMut() -> S) {
        while let Ok(reply) = self.0.try_recv() {
            // Who has asked may not wait any more.
            let _ = reply.send(report());
        }
    }
}

/// How questions reach the daemon.
#[derive(Clone)]
struct RequestSender<S> {
    requests: Sender<StatusRequest<S>>,
    doorbell: Doorbell,
}

/// A thread that answers until it is dropped.
#[derive(Debug)]
pub struct Server {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers at `listener`. The daemon is woken by `doorbell` when somebody asks.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start<S: Status>(
        listener: TcpListener,
        doorbell: Doorbell,
    ) -> io::Result<(Self, StatusRequests<S>)> {
        let (requests, receiver) = channel();
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel::<()>();
        let routes = Router::new()
            .route("/status", get(status::<S>))
            .route("/metrics", get(metrics_text::<S>))
            .with_state(RequestSender { requests, doorbell });
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            // Who still waits for an answer loses the connection.
            tokio::select! {
                served = axum::serve(listener, routes) => served,
                _ = ended => Ok(()),
            }
        };
        let thread = std::thread::Builder::new().name("status".to_owned()).spawn(move || {
            // It serves without end; what a connection comes to is between it and its client.
            let _ = runtime.block_on(serve);
        })?;
        Ok((Self { end: Some(end), thread: Some(thread) }, StatusRequests(receiver)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by its thread.
            let _ = thread.join();
        }
    }
}

/// Where `listen` is, once it is bound.
///
/// # Errors
/// When the system does not give it.
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
    let text = metrics::encode_metrics(report).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}
