//! What lies where in one process, as the kernel's records tell it.
//!
//! The kernel reports mappings that come, not those that go: a later mapping replaces what it covers. Of the break and the
//! first thread's stack nobody is told that they grow.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::modules::{Files, Placement, VDSO};
use crate::record::NewMapping;
use crate::unwinder::StackUnwinder;

/// The code a sample is booked on: file and svma, or an address outside of every file.
pub type Code = (Option<u32>, u64);

/// The break grows upwards from the program's end, at most so far, where the next mapping is at least [`BREAK_GAP`] away: in the
/// range for mappings, which are found from its top down (Linux, `mm/mmap.c`, `arch_pick_mmap_layout`).
const BREAK_BYTES: u64 = 64 << 30;
/// See [`BREAK_BYTES`].
const BREAK_GAP: u64 = 1 << 40;
/// So far the first thread's stack grows downwards, unless something else is there: its limit is mostly 8 MiB (setrlimit(2)).
const STACK_BYTES: u64 = 64 << 20;

/// Memory without a file of code behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Area {
    /// `brk`'s: small blocks of most allocators.
    Break,
    /// Anonymous private memory: large blocks, arenas, stacks of threads.
    Anonymous,
    /// The first thread's stack.
    Stack,
    /// vDSO, vvar, vsyscall.
    Kernel,
    /// A mapped file, or shared memory, by its name.
    File(String),
}

/// What an address belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An executable or library.
    Image {
        /// Its number.
        file: u32,
        /// Address as the file states it.
        svma: u64,
    },
    /// Other memory.
    Area(Area),
    /// Nothing that is known.
    Unmapped,
}

#[derive(Clone, Debug)]
struct Image {
    file: u32,
    placement: Placement,
}

/// The address space of a process.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace {
    /// Start → end and what it is.
    areas: BTreeMap<u64, (u64, Area)>,
    /// Start → image; none overlap.
    images: BTreeMap<u64, Image>,
    unwinder: StackUnwinder,
    /// Memlens's own: the agent's code and data, and its segment.
    agents: Vec<Range<u64>>,
}

impl AddressSpace {
    /// A mapping came into being.
    pub fn map(&mut self, mapping: &NewMapping, files: &mut Files) {
        let Some(end) = mapping.start.checked_add(mapping.length) else { return };
        let name = mapping.name.as_str();
        if name.contains("/memfd:memlens-agent") || name.ends_with("/libmemlens_agent.so") {
            let is_known = self.is_agents(mapping.start);
            match self.agents.iter_mut().find(|range| range.end == mapping.start) {
                Some(range) => range.end = end,
                None if is_known => {}
                None => self.agents.push(mapping.start..end),
            }
        }
        let is_file = name.starts_with('/')
            && !name.starts_with("//")
            && !name.starts_with("/dev/")
            && !name.starts_with("/memfd:")
            && !name.starts_with("/SYSV");
        // What lies between segments has an offset in the file, which may be another segment's, and is none.
        if is_file && !mapping.is_reserved {
            let number = files.number(name.trim_end_matches(" (deleted)"), mapping.inode);
            let placements = files
                .get(number)
                .map(|file| file.placements(mapping.start, mapping.file_offset, mapping.is_executable));
            let placements = placements.unwrap_or_default();
            let is_known = |placement: &Placement| {
                let image = self.images.get(&placement.start);
                image.is_some_and(|image| image.file == number && image.placement == *placement)
            };
            if !placements.iter().any(is_known)
                && let Some(&placement) = placements.first()
            {
                self.place(number, placement, files);
            }
        }
        if name == VDSO {
            files.add_vdso(mapping.start..end);
        }
        let area = match name {
            "[heap]" => Area::Break,
            "[stack]" => Area::Stack,
            "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]" => Area::Kernel,
            // Shared by processes, and of huge pages.
            "" | "//anon" | "/dev/zero (deleted)" | "/anon_hugepage (deleted)" => Area::Anonymous,
            name if name.starts_with("[anon") || name.starts_with("[stack:") => Area::Anonymous,
            name => Area::File(name.to_owned()),
        };
        self.cut(mapping.start, end);
        self.areas.insert(mapping.start, (end, area));
    }

    fn place(&mut self, file: u32, placement: Placement, files: &Files) {
        let covered: Vec<u64> = self
            .images
            .range(..placement.end)
            .filter(|(_, image)| image.placement.end > placement.start)
            .map(|(&start, _)| start)
            .collect();
        for start in covered {
            self.images.remove(&start);
            self.unwinder.remove(start);
        }
        if let Some(sections) = files.get(file).and_then(|file| file.unwind_sections()) {
            self.unwinder.add(placement.start, placement.end, placement.bias, sections);
        }
        self.images.insert(placement.start, Image { file, placement });
    }

