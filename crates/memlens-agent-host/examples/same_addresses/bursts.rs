//! What bursts record of a program, one behind the other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use memlens_agent_host::{Agent, AgentOptions, BurstHead, BurstOptions, Event, Watch};
use memlens_child::{Child, ExitOutcome, Held, Image};
use memlens_events::agent::VARIABLE;
use memlens_events::burst::{REFERENCE_WORDS, Reference, Source, Use, block_of};

use crate::sequence::{Action, Codes, Places, Sequence, is_agent};

const PAGE_BYTES: u64 = 4096;
/// Looks at the process's mappings that need no reason, a fraction of a millisecond each.
const FIRST_LOOKS: u32 = 100;
/// Starts until the stack has the place in its page that is wanted.
const TRIES: usize = 4;

/// A run.
#[derive(Debug, Default)]
pub struct Bursts {
    /// The bursts of each thread, in their order.
    pub threads: BTreeMap<u32, Vec<Sequence>>,
    /// Instructions whose addresses bursts do not know.
    pub unknown: HashSet<u32>,
    /// Accesses of theirs, and those of the agent's own code.
    pub unknown_accesses: u64,
    pub agents_accesses: u64,
    /// Bursts that could not be reported, and those with a block that was not.
    pub lost: u64,
    pub undecoded: u64,
    /// Bursts that began inside a repeated string instruction: they recorded its rest, which is left out.
    pub cut: u64,
    pub outcome: Option<ExitOutcome>,
    pub strings_start: u64,
}

/// A burst as it came.
struct Raw {
    tid: u32,
    time_ns: u64,
    head: BurstHead,
    words: Vec<u64>,
}

/// Lets programs that this process executes keep a descriptor.
pub fn let_inherit(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: sets a flag of an open descriptor.
    match unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The file that a command's name means.
fn file_of(name: &OsStr) -> Result<PathBuf, Box<dyn Error>> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let in_path =
        || std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|file| file.is_file());
    let file = if name.as_bytes().contains(&b'/') { Some(PathBuf::from(name)) } else { in_path() };
    Ok(fs::canonicalize(file.ok_or_else(|| format!("no program {name:?}"))?)?)
}

/// A number of proc_pid_stat(5), by the manual's count.
fn stat_field(process: u32, number: usize) -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let behind_name = text.rsplit_once(')').ok_or("no name")?.1;
    let field = behind_name.split_ascii_whitespace().nth(number - 3);
    Ok(field.ok_or_else(|| format!("no field {number}"))?.parse()?)
}

/// Where the stack began when the process executed its program.
fn stack_start(process: u32) -> Result<u64, Box<dyn Error>> {
    stat_field(process, 28)
}

/// Where the strings of its arguments and environment begin, above that.
pub fn strings_start(process: u32) -> Result<u64, Box<dyn Error>> {
    stat_field(process, 48)
}

/// Starts the program with the agent, so that its stack begins at the same place in a page as `stack_pointer`: the number in
/// the agent's variable, which it takes out again, has as many zeros before it as that needs.
fn start(command: &[OsString], words: u32, stack_pointer: u64) -> Result<(Agent, Child), Box<dyn Error>> {
    let mut padding = 0;
    for _ in 0..TRIES {
        let agent = Agent::new(&AgentOptions {
            watch: Watch::Nothing,
            tick: Some(Duration::from_millis(1)),
            stack_bytes: 0,
            bursts: Some(BurstOptions { words, share: 1.0, often: 0, filter: false }),
        })?;
        let mut image = Image::new(&file_of(&command[0])?, command)?;
        for (name, value) in agent.variables(None) {
            let longer = match name {
                VARIABLE => OsString::from("0".repeat(padding as usize)),
                _ => OsString::new(),
            };
            image.set_variable(name.as_ref(), &[longer, value].join(OsStr::new("")))?;
        }
        let child = Held::start(&image, &[agent.descriptor()])?.release()?;
        let off = stack_start(child.id())?.wrapping_sub(stack_pointer) % PAGE_BYTES;
        if off == 0 {
            return Ok((agent, child));
        }
        // SAFETY: a process of ours, not waited for yet.
        unsafe { libc::kill(child.id() as i32, libc::SIGKILL) };
        wait(child, || {})?;
        padding = (padding + off) % PAGE_BYTES;
    }
    Err("the stack does not come to lie as in exact mode".into())
}

fn wait(mut child: Child, mut meanwhile: impl FnMut()) -> io::Result<ExitOutcome> {
    loop {
        let outcome = child.try_wait()?;
        meanwhile();
        match outcome {
            Some(outcome) => return Ok(outcome),
            None => thread::sleep(Duration::from_micros(200)),
        }
    }
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect()
}

