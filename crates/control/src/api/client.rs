//! What the command line talks to an instance with: one request per connection, blocking.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ErrorBody;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Largest answer taken.
const MAX_ANSWER: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no instance serves {0} ({1}): start one with `linerate run`, or name its socket with --socket")]
    NoInstance(PathBuf, io::Error),
    /// This user may not connect.
    #[error("no permission to use {0}: expected root, or a member of the socket's group")]
    NotAllowed(PathBuf),
    /// The instance refused.
    #[error("{0}")]
    Refused(String),
    /// The connection broke, or what came is not what this version expects.
    #[error("the instance at {0} gave no proper answer: {1}")]
    Broken(PathBuf, String),
}

/// A client of one instance.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// A client for the instance that serves `socket`. Nothing is connected yet.
    pub fn new(socket: &Path) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Client { socket: socket.into(), runtime })
    }

    /// Asks for a view; `path` begins with `/v1/` and may carry a query.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, Bytes::new())
    }

    /// Asks for something to be done.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|e| self.broken(e))?;
        self.ask(Method::POST, path, body.into())
    }

    fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, ClientError> {
        let exchange = self.exchange(method, path, body);
        let answer = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, exchange).await });
        let (status, body) = answer.map_err(|_| self.broken("it did not answer in time"))??;
        if status != StatusCode::OK {
            let error = serde_json::from_slice::<ErrorBody>(&body).map(|e| e.error);
            return Err(ClientError::Refused(error.unwrap_or_else(|_| format!("the instance answered {status}"))));
        }
        serde_json::from_slice(&body).map_err(|e| self.broken(e))
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), ClientError> {
        let stream = tokio::net::UnixStream::connect(&self.socket).await.map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NotAllowed(self.socket.clone()),
            _ => ClientError::NoInstance(self.socket.clone(), e),
        })?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|e| self.broken(e))?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "linerate")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|e| self.broken(e))?;
        let response = sender.send_request(request).await.map_err(|e| self.broken(e))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|e| self.broken(e))?;
        Ok((status, body.to_bytes()))
    }

    fn broken(&self, why: impl ToString) -> ClientError {
        ClientError::Broken(self.socket.clone(), why.to_string())
    }
}