    /// Takes `start..end` out of what is mapped.
    fn cut(&mut self, start: u64, end: u64) {
        let touched: Vec<(u64, u64, Area)> = self
            .areas
            .range(..end)
            .rev()
            .take_while(|(_, (area_end, _))| *area_end > start)
            .map(|(&area_start, (area_end, area))| (area_start, *area_end, area.clone()))
            .collect();
        for (area_start, area_end, area) in touched {
            self.areas.remove(&area_start);
            if area_start < start {
                self.areas.insert(area_start, (start, area.clone()));
            }
            if area_end > end {
                self.areas.insert(end, (area_end, area));
            }
        }
    }

    /// What an address belongs to. An address in the span of an image is the image's even where
    /// anonymous memory is mapped (`.bss`).
    pub fn find(&self, address: u64) -> Place {
        match self.find_known(address) {
            Place::Unmapped => self.grown(address).map_or(Place::Unmapped, Place::Area),
            place => place,
        }
    }

    /// Whether it was told what is at an address.
    pub fn is_known(&self, address: u64) -> bool {
        self.find_known(address) != Place::Unmapped
    }

    /// What must have grown, if an access was made to an address where nothing is known to be.
    fn grown(&self, address: u64) -> Option<Area> {
        let (_, &(below, _)) = self.areas.range(..=address).next_back()?;
        let (&above, (_, next)) = self.areas.range(address..).next()?;
        if above - below >= BREAK_GAP && address - below < BREAK_BYTES {
            return Some(Area::Break);
        }
        (*next == Area::Stack && above - address <= STACK_BYTES).then_some(Area::Stack)
    }

    fn find_known(&self, address: u64) -> Place {
        if let Some((_, image)) = self.images.range(..=address).next_back()
            && address < image.placement.end
        {
            return Place::Image { file: image.file, svma: address.wrapping_sub(image.placement.bias) };
        }
        match self.areas.range(..=address).next_back() {
            Some((_, (end, area))) if address < *end => Place::Area(area.clone()),
            _ => Place::Unmapped,
        }
    }

    /// The mapping that an address lies in, if it is no image's.
    pub fn area(&self, address: u64) -> Option<Range<u64>> {
        let (&start, &(end, _)) = self.areas.range(..=address).next_back()?;
        (address < end).then_some(start..end)
    }

    /// How long the image is that has this address, with what is not from its file.
    pub fn image_bytes(&self, address: u64) -> Option<u64> {
        let (_, Image { placement, .. }) = self.images.range(..=address).next_back()?;
        (address < placement.end).then_some(placement.end - placement.start)
    }

    /// Whether an image has some of these addresses.
    pub fn has_image_in(&self, range: &Range<u64>) -> bool {
        let last = self.images.range(..range.end).next_back();
        last.is_some_and(|(_, image)| image.placement.end > range.start)
    }

    /// The file and svma of an address; None: it lies outside of every image.
    pub fn in_image(&self, address: u64) -> Option<(u32, u64)> {
        match self.find(address) {
            Place::Image { file, svma } => Some((file, svma)),
            _ => None,
        }
    }

    /// The code at an address.
    pub fn code(&self, address: u64) -> Code {
        self.in_image(address).map_or((None, address), |(file, svma)| (Some(file), svma))
    }

    /// The address of what an image states at `svma`.
    pub fn address_of(&self, pc: u64, svma: u64) -> Option<u64> {
        let (_, image) = self.images.range(..=pc).next_back()?;
        Some(svma.wrapping_add(image.placement.bias))
    }

    /// The program's executable, which the kernel maps below all libraries.
    pub fn executable(&self) -> Option<u32> {
        self.images.first_key_value().map(|(_, image)| image.file)
    }

    /// Whether it is memory of the agent, which the program would not have without memlens.
    pub fn is_agents(&self, address: u64) -> bool {
        self.agents.iter().any(|range| range.contains(&address))
    }

    /// For its stacks.
    pub fn unwinder(&self) -> &StackUnwinder {
        &self.unwinder
    }

    /// Whether nothing is known of it.
    pub fn is_empty(&self) -> bool {
        self.areas.is_empty()
    }
}