/// Runs a program with bursts all the time.
pub fn record(
    command: &[OsString],
    words: u32,
    stack_pointer: u64,
    codes: &mut Codes,
) -> Result<Bursts, Box<dyn Error>> {
    let (mut agent, child) = start(command, words, stack_pointer)?;
    let process = child.id();
    let strings_start = strings_start(process)?;
    let mut raw = Vec::new();
    let mut blocks: HashMap<(u64, u32), Vec<Reference>> = HashMap::new();
    let mut places = Places::default();
    let mut unplaced = true;
    let mut looks = 0u32;
    let outcome = wait(child, || {
        agent.drain(|record| match record.event {
            Event::Block { head, references } if record.pid == process => {
                let references: Vec<_> = words_of(references)
                    .chunks_exact(REFERENCE_WORDS)
                    .filter_map(|words| Reference::of(words.try_into().ok()?))
                    .collect();
                unplaced |= references.iter().any(|reference| places.find(reference.pc).is_none());
                blocks.insert((head.generation, head.number), references);
            }
            Event::Burst { head, words } if record.pid == process => {
                raw.push(Raw { tid: record.tid, time_ns: record.time_ns, head, words: words_of(words) });
            }
            _ => {}
        });
        // At the start often: a short program is gone before the first block of its libraries is read.
        looks += 1;
        if unplaced || looks < FIRST_LOOKS {
            places.add(Places::of(process));
            unplaced = false;
        }
    })?;
    raw.sort_by_key(|burst| burst.time_ns);
    // Libraries of a program that was gone before anybody looked.
    blocks.retain(|_, references| references.iter().all(|reference| places.find(reference.pc).is_some()));
    let mut bursts =
        Bursts { lost: agent.losses().bursts, outcome: Some(outcome), strings_start, ..Bursts::default() };
    let mut decoder =
        Decoder { blocks, places, codes, numbers: HashMap::new(), bursts: &mut bursts, is_first: true };
    for burst in &raw {
        decoder.decode(burst);
    }
    Ok(bursts)
}

struct Decoder<'a> {
    blocks: HashMap<(u64, u32), Vec<Reference>>,
    places: Places,
    codes: &'a mut Codes,
    /// By instruction's address: its number, and whether it is the agent's.
    numbers: HashMap<u64, (u32, bool)>,
    bursts: &'a mut Bursts,
    /// Whether the next instruction is the burst's first with an access.
    is_first: bool,
}

impl Decoder<'_> {
    fn decode(&mut self, burst: &Raw) {
        let mut sequence = Sequence::default();
        self.is_first = true;
        let words = &burst.words;
        let mut at = 0;
        while at < words.len() {
            let block = block_of(words[at]);
            at += 1;
            let length = words[at..].iter().take_while(|&&word| block_of(word).is_none()).count();
            let stored = &words[at..at + length];
            at += length;
            let references =
                block.and_then(|number| self.blocks.remove_entry(&(burst.head.generation, number)));
            let Some((key, references)) = references else {
                // What follows would not be contiguous.
                self.bursts.undecoded += 1;
                break;
            };
            self.execution(&references, stored, burst.head.thread_pointer, &mut sequence);
            self.blocks.insert(key, references);
        }
        if sequence.len() > 0 {
            self.bursts.threads.entry(burst.tid).or_default().push(sequence);
        }
    }

    /// One execution of a block, as far as it got.
    fn execution(
        &mut self,
        block: &[Reference],
        stored: &[u64],
        thread_pointer: u64,
        sequence: &mut Sequence,
    ) {
        let mut stored_next = stored.iter();
        let mut accesses = Vec::new();
        let mut elements = None;
        // Of the present gather or scatter: its instruction, and the elements that happen, from the next one on.
        let mut mask = (0, 0);
        for (index, reference) in block.iter().enumerate() {
            let address = match reference.source {
                Source::Word => match stored_next.next() {
                    Some(&word) => Some(word),
                    None => break,
                },
                Source::Near { word, distance } => {
                    stored.get(usize::from(word)).map(|address| address.wrapping_add_signed(distance))
                }
                Source::Fixed(address) => Some(address),
                Source::Thread(distance) => Some(thread_pointer.wrapping_add_signed(distance)),
                Source::Unknown | Source::LeftOut => None,
            };
            let action = match reference.used {
                Use::Count => {
                    elements = address;
                    None
                }
                Use::WayOut => None,
                Use::Mask => {
                    mask = (reference.pc, address.unwrap_or(0));
                    None
                }
                Use::Read | Use::Prefetch => Some(Action::Load),
                Use::Write => Some(Action::Store),
                Use::Both | Use::Locked => Some(Action::Modify),
            };
            if action.is_some() && mask.0 == reference.pc {
                let happens = mask.1 & 1 != 0;
                mask.1 >>= 1;
                if !happens {
                    continue;
                }
            }
            let (code, is_agents) = self.number(reference.pc);
            match (action, address) {
                (Some(_), None) => {
                    self.bursts.unknown.insert(code);
                    self.bursts.unknown_accesses += 1;
                }
                (Some(action), Some(address)) => accesses.push((action, address)),
                (None, _) => {}
            }
            // The next is another execution if its operand's number does not go on.
            let goes_on = block.get(index + 1).is_some_and(|next| {
                next.pc == reference.pc && (next.operand > reference.operand || next.used == Use::Count)
            });
            if goes_on {
                continue;
            }
            if is_agents {
                self.bursts.agents_accesses += accesses.len() as u64;
                accesses.clear();
            } else if elements.is_some() && self.is_first {
                self.bursts.cut += 1;
                accesses.clear();
            } else if !accesses.is_empty() {
                sequence.add(code, &mut accesses, elements);
            }
            self.is_first = false;
            elements = None;
        }
    }

    fn number(&mut self, pc: u64) -> (u32, bool) {
        if let Some(&known) = self.numbers.get(&pc) {
            return known;
        }
        let (path, offset) = self.places.find(pc).unwrap_or(("", pc));
        let file = self.codes.file(&canonical(path));
        let known = (self.codes.number(file, offset), is_agent(path));
        self.numbers.insert(pc, known);
        known
    }
}

fn canonical(path: &str) -> String {
    fs::canonicalize(Path::new(path))
        .map_or_else(|_| path.to_owned(), |path| path.to_string_lossy().into_owned())
}
