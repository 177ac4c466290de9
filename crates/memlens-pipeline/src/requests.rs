//! Client requests, as the pipeline acts on them.

use memlens_requests::Request;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Turns collection on, off, or (`None`) over.
    Collect(Option<bool>),
    /// Sets all counts to zero.
    Zero,
    /// Names this moment; the name lies in the target's memory.
    Mark {
        /// Address of the name.
        name: u64,
        /// Its length; `u64::MAX` for a zero-terminated one.
        name_bytes: u64,
    },
    /// Makes a range an object of its own.
    Region {
        /// First address.
        start: u64,
        /// Bytes.
        bytes: u64,
        /// Address of its name.
        name: u64,
        /// The name's length.
        name_bytes: u64,
    },
    /// Ends what `Region` began.
    RegionFreed {
        /// First address.
        start: u64,
    },
}

impl Action {
    /// The action of a request's words: code and five arguments. `None` for requests that are not
    /// ours or ask for nothing.
    pub fn of(words: &[u64; 6]) -> Option<Self> {
        match Request::from_args(words)? {
            Request::Start => Some(Self::Collect(Some(true))),
            Request::Stop => Some(Self::Collect(Some(false))),
            Request::Toggle => Some(Self::Collect(None)),
            Request::Zero => Some(Self::Zero),
            Request::Dump { c_name } => Some(Self::Mark { name: c_name, name_bytes: u64::MAX }),
            Request::Mark { name, name_bytes } => Some(Self::Mark { name, name_bytes }),
            Request::RegionIs { start, size_bytes, name, name_bytes } => {
                Some(Self::Region { start, bytes: size_bytes, name, name_bytes })
            }
            Request::RegionFreed { start } => Some(Self::RegionFreed { start }),
            _ => None,
        }
    }
}

/// Where a request was made: the pc behind it.
pub fn pc(words: &[u64]) -> Option<u64> {
    words.get(6).copied()
}

/// The text that the collector copied behind that: its length, then its bytes.
pub fn text(words: &[u64]) -> Option<String> {
    let (&bytes, words) = words.get(7..)?.split_first()?;
    let text: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(bytes as usize).collect();
    (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
}

/// Names are cut to this length.
const MAX_NAME_BYTES: u64 = 256;

/// Reads text from another process's memory, up to a zero byte or `bytes`.
pub fn read_text(pid: u32, addr: u64, bytes: u64) -> Option<String> {
    use std::os::unix::fs::FileExt;
    if addr == 0 {
        return None;
    }
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut buffer = vec![0; bytes.min(MAX_NAME_BYTES) as usize];
    let read = memory.read_at(&mut buffer, addr).ok()?;
    let text = &buffer[..read];
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    Some(String::from_utf8_lossy(&text[..end]).into_owned())
}
