//! The socket through which a workload names its phases: one datagram, one or more lines.
//!
//! The kernel stamps a datagram with the time at which it was sent and with the sender's process id, so neither a
//! late reader nor a wrong sender matters. A workload whose recorder is gone gets an error, and never waits.

use std::{
    fs,
    io::{ErrorKind, IoSliceMut},
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::PermissionsExt,
        unix::net::UnixDatagram,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, RecvMsg, UnixAddr, recvmsg, setsockopt, sockopt};

use crate::{clock, error::CaptureError};

/// Environment variable in which the workload finds the socket's path.
pub(crate) const VARIABLE: &str = "INQUEST_MARKS";
const MESSAGE_BYTES: usize = 4096;

/// The socket; its file is removed when this is dropped.
pub(crate) struct MarkSocket {
    socket: UnixDatagram,
    path: PathBuf,
}

/// A datagram: when it was sent, by which process, and its text.
pub(crate) struct Message {
    pub(crate) ts_ns: i64,
    pub(crate) pid: u32,
    pub(crate) text: String,
}

impl MarkSocket {
    /// Opens the socket at `path`, taking over one that a killed recorder left.
    ///
    /// # Errors
    /// If another file is at `path`, or the socket cannot be made.
    pub(crate) fn open(path: PathBuf) -> Result<Self, CaptureError> {
        let io = |source| CaptureError::Io { what: format!("socket {}", path.display()), source };
        let socket = UnixDatagram::bind(&path).or_else(|error| {
            // A recorder that was killed has left its socket: nobody hears what is sent there.
            let stale = error.kind() == ErrorKind::AddrInUse
                && UnixDatagram::unbound()?
                    .connect(&path)
                    .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
            if !stale {
                return Err(error);
            }
            fs::remove_file(&path)?;
            UnixDatagram::bind(&path)
        });
        let socket = socket.map_err(io)?;
        let this = Self { socket, path };
        let io = |source| CaptureError::Io { what: format!("socket {}", this.path.display()), source };
        this.socket.set_nonblocking(true).map_err(io)?;
        // Whoever is traced may mark, whatever user it runs as.
        fs::set_permissions(&this.path, fs::Permissions::from_mode(0o666)).map_err(io)?;
        let option = |result: nix::Result<()>| result.map_err(|errno| io(errno.into()));
        option(setsockopt(&this.socket, sockopt::PassCred, &true))?;
        option(setsockopt(&this.socket, sockopt::ReceiveTimestampns, &true))?;
        Ok(this)
    }

    /// File descriptor of the socket, for polling.
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Receives every datagram that waits.
    pub(crate) fn receive(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut bytes = [0u8; MESSAGE_BYTES];
        let mut space = nix::cmsg_space!(nix::sys::socket::UnixCredentials, nix::sys::time::TimeSpec);
        loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let received: Result<RecvMsg<'_, '_, UnixAddr>, _> =
                recvmsg(self.socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty());
            let Ok(received) = received else {
                return messages;
            };
            let (mut ts_ns, mut pid) = (clock::monotonic_ns(), 0);
            for control in received.cmsgs().into_iter().flatten() {
                match control {
                    ControlMessageOwned::ScmTimestampns(wall) => {
                        let wall_ns = Duration::from(wall).as_nanos() as i64;
                        ts_ns = ts_ns.min(wall_ns - clock::wall_offset_ns());
                    }
                    ControlMessageOwned::ScmCredentials(sender) => pid = sender.pid() as u32,
                    _ => {}
                }
            }
            let length = received.bytes;
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            messages.push(Message { ts_ns, pid, text });
        }
    }
}

impl Drop for MarkSocket {
    fn drop(&mut self) {
        // Left behind, it would only be in the way of the next one.
        let _ = fs::remove_file(&self.path);
    }
}
