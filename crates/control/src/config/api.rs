//! `[api]`: where the API is served.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::decode::{Item, Source};

/// Where the API is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSpec {
    /// Unix socket.
    pub socket: PathBuf,
    /// TCP address as well, with the file that holds the bearer token.
    pub listen: Option<(SocketAddr, PathBuf)>,
}

/// Where root's instances have their sockets.
pub const ROOT_SOCKETS: &str = "/run/linerate";

/// Where an instance with this file prefix has its socket: in `/run/linerate` for root, else in the user's runtime
/// directory, else under `/tmp` in a directory of the user's own.
pub fn default_socket(file_prefix: &str) -> PathBuf {
    let user = nix::unistd::geteuid();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user.is_root() => PathBuf::from(ROOT_SOCKETS),
        Some(dir) => PathBuf::from(dir).join("linerate"),
        None => shared_directory(),
    };
    directory.join(format!("{file_prefix}.sock"))
}

/// The directory of a user's sockets in `/tmp`, where anybody could make it first: it is used only where it is the user's.
pub(crate) fn shared_directory() -> PathBuf {
    PathBuf::from(format!("/tmp/linerate-{}", nix::unistd::geteuid()))
}

/// Longest path of a Unix socket (`sun_path` with its end).
const MAX_SOCKET: usize = 107;

pub(super) fn read(item: Option<Item<'_>>, source: &Source<'_>, file_prefix: &str) -> ApiSpec {
    let mut spec = ApiSpec { socket: default_socket(file_prefix), listen: None };
    let Some(mut s) = item.and_then(|i| i.section("a table [api]")) else { return spec };
    if let Some(path) = s.take("socket").and_then(|i| i.string("an absolute path")) {
        if !path.value.starts_with('/') || path.value.len() > MAX_SOCKET || path.value.contains('\0') {
            path.problem(source, format!("expected an absolute path of at most {MAX_SOCKET} bytes"));
        }
        spec.socket = path.value.into();
    }
    let listen =
        s.take("listen").and_then(|i| i.parse::<SocketAddr>("an address and port such as 127.0.0.1:8080"));
    let token = s.take("token_file").and_then(|i| i.string("the path of a file with the token"));
    match (listen, token) {
        (Some(listen), Some(token)) => {
            if !listen.value.ip().is_loopback() {
                listen.warning(
                    source,
                    "the API is served unencrypted to other hosts: the token can be read on the way",
                );
            }
            spec.listen = Some((listen.value, token.value.into()));
        }
        (Some(listen), None) => listen.problem(source, "TCP needs a token: expected `token_file` too"),
        (None, Some(token)) => token.problem(source, "a token is for TCP only: expected `listen` too"),
        (None, None) => {}
    }
    s.finish();
    spec
}