/// The mappings of a process that runs already, from `/proc/PID/maps` (proc_pid_maps(5)).
///
/// # Errors
/// If the process has ended, or is not ours to look at.
pub fn running_mappings(pid: u32) -> std::io::Result<Vec<NewMapping>> {
    // Names are bytes, of which not all are UTF-8.
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    // One that has ended, and that nobody has waited for, has nothing mapped.
    if text.is_empty() {
        return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(mappings_of(&String::from_utf8_lossy(&text), pid))
}

/// What a process's `/proc/PID/maps` says.
pub fn mappings_of(text: &str, pid: u32) -> Vec<NewMapping> {
    text.split('\n').filter_map(|line| mapping_of(line, pid)).collect()
}

/// `7f00-7f10 r-xp 00001000 fe:01 1234   /usr/lib/x.so`
fn mapping_of(line: &str, pid: u32) -> Option<NewMapping> {
    let mut rest = line;
    let mut word = || {
        rest = rest.trim_start();
        let end = rest.find(' ').unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail;
        word
    };
    let (range, access, offset, _device, inode) = (word(), word(), word(), word(), word());
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    Some(NewMapping {
        pid,
        start,
        length: end.checked_sub(start)?,
        file_offset: u64::from_str_radix(offset, 16).ok()?,
        inode: inode.parse().ok()?,
        is_executable: access.contains('x'),
        is_reserved: !access.contains(['r', 'w', 'x']),
        // Blanks at its end are the file's.
        name: rest.trim_start_matches(' ').to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, length: u64, name: &str) -> NewMapping {
        NewMapping { start, length, name: name.into(), ..NewMapping::default() }
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_is_none() {
        let mut child = std::process::Command::new("true").spawn().expect("it starts");
        let stat = format!("/proc/{}/stat", child.id());
        while !std::fs::read_to_string(&stat).expect("it is there").contains(") Z ") {
            std::thread::yield_now();
        }
        let error = running_mappings(child.id()).expect_err("it has ended");
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        child.wait().expect("it has ended");
    }

    #[test]
    fn a_later_mapping_replaces_what_it_covers() {
        let (mut space, mut files) = (AddressSpace::default(), Files::default());
        //  1000        4000        8000
        //  [ anonymous             ]
        //        [ heap ]
        //        2000    3000
        space.map(&mapping(0x1000, 0x7000, "//anon"), &mut files);
        space.map(&mapping(0x2000, 0x1000, "[heap]"), &mut files);
        assert_eq!(space.find(0x1fff), Place::Area(Area::Anonymous));
        assert_eq!(space.find(0x2000), Place::Area(Area::Break));
        assert_eq!(space.find(0x3000), Place::Area(Area::Anonymous));
        assert_eq!(space.find(0x8000), Place::Unmapped);
        assert_eq!(space.find(0), Place::Unmapped);
    }

    #[test]
    fn the_break_and_the_stack_grow_untold() {
        let (mut space, mut files) = (AddressSpace::default(), Files::default());
        space.map(&mapping(0x5550_0000_0000, 0x1000, "//anon"), &mut files);
        let end = 0x5550_0000_1000;
        space.map(&mapping(0x7f00_0000_0000, 0x1000, "//anon"), &mut files);
        space.map(&mapping(0x7ffc_0000_0000, 0x21000, "[stack]"), &mut files);
        let grown = |address| (space.find(address), space.is_known(address));
        assert_eq!(grown(end), (Place::Area(Area::Break), false));
        assert_eq!(grown(end + BREAK_BYTES), (Place::Unmapped, false));
        assert_eq!(grown(0x7eff_ffff_f000), (Place::Unmapped, false));
        assert_eq!(grown(0x7f00_0000_1000), (Place::Unmapped, false));
        assert_eq!(grown(0x7ffb_ffff_f000), (Place::Area(Area::Stack), false));
        assert_eq!(grown(0x7ffc_0000_0000), (Place::Area(Area::Stack), true));
        assert_eq!(grown(0x7ffc_0002_1000), (Place::Unmapped, false));
        assert_eq!(grown(0x1000), (Place::Unmapped, false));
    }

    #[test]
    fn the_agents_memory_is_known() {
        let (mut space, mut files) = (AddressSpace::default(), Files::default());
        space.map(&mapping(0x1000, 0x1000, "/cache/agent-12/libmemlens_agent.so"), &mut files);
        space.map(&mapping(0x2000, 0x1000, "/cache/agent-12/libmemlens_agent.so"), &mut files);
        space.map(&mapping(0x3000, 0x1000, ""), &mut files);
        space.map(&mapping(0x8000, 0x1000, "/memfd:memlens-agent (deleted)"), &mut files);
        space.map(&mapping(0x8000, 0x1000, "/memfd:memlens-agent (deleted)"), &mut files);
        assert_eq!(
            [0xfff, 0x1000, 0x2fff, 0x3000, 0x8800].map(|at| space.is_agents(at)),
            [false, true, true, false, true]
        );
        assert_eq!(space.agents.len(), 2);
    }

    #[test]
    fn our_own_code_is_found_where_it_lies() {
        let (mut space, mut files) = (AddressSpace::default(), Files::default());
        for mapping in running_mappings(std::process::id()).expect("our own") {
            space.map(&mapping, &mut files);
        }
        let address = our_own_code_is_found_where_it_lies as fn() as usize as u64;
        let (file, svma) = space.in_image(address).expect("mapped");
        let symbols = files.get(file).and_then(|file| file.symbols()).expect("readable");
        let function = symbols.function_at(svma).expect("known");
        assert!(function.name.is_some_and(|name| name.contains("our_own_code_is_found")), "{svma:#x}");
        let local = 0u64;
        assert_ne!(space.find(std::ptr::from_ref(&local) as u64), Place::Unmapped);
        static ZEROED: [std::sync::atomic::AtomicU64; 4096] =
            [const { std::sync::atomic::AtomicU64::new(0) }; 4096];
        let zeroed = std::ptr::from_ref(&ZEROED[4095]) as u64;
        assert!(matches!(space.find(zeroed), Place::Image { file: found, .. } if found == file));
    }

    #[test]
    fn what_keeps_addresses_free_places_no_file() {
        let mappings = running_mappings(std::process::id()).expect("our own");
        let (mut space, mut files) = (AddressSpace::default(), Files::default());
        for mapping in &mappings {
            space.map(mapping, &mut files);
        }
        let address = what_keeps_addresses_free_places_no_file as fn() as usize as u64;
        let code = space.in_image(address).expect("mapped");
        let is_ours = |it: &&NewMapping| (it.start..it.start + it.length).contains(&address);
        let ours = mappings.iter().find(is_ours).expect("mapped");
        // Others of our file are whole, from its begin on: somebody reads it.
        let is_behind = |it: &&NewMapping| it.start > ours.start && it.file_offset > ours.file_offset;
        let data = mappings.iter().filter(|it| it.name == ours.name).rfind(is_behind).expect("mapped");
        // As below the data of a library of AArch64, which begins 64 KiB behind where the code's mapping would have it.
        let between = NewMapping { start: data.start - (64 << 10), length: 64 << 10, ..data.clone() };
        space.map(&NewMapping { is_reserved: true, ..between.clone() }, &mut files);
        assert_eq!(space.in_image(address), Some(code));
        space.map(&between, &mut files);
        assert_ne!(space.in_image(address), Some(code), "what may be accessed is a segment");
    }

    #[test]
    fn a_name_that_is_no_utf8_hides_no_mapping() {
        use std::os::unix::ffi::OsStrExt as _;
        use std::time::{Duration, Instant};
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(std::ffi::OsStr::from_bytes(b"sl\xe9ep"));
        std::fs::copy("/bin/sleep", &path).expect("there");
        let mut child = loop {
            match std::process::Command::new(&path).arg("60").spawn() {
                // A process that another test makes has the copy open until it executes.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                spawned => break spawned.expect("runs"),
            }
        };
        let named = |mappings: &[NewMapping], end: &str| mappings.iter().any(|it| it.name.ends_with(end));
        // It is a while until the kernel has mapped the program.
        let deadline = Instant::now() + Duration::from_secs(10);
        let mappings = loop {
            let mappings = running_mappings(child.id()).expect("it runs");
            if named(&mappings, "sl\u{fffd}ep") || Instant::now() > deadline {
                break mappings;
            }
        };
        child.kill().and_then(|()| child.wait()).expect("ended");
        assert!(named(&mappings, "sl\u{fffd}ep") && named(&mappings, "[stack]"), "{mappings:?}");
    }

    #[test]
    fn lines_of_the_kernels_list() {
        let line = "7f3a00001000-7f3a00003000 r-xp 00002000 fe:01 77                 /opt/a b/lib.so";
        let mapping = mapping_of(line, 5).expect("a mapping");
        assert_eq!((mapping.start, mapping.length, mapping.file_offset), (0x7f3a_0000_1000, 0x2000, 0x2000));
        assert_eq!((mapping.inode, mapping.is_executable, &*mapping.name), (77, true, "/opt/a b/lib.so"));
        assert!(!mapping.is_reserved);
        let between = mapping_of("7f3a00003000-7f3a00004000 ---p 00003000 fe:01 77   /opt/lib.so", 5);
        assert!(between.is_some_and(|between| between.is_reserved && !between.is_executable));
        assert_eq!(mapping_of("", 5), None);
        let text = "1000-2000 r-xp 0 fe:01 77   /opt/a \r\n3000-4000 rw-p 0 00:00 0 \n";
        let names: Vec<_> = mappings_of(text, 5).into_iter().map(|mapping| mapping.name).collect();
        assert_eq!(names, ["/opt/a \r", ""], "what ends a file's name is its own");
    }
}
