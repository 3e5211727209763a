//! The socket through which a workload names its phases: one datagram, one or more lines.
//!
//! The kernel stamps a datagram with the time at which it was sent and with the sender's process id, so neither a
//! late reader nor a wrong sender matters. A workload whose recorder is gone gets an error, and never waits.
//!
//! Every user can write to the socket, because a traced process may run as any user; who is heard is decided by the
//! process id of the sender. What lies at the socket's path is removed only if it is a socket of this user that no process
//! has open any more.

use std::{
    fs::{self, File, Permissions},
    io::{self, ErrorKind, IoSliceMut},
    os::{
        fd::{AsRawFd, RawFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            net::UnixDatagram,
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    sys::{
        socket::{ControlMessageOwned, MsgFlags, RecvMsg, UnixAddr, recvmsg, setsockopt, sockopt},
        stat::{Mode, umask},
    },
    unistd::{geteuid, mkdtemp},
};

use crate::{clock, error::CaptureError};

/// Environment variable in which the workload finds the socket's path.
pub(crate) const VARIABLE: &str = "INQUEST_MARKS";
const MESSAGE_BYTES: usize = 4096;
/// Beginning of the name of a folder that is made for a socket, in the folder for temporary files.
const FOLDER: &str = "inquest-marks-";
/// Name of the socket in a folder that was made for it.
const NAME: &str = "marks";
/// Users other than the owner may enter the folder, and cannot list it.
const FOLDER_MODE: u32 = 0o711;
/// Everybody may write to the socket.
const SOCKET_UMASK: Mode = Mode::from_bits_truncate(0o111);
/// How many datagrams may wait at a new socket.
const QUEUE: &str = "/proc/sys/net/unix/max_dgram_qlen";
/// The largest queue that is believed.
const QUEUE_COUNT: usize = 4096;

/// The socket; its file, and the folder that was made for it, are removed when this is dropped.
pub(crate) struct MarkSocket {
    socket: UnixDatagram,
    path: PathBuf,
    /// The folder that was made for the socket; `None` if the user named the socket's path.
    folder: Option<PathBuf>,
    queue_count: usize,
}

/// A datagram: when it was sent, by which process, and its text.
pub(crate) struct Message {
    pub(crate) ts_ns: i64,
    /// Process id of the sender as this process sees it; 0 if it does not see it.
    pub(crate) pid: u32,
    pub(crate) text: String,
    /// Whether the datagram was longer than what is read of one.
    pub(crate) is_cut: bool,
}

impl MarkSocket {
    /// Opens the socket at a path that the user named. A socket of this user that no process has open any more, because its
    /// recorder was killed, makes way.
    ///
    /// # Errors
    /// If anything else is at `path`, or the socket cannot be made.
    pub(crate) fn open_at(path: &Path) -> Result<Self, CaptureError> {
        make_way(path)?;
        Self::bind(path.to_owned(), None)
    }

    /// Opens the socket in a new folder for temporary files, and removes those that killed recorders of this user left
    /// there.
    ///
    /// # Errors
    /// If the folder or the socket cannot be made.
    pub(crate) fn open_own() -> Result<Self, CaptureError> {
        let parent = std::env::temp_dir();
        for entry in fs::read_dir(&parent).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(FOLDER) {
                // What cannot be removed is in nobody's way: the new folder has another name.
                let _ = remove_if_dead(&entry.path());
            }
        }
        let io = |source| CaptureError::Io {
            what: format!("folder for the socket of marks in {}", parent.display()),
            source,
        };
        // The kernel makes the folder under a name that nobody could prepare, with access for this user only.
        let template = parent.join(format!("{FOLDER}{}-XXXXXX", std::process::id()));
        let folder = mkdtemp(&template).map_err(|errno| io(errno.into()))?;
        open_folder(&folder)
            .and_then(|opened| opened.set_permissions(Permissions::from_mode(FOLDER_MODE)))
            .map_err(io)
            .and_then(|()| Self::bind(folder.join(NAME), Some(folder.clone())))
            .inspect_err(|_| {
                let _ = fs::remove_dir(&folder);
            })
    }

    fn bind(path: PathBuf, folder: Option<PathBuf>) -> Result<Self, CaptureError> {
        let io = |source| CaptureError::Io { what: format!("socket {}", path.display()), source };
        // The file gets its mode when it is made. A change by path later could hit what another user put there meanwhile.
        let before = umask(SOCKET_UMASK);
        let socket = UnixDatagram::bind(&path);
        umask(before);
        let socket = socket.map_err(io)?;
        let queue = fs::read_to_string(QUEUE).ok().and_then(|text| text.trim().parse::<usize>().ok());
        // One more than the limit fits into a queue.
        let queue_count = queue.map_or(QUEUE_COUNT, |count| count.saturating_add(1).min(QUEUE_COUNT));
        let this = Self { socket, path, folder, queue_count };
        let io = |source| CaptureError::Io { what: format!("socket {}", this.path.display()), source };
        this.socket.set_nonblocking(true).map_err(io)?;
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

    /// Number of datagrams that can wait: who reads as many has read all that were sent before.
    pub(crate) fn queue_count(&self) -> usize {
        self.queue_count
    }

    /// Receives the datagram that has waited longest; `None` if none waits.
    pub(crate) fn receive(&self) -> Option<Message> {
        let mut bytes = [0u8; MESSAGE_BYTES];
        let mut space = nix::cmsg_space!(nix::sys::socket::UnixCredentials, nix::sys::time::TimeSpec);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received: Result<RecvMsg<'_, '_, UnixAddr>, _> =
            recvmsg(self.socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty());
        let received = received.ok()?;
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
        let (length, is_cut) = (received.bytes, received.flags.contains(MsgFlags::MSG_TRUNC));
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        Some(Message { ts_ns, pid, text, is_cut })
    }
}

impl Drop for MarkSocket {
    fn drop(&mut self) {
        // What is left behind, a later recorder removes.
        let _ = fs::remove_file(&self.path);
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Removes the socket of a killed recorder of this user.
///
/// # Errors
/// If anything else is at the path.
fn make_way(path: &Path) -> Result<(), CaptureError> {
    let io = |source| CaptureError::Io { what: format!("socket {}", path.display()), source };
    let taken = |reason| CaptureError::MarksTaken { path: path.to_owned(), reason };
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
    };
    if !there.file_type().is_socket() {
        return Err(taken("what is there is not a socket"));
    }
    if there.uid() != geteuid().as_raw() {
        return Err(taken("the socket there belongs to another user"));
    }
    if !is_dead(path) {
        return Err(taken("the socket there is in use"));
    }
    fs::remove_file(path).map_err(io)
}

/// Whether a socket is open in no process any more.
fn is_dead(path: &Path) -> bool {
    UnixDatagram::unbound()
        .and_then(|socket| socket.connect(path))
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn open_folder(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// Removes a folder that a killed recorder of this user has left, with its socket. The folder stays the one that was looked
/// at, whatever its name comes to mean.
fn remove_if_dead(folder: &Path) -> io::Result<()> {
    let opened = open_folder(folder)?;
    let own = geteuid().as_raw();
    let socket = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())).join(NAME);
    let there = fs::symlink_metadata(&socket)?;
    let is_own = opened.metadata()?.uid() == own && there.uid() == own;
    if is_own && there.file_type().is_socket() && is_dead(&socket) {
        fs::remove_file(&socket)?;
        fs::remove_dir(folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dead_socket_of_this_user_makes_way() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("marks");
        let refused = |path: &Path| make_way(path).expect_err("refused").to_string();
        fs::write(&path, "precious").expect("a file");
        assert!(refused(&path).contains("not a socket"));
        assert_eq!(fs::read(&path).expect("the file"), b"precious");
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(directory.path(), &path).expect("a link");
        assert!(refused(&path).contains("not a socket"));
        fs::remove_file(&path).expect("removed");
        let living = UnixDatagram::bind(&path).expect("a socket");
        assert!(refused(&path).contains("in use"));
        drop(living);
        assert!(make_way(&path).is_ok() && !path.exists());
    }

    #[test]
    fn everybody_may_write_and_nothing_is_left() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("marks");
        let socket = MarkSocket::open_at(&path).expect("a socket");
        assert_eq!(fs::metadata(&path).expect("the socket").mode() & 0o777, 0o666);
        assert!(socket.receive().is_none());
        let sender = UnixDatagram::unbound().expect("a sender");
        sender.send_to(b"one\ntwo", &path).expect("sent");
        sender.send_to(&[b'x'; MESSAGE_BYTES + 1], &path).expect("sent");
        let [first, second] = [socket.receive(), socket.receive()].map(|message| message.expect("a message"));
        assert_eq!((first.pid, first.text.as_str(), first.is_cut), (std::process::id(), "one\ntwo", false));
        assert_eq!((second.text.len(), second.is_cut), (MESSAGE_BYTES, true));
        assert!(first.ts_ns <= second.ts_ns && second.ts_ns <= clock::monotonic_ns());
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_killed_recorder_left_is_removed_and_what_lives_is_not() {
        let folder = |name: &str, parent: &Path| {
            let folder = parent.join(name);
            fs::create_dir(&folder).expect("a folder");
            let socket = UnixDatagram::bind(folder.join(NAME)).expect("a socket");
            (folder, socket)
        };
        let directory = tempfile::tempdir().expect("a folder");
        let (dead, socket) = folder("dead", directory.path());
        drop(socket);
        let (living, _socket) = folder("living", directory.path());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&living, &link).expect("a link");
        remove_if_dead(&dead).expect("removed");
        remove_if_dead(&living).expect("looked at");
        assert!(remove_if_dead(&link).is_err(), "a link is not followed");
        assert!(!dead.exists() && living.join(NAME).exists());
    }
}
