//! Taking the sockets: a stale Unix socket is replaced, a live one is an error.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};

use crate::config::{ApiSpec, shared_directory};

/// Least bytes of a token.
const MIN_TOKEN: usize = 16;

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another instance serves there.
    #[error(
        "an instance already serves {0}: stop it, or give this one another `dpdk.file_prefix` or `api.socket`"
    )]
    InUse(PathBuf),
    /// Something that is no socket is there.
    #[error("{0} exists and is not a socket: expected no file, or the socket of an instance that has ended")]
    NotASocket(PathBuf),
    /// Somebody else can put a socket there.
    #[error(
        "{0} is not this user's alone: remove it, or name another place with `api.socket` (it takes the place of a runtime \
         directory, and whoever made it could answer for instances)"
    )]
    NotOurs(PathBuf),
    /// The socket cannot be made.
    #[error("cannot serve the API at {0}: {1}")]
    Bind(String, io::Error),
    /// The token cannot be read.
    #[error("cannot read the API's token from {0}: {1}")]
    Token(PathBuf, io::Error),
    /// The token is too short.
    #[error("the API's token in {0} has {1} bytes: expected at least {MIN_TOKEN}")]
    ShortToken(PathBuf, usize),
}

/// Sockets that are taken. Dropping it removes the Unix socket, and its directory where that was made for it.
#[derive(Debug)]
pub struct Listeners {
    pub(super) unix: UnixListener,
    pub(super) tcp: Option<(TcpListener, String)>,
    path: PathBuf,
    directory: Option<PathBuf>,
}

impl Listeners {
    /// Takes the sockets of a configuration.
    pub fn bind(spec: &ApiSpec) -> Result<Self, ListenError> {
        let tcp = spec.listen.as_ref().map(|(at, token)| bind_tcp(*at, token)).transpose()?;
        let path = spec.socket.clone();
        clear(&path)?;
        let fail = |e| ListenError::Bind(path.display().to_string(), e);
        let directory = make_directory(&path).map_err(fail)?;
        if let Some(shared) = not_ours(&path, &shared_directory()) {
            return Err(ListenError::NotOurs(shared));
        }
        // Owner and group may connect. Set by umask, so that there is no moment at which others may.
        let before = umask(Mode::from_bits_truncate(0o117));
        let unix = UnixListener::bind(&path);
        umask(before);
        let unix = unix.map_err(|e| {
            directory.iter().for_each(|d| drop(std::fs::remove_dir(d)));
            fail(e)
        })?;
        Ok(Listeners { unix, tcp, path, directory })
    }

    /// The Unix socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where TCP is served, if it is.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|(l, _)| l.local_addr().ok())
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        if let Some(directory) = &self.directory {
            // Fails, rightly, where another instance has its socket there too.
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// Makes sure that nothing is at `path`: removes the socket of an instance that has ended.
fn clear(path: &Path) -> Result<(), ListenError> {
    let fail = |e| ListenError::Bind(path.display().to_string(), e);
    let kind = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta.file_type(),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(fail(e)),
    };
    if !kind.is_socket() {
        return Err(ListenError::NotASocket(path.into()));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(ListenError::InUse(path.into())),
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path).map_err(fail),
        // A full backlog is a live instance as well.
        Err(e) if e.kind() == ErrorKind::WouldBlock => Err(ListenError::InUse(path.into())),
        Err(e) => Err(fail(e)),
    }
}

/// Makes the socket's directory where its parent exists; returns it when it was not there before.
fn make_directory(path: &Path) -> io::Result<Option<PathBuf>> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(directory) = path.parent() else { return Ok(None) };
    match std::fs::DirBuilder::new().mode(0o750).create(directory) {
        Ok(()) => Ok(Some(directory.into())),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(e) => Err(e),
    }
}

/// The directory of a socket, where that is `shared` with all users' and not this one's alone: a link, another's, or one that
/// others may write to. What does not exist is nobody's.
pub(super) fn not_ours(socket: &Path, shared: &Path) -> Option<PathBuf> {
    let directory = socket.parent().filter(|d| *d == shared)?;
    let meta = std::fs::symlink_metadata(directory).ok()?;
    let ours = meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    (!ours).then(|| directory.into())
}

fn bind_tcp(at: SocketAddr, token: &Path) -> Result<(TcpListener, String), ListenError> {
    let text = std::fs::read_to_string(token).map_err(|e| ListenError::Token(token.into(), e))?;
    let text = text.trim();
    if text.len() < MIN_TOKEN {
        return Err(ListenError::ShortToken(token.into(), text.len()));
    }
    let listener = TcpListener::bind(at).map_err(|e| ListenError::Bind(at.to_string(), e))?;
    Ok((listener, text.into()))
}
