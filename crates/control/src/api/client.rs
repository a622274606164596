//! What the command line talks to an instance with: one request per connection, blocking.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ErrorBody;
use super::listen::not_ours;
use crate::config::{ROOT_SOCKETS, shared_directory};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Largest answer taken.
const MAX_ANSWER: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no instance serves {socket}{}: {}", ended(.error), advice(.beside, *.roots))]
    NoInstance {
        /// Where one was looked for.
        socket: PathBuf,
        /// What the kernel said.
        error: io::Error,
        /// Names of those that serve sockets in the same directory.
        beside: Vec<String>,
        /// Root's instances may be the ones that are meant, and this user is not root.
        roots: bool,
    },
    /// This user may not connect.
    #[error("no permission to use {0}: expected root, or a member of the socket's group")]
    NotAllowed(PathBuf),
    /// Somebody else can put a socket there.
    #[error("{0} is not this user's alone: what answers there may be anybody's; name a socket with --socket")]
    NotOurs(PathBuf),
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
            return Err(ClientError::Refused(
                error.unwrap_or_else(|_| format!("the instance answered {status}")),
            ));
        }
        serde_json::from_slice(&body).map_err(|e| self.broken(e))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        if let Some(shared) = not_ours(&self.socket, &shared_directory()) {
            return Err(ClientError::NotOurs(shared));
        }
        let stream = tokio::net::UnixStream::connect(&self.socket).await.map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NotAllowed(self.socket.clone()),
            _ => ClientError::NoInstance {
                beside: beside(&self.socket),
                roots: !nix::unistd::geteuid().is_root() && Path::new(ROOT_SOCKETS).exists(),
                socket: self.socket.clone(),
                error: e,
            },
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
        let body =
            Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|e| self.broken(e))?;
        Ok((status, body.to_bytes()))
    }

    fn broken(&self, why: impl ToString) -> ClientError {
        ClientError::Broken(self.socket.clone(), why.to_string())
    }
}

/// Names of the instances that answer in the directory of `socket`, so that nobody has to remember what they were called.
fn beside(socket: &Path) -> Vec<String> {
    let Some(Ok(entries)) = socket.parent().map(std::fs::read_dir) else { return Vec::new() };
    let paths = entries.flatten().map(|e| e.path());
    let mut names: Vec<_> = paths
        .filter(|p| p.extension().is_some_and(|e| e == "sock") && UnixStream::connect(p).is_ok())
        .filter_map(|p| Some(p.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    names
}

/// A socket without a process is worth a word; that there is none goes without saying.
fn ended(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => String::new(),
        io::ErrorKind::ConnectionRefused => " (its process has ended)".into(),
        _ => format!(" ({error})"),
    }
}

fn advice(beside: &[String], roots: bool) -> String {
    if !beside.is_empty() {
        return format!("name one that runs with --instance: {}", beside.join(", "));
    }
    let root = if roots { format!("; root's are in {ROOT_SOCKETS}: use sudo") } else { String::new() };
    format!("start one with `linerate run`, or name its socket with --socket{root}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_what_runs_and_where_root_has_its_own() {
        let start = "start one with `linerate run`, or name its socket with --socket";
        assert_eq!(advice(&[], false), start);
        assert_eq!(advice(&[], true), format!("{start}; root's are in /run/linerate: use sudo"));
        assert_eq!(
            advice(&["edge".into(), "lab".into()], true),
            "name one that runs with --instance: edge, lab"
        );
    }
}
