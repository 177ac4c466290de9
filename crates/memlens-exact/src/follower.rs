//! New processes of the program: where they ask for a segment, and how they are read.
//!
//! ```text
//!  forked child, or a program just executed          memlens
//!        connect, "forked from 3, token 17" ──►  Follower::next_arrival
//!        ◄── a segment's descriptor              Arrival::accept ──► ProcessStream::run
//!        ◄── nothing: runs on unrecorded         Arrival::refuse
//! ```
//!
//! The socket has an abstract name, so there is nothing to remove; the name is hard to guess, and an
//! answer is worth nothing to strangers.

use crate::reader::{Reader, ReaderStatistics};
use crate::segment::Segment;
use memlens_events::RecordSink;
use memlens_events::segment::{ARRIVED_BY_EXEC, ARRIVED_BY_FORK, MAGIC};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How often a reader looks again before it sleeps.
const LOOKS_BEFORE_NAP: u32 = 50;
/// How long a reader sleeps, at least and at most; it is woken when there is much to read.
const SHORTEST_NAP_MS: u64 = 1;
const LONGEST_NAP_MS: u64 = 16;
/// How many processes may wait to be answered; the kernel's own limit may be lower.
const BACKLOG: libc::c_int = 4096;

/// Listens for new processes.
#[derive(Debug)]
pub struct Follower {
    socket: OwnedFd,
    name: String,
    next_number: AtomicU32,
}

impl Follower {
    /// Begins to listen.
    pub(crate) fn listen() -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // SAFETY: the calls get valid pointers and lengths; the descriptor is owned from then on.
        unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let socket = OwnedFd::from_raw_fd(fd);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            // Somebody else's process may have had this id in another container of the same network.
            let mut salt = [0_u8; 8];
            libc::getrandom(salt.as_mut_ptr().cast(), salt.len(), 0);
            let name = format!("memlens-{}-{count}-{:016x}", std::process::id(), u64::from_le_bytes(salt));
            let mut address: libc::sockaddr_un = mem::zeroed();
            address.sun_family = libc::AF_UNIX as libc::sa_family_t;
            for (place, byte) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
                *place = byte as libc::c_char;
            }
            let length = mem::size_of::<libc::sa_family_t>() + 1 + name.len();
            if libc::bind(fd, (&raw const address).cast(), length as libc::socklen_t) < 0
                || libc::listen(fd, BACKLOG) < 0
            {
                return Err(io::Error::last_os_error());
            }
            Ok(Self { socket, name, next_number: AtomicU32::new(2) })
        }
    }

    /// The abstract name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The next process that asks, if one does within `patience`.
    pub fn next_arrival(&self, patience: Duration) -> Option<Arrival> {
        let mut wanted = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = patience.as_millis().min(1 << 30) as libc::c_int;
        // SAFETY: one structure of our own; the descriptor of the accepted socket is ours.
        unsafe {
            if libc::poll(&raw mut wanted, 1, milliseconds) <= 0 {
                return None;
            }
            let (none, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
            let fd = libc::accept4(self.socket.as_raw_fd(), none, no_length, libc::SOCK_CLOEXEC);
            if fd < 0 {
                return None;
            }
            Arrival::of(OwnedFd::from_raw_fd(fd), &self.next_number)
        }
    }
}

/// How a process came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivedBy {
    /// Forked by the process image with this number, which announced it with this token.
    Fork {
        /// Number of the parent's process image.
        parent: u32,
        /// The parent's token.
        token: u64,
    },
    /// By executing a program.
    Exec,
}

/// A process that asks for a segment, and waits for the answer.
#[derive(Debug)]
pub struct Arrival {
    socket: OwnedFd,
    /// Its process id.
    pub process_id: u32,
    /// How it came to be.
    pub by: ArrivedBy,
    /// A number for the process image, from 2: the program's own first image is 1.
    pub number: u32,
}

