//! Where clients connect.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// An address at which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port of an IP address; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Formats the address as the URI that clients take (the document `uri` of NetworkBlockDevice/nbd).
impl Display for Address {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(formatter, "nbd://{address}"),
            Address::Unix(path) => write!(formatter, "nbd+unix:///?socket={}", path.display()),
        }
    }
}

impl Address {
    /// Listens at the address. Returns the socket with the address that it has.
    ///
    /// A Unix socket that a killed server has left is removed first.
    pub(crate) fn listen(&self) -> io::Result<(Socket, Address)> {
        match self {
            Address::Tcp(address) => {
                let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
                // A restarted server takes its port again at once.
                socket.set_reuse_address(true)?;
                socket.bind(&(*address).into())?;
                socket.listen(BACKLOG)?;
                let bound = socket.local_addr()?.as_socket().unwrap_or(*address);
                Ok((socket, Address::Tcp(bound)))
            }
            Address::Unix(path) => {
                remove_stale(path)?;
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                socket.bind(&SockAddr::unix(path)?)?;
                socket.listen(BACKLOG)?;
                Ok((socket, self.clone()))
            }
        }
    }

    /// Removes what listening has left behind.
    pub(crate) fn remove(&self) {
        if let Address::Unix(path) = self
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Removes a Unix socket at which no program listens.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        _ => Ok(()),
    }
}
