//! Where do connections come from? A port, or a socket file that only this user can open.

use std::io;
use std::net::TcpListener;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};

use super::super::address::{Address, Place, bare};
use crate::error::{Error, Result};

/// What bytes go over.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Bound, and not yet of a runtime.
pub(super) enum Bound {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixListener, socket::Socket),
}

/// Takes connections.
pub(super) enum Listener {
    Tcp(tokio::net::TcpListener),
    #[cfg(unix)]
    Unix(
        tokio::net::UnixListener,
        #[allow(dead_code, reason = "removes the file when it is dropped")] socket::Socket,
    ),
}

fn unusable(address: &Address, error: io::Error) -> Error {
    Error::argument("listen", format!("expected an address to listen on, found {address}"))
        .with_hint("choose an address of this machine that no other program listens on")
        .with_source(error)
}

/// Listens there; returns where that is, with a port that was chosen.
pub(super) fn bind(address: &Address) -> Result<(Bound, Address)> {
    match address.place() {
        Place::Tcp { scheme, host, port } => {
            let bound = || {
                let listener = TcpListener::bind((bare(host), *port))?;
                listener.set_nonblocking(true)?;
                let port = listener.local_addr()?.port();
                Ok((listener, port))
            };
            let (listener, port) = bound().map_err(|e| unusable(address, e))?;
            Ok((Bound::Tcp(listener), Address::of(Place::Tcp { scheme: *scheme, host: host.clone(), port })))
        }
        #[cfg(unix)]
        Place::Unix(path) => {
            if path.as_os_str().len() > socket::LONGEST {
                let found = path.as_os_str().len();
                let message = format!("expected a path of {} bytes at most, found {found}", socket::LONGEST);
                return Err(Error::argument("listen", message)
                    .with_hint("choose a shorter path: nobody could connect to this one"));
            }
            let (listener, socket) = socket::bind(path).map_err(|e| unusable(address, e))?;
            Ok((Bound::Unix(listener, socket), address.clone()))
        }
        #[cfg(not(unix))]
        Place::Unix(_) => Err(unusable(address, io::ErrorKind::Unsupported.into())),
    }
}

impl Bound {
    /// Within a runtime.
    pub(super) fn start(self) -> io::Result<Listener> {
        Ok(match self {
            Self::Tcp(listener) => Listener::Tcp(tokio::net::TcpListener::from_std(listener)?),
            #[cfg(unix)]
            Self::Unix(listener, socket) => {
                Listener::Unix(tokio::net::UnixListener::from_std(listener)?, socket)
            }
        })
    }
}

impl Listener {
    /// The next connection.
    pub(super) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Wire>>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(cx).map_ok(|(stream, _)| {
                // Replies are small and waited for.
                stream.set_nodelay(true).ok();
                Box::new(stream) as Box<dyn Wire>
            }),
            #[cfg(unix)]
            Self::Unix(listener, _) => {
                listener.poll_accept(cx).map_ok(|(stream, _)| Box::new(stream) as Box<dyn Wire>)
            }
        }
    }
}

#[cfg(unix)]
mod socket {
    //! A socket's file: made for this user alone, and removed by who made it.

    use std::fs::{Permissions, rename, set_permissions, symlink_metadata};
    use std::io;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::{Path, PathBuf};

    /// Bytes of a path that can be connected to.
    pub(super) const LONGEST: usize =
        if cfg!(any(target_os = "linux", target_os = "android")) { 107 } else { 103 };

    /// The file, which is removed when this is dropped.
    pub(in super::super) struct Socket {
        path: PathBuf,
        file: (u64, u64),
    }

    fn file_of(path: &Path) -> io::Result<(u64, u64)> {
        symlink_metadata(path).map(|found| (found.dev(), found.ino()))
    }

    /// Listens at `path`, where there is nothing, or a socket that nobody listens on any more.
    pub(super) fn bind(path: &Path) -> io::Result<(UnixListener, Socket)> {
        match symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "a file that is no socket is there",
                ));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => return Err(io::ErrorKind::AddrInUse.into()),
            Ok(_) => {}
        }
        // In a folder of this user's alone until it has its mode.
        let beside = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = tempfile::Builder::new().prefix(".s").rand_bytes(4).tempdir_in(beside)?;
        let made = folder.path().join("s");
        let listener = UnixListener::bind(&made)?;
        listener.set_nonblocking(true)?;
        set_permissions(&made, Permissions::from_mode(0o600))?;
        rename(&made, path)?;
        let file = file_of(path)?;
        Ok((listener, Socket { path: path.to_owned(), file }))
    }

    impl Drop for Socket {
        fn drop(&mut self) {
            // Another server may have taken its place.
            if file_of(&self.path).is_ok_and(|file| file == self.file) {
                std::fs::remove_file(&self.path).ok();
            }
        }
    }
}