impl Arrival {
    fn of(socket: OwnedFd, numbers: &AtomicU32) -> Option<Self> {
        let patience = libc::timeval { tv_sec: 5, tv_usec: 0 };
        let mut question = [0_u64; 4];
        // SAFETY: zeroed is a valid ucred; the pointers and lengths are those of our variables.
        let peer = unsafe {
            let fd = socket.as_raw_fd();
            let mut peer: libc::ucred = mem::zeroed();
            let mut length = mem::size_of_val(&peer) as libc::socklen_t;
            let known = libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut length,
            ) == 0;
            let size = mem::size_of_val(&patience) as libc::socklen_t;
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const patience).cast(), size);
            let bytes = mem::size_of_val(&question);
            let read = libc::recv(fd, question.as_mut_ptr().cast(), bytes, 0);
            (known && read == bytes as isize).then_some(peer)?
        };
        let [MAGIC, by, parent, token] = question else { return None };
        let by = match by {
            ARRIVED_BY_FORK => ArrivedBy::Fork { parent: parent as u32, token },
            ARRIVED_BY_EXEC => ArrivedBy::Exec,
            _ => return None,
        };
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        Some(Self { socket, process_id: peer.pid.unsigned_abs(), by, number })
    }

    /// Lets the process run on unrecorded.
    pub fn refuse(self) {
        // The process sees that the answer brings no descriptor.
        drop(self.socket);
    }

    /// Gives the process a segment; what it records is read with [`ProcessStream::run`].
    ///
    /// # Errors
    /// When the system refuses memory or descriptors; the process then runs on unrecorded.
    pub fn accept(self) -> io::Result<ProcessStream> {
        let segment = Segment::create()?;
        segment.control().number.store(self.number, Ordering::Relaxed);
        // SAFETY: the process exists, because it waits for our answer.
        let process = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, self.process_id, 0) as libc::c_int;
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        send_descriptor(&self.socket, segment.file.as_raw_fd())?;
        Ok(ProcessStream {
            segment,
            reader: Reader::new(),
            process: Some(process),
            process_id: self.process_id,
            last_status: None,
            is_replaced: Arc::default(),
            started: Instant::now(),
        })
    }
}

fn send_descriptor(socket: &OwnedFd, descriptor: libc::c_int) -> io::Result<()> {
    let byte = 0_u8;
    let mut vector = libc::iovec { iov_base: (&raw const byte).cast_mut().cast(), iov_len: 1 };
    let mut control = [0_u64; 4];
    // SAFETY: the message points to our variables, which outlive the call; the control buffer has room
    // for one descriptor.
    let sent = unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(descriptor);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tells a [`ProcessStream`] that its process has executed another program, which has a stream of its own.
#[derive(Clone, Debug, Default)]
pub struct Replacement(Arc<AtomicBool>);

impl Replacement {
    /// Whether it was told.
    pub fn is_told(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Nothing more will come.
    pub fn tell(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What a followed process records.
pub struct ProcessStream {
    segment: Segment,
    reader: Reader,
    /// For waiting; none once the process has ended.
    process: Option<File>,
    process_id: u32,
    last_status: Option<i32>,
    is_replaced: Arc<AtomicBool>,
    started: Instant,
}

impl ProcessStream {
    /// For telling that the process has executed another program.
    pub fn replacement(&self) -> Replacement {
        Replacement(self.is_replaced.clone())
    }

    /// Delivers records until the process has ended or executed another program, or `stop` says that
    /// recording ends; the process then runs on unrecorded when this is dropped.
    pub fn run(&mut self, sink: &mut impl RecordSink, stop: &AtomicBool) {
        let mut looks = 0;
        let mut nap = SHORTEST_NAP_MS;
        let mut is_over = false;
        loop {
            if self.reader.deliver(&self.segment, sink) {
                (looks, nap) = (0, SHORTEST_NAP_MS);
                continue;
            }
            if is_over {
                return;
            }
            looks += 1;
            if looks < LOOKS_BEFORE_NAP {
                std::hint::spin_loop();
                continue;
            }
            sink.idle();
            self.segment.wait(nap);
            nap = (nap * 2).min(LONGEST_NAP_MS);
            // What is published before is read once more after this.
            is_over = self.ended_normally()
                || self.is_replaced.load(Ordering::Acquire)
                || stop.load(Ordering::Relaxed)
                || self.has_ended();
        }
    }

    fn has_ended(&mut self) -> bool {
        let Some(process) = &self.process else { return true };
        let mut wanted = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure of our own.
        let ended = unsafe { libc::poll(&raw mut wanted, 1, 0) } > 0;
        if ended {
            self.last_status = wait_status(self.process_id);
            self.process = None;
        }
        ended
    }

    /// The signal that ended the process, if it is known: nobody may have fetched its status meanwhile.
    pub fn signal(&mut self) -> Option<i32> {
        // It may be about to end: `exit_group` was announced, or its last thread.
        let _ = self.has_ended();
        self.last_status.filter(|&status| libc::WIFSIGNALED(status)).map(|status| libc::WTERMSIG(status))
    }

    /// Time since it asked for its segment.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// What reading met.
    pub fn statistics(&self) -> ReaderStatistics {
        self.reader.statistics(&self.segment)
    }

    /// Whether it executed another program.
    pub fn was_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Acquire)
    }

    /// Whether the process announced its end. If not, up to a chunk of each thread's last records is
    /// missing; after an `execve`, that of all threads but the one which called it.
    pub fn ended_normally(&self) -> bool {
        self.segment.control().state.load(Ordering::Acquire) == 2
    }
}

/// How a process ended whose parent has not fetched its status yet: field 52 of `/proc/PID/stat`.
fn wait_status(process_id: u32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    let fields = text.get(text.rfind(')')? + 2..)?;
    let mut fields = fields.split_ascii_whitespace();
    // The third field is the state.
    if fields.next()? != "Z" {
        return None;
    }
    fields.nth(52 - 4)?.parse().ok()
}
