//! What a process does besides accessing memory: mappings, threads, signals, requests of the program.

use super::Process;
use crate::address_space::SiteName;
use crate::requests;
use crate::shadow_stack::ShadowStack;
use crate::thread::Thread;
use memlens_events::EventKind;
use memlens_objects::Layer;
use memlens_profile::Mark;
use std::ops::Range;

/// `MAP_ANONYMOUS` of Linux.
const MAP_ANONYMOUS: u64 = 0x20;
/// The same.
const MADV_DONTNEED: u64 = 4;

impl Process {
    pub(super) fn event(&mut self, thread: &mut Thread, number: usize, payload: &[u64]) {
        let Some((&code, arguments)) = payload.split_first() else { return };
        let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
        match EventKind::from_code(code as u16) {
            Some(EventKind::ThreadStart) => self.thread_start(thread, number, arguments),
            // Advice changes pages, not what lies where.
            Some(EventKind::MapAdvice) if argument(2) == MADV_DONTNEED => {
                self.pages_are_gone(thread, page_range(argument(0), argument(1)));
            }
            // Waiting is for those who model time.
            Some(EventKind::ThreadExit | EventKind::MapAdvice | EventKind::Waits) => {}
            Some(EventKind::ThreadName) => thread.name = name_of([argument(0), argument(1)]),
            Some(EventKind::MapAdd) => {
                let range = page_range(argument(0), argument(1));
                let old = argument(4);
                if old != 0 && self.space.remap(old, range.clone()) {
                    return self.check_generation(Some(thread));
                }
                let anonymous = argument(3) & MAP_ANONYMOUS != 0 || argument(3) == u64::MAX;
                let path = match (argument(5), anonymous) {
                    (0, true) => None,
                    (0, false) => self.file_at(range.start),
                    // As the kernel calls it in a process's map.
                    _ => Some(format!("/SYSV{:08x}", argument(6))),
                };
                let site = thread.stack.frames().last().map(|frame| frame.slot);
                let site = site.map(|slot| self.site(thread, slot));
                self.space.map(range, path.as_deref(), site, !thread.pending.is_empty());
            }
            Some(EventKind::MapRemove) => {
                let range = page_range(argument(0), argument(1));
                self.pages_are_gone(thread, range.clone());
                self.space.unmap(range);
            }
            Some(EventKind::Break) => self.space.set_break(argument(1)),
            Some(EventKind::ModuleUnload) => {
                self.space.remove_module(argument(0) as u32);
                for other in self.threads.iter_mut().flatten() {
                    other.references.forget_all();
                }
                thread.references.forget_all();
            }
            Some(EventKind::SignalFrame) => {
                let stack_pointer = argument(0);
                if thread.stack.is_elsewhere(stack_pointer) {
                    let range = self.space.stack_around(stack_pointer);
                    thread.stack.switch(range, stack_pointer);
                }
                thread.stack.signal(stack_pointer, self.space.frame_key(argument(1)));
            }
            Some(EventKind::PartialBlock) => self.partial_block(thread, arguments),
            Some(EventKind::Request) => self.request(thread, number, arguments),
            Some(EventKind::AllocatedPointer) => {
                if let Some((call, site)) = thread.awaiting_pointer.take() {
                    self.pointer_stored(thread, &call, site, argument(0));
                }
            }
            Some(EventKind::ModuleLoad) => self.space.place_module(argument(0) as u32),
            Some(kind @ (EventKind::Fork | EventKind::Exec | EventKind::ProcessExit)) => {
                self.family_event((thread, number), kind, arguments);
            }
            None => self.irregularities.damaged_records += 1,
        }
        self.check_generation(Some(thread));
    }

    fn thread_start(&mut self, thread: &mut Thread, number: usize, arguments: &[u64]) {
        let &[tid, stack_pointer, thread_pointer, ..] = arguments else { return };
        thread.tid = tid as u32;
        if stack_pointer != 0 {
            let known = if self.first_thread_seen { None } else { self.first_thread() };
            self.first_thread_seen = true;
            let range = self.space.add_stack((thread.tid, number), stack_pointer, known);
            self.space.add_tls(thread_pointer);
            // glibc puts a thread's control block and variables at the upper end of its stack's mapping.
            let has_block = range.contains(&thread_pointer);
            let range = if has_block { self.space.stack_around(stack_pointer).0 } else { range };
            thread.stack = ShadowStack::new(stack_pointer, range);
        } else {
            self.space.add_tls(thread_pointer);
        }
    }

    /// Reads what the kernel set up before the program's first instruction: returns the main stack.
    fn first_thread(&mut self) -> Option<Range<u64>> {
        let maps = self.maps()?;
        let mut stack = None;
        for line in maps.lines() {
            let mut fields = line.split_ascii_whitespace();
            let range = fields.next().and_then(parse_range);
            let (Some(range), Some(name)) = (range, fields.nth(4)) else { continue };
            match name {
                // It may grow downwards by the usual limit.
                "[stack]" => stack = Some(range.end.saturating_sub(8 << 20).min(range.start)..range.end),
                "[vvar]" | "[vvar_vclock]" | "[vsyscall]" => self.space.add_kernel_pages(range),
                _ => {}
            }
        }
        stack
    }

    /// The process's `/proc/PID/maps`, whose names need not be UTF-8.
    fn maps(&self) -> Option<String> {
        let maps = std::fs::read(format!("/proc/{}/maps", self.pid?)).ok()?;
        Some(String::from_utf8_lossy(&maps).into_owned())
    }

    /// The file mapped at `addr`, as the process's map says now.
    fn file_at(&self, addr: u64) -> Option<String> {
        let maps = self.maps()?;
        maps.lines().find_map(|line| {
            let range = parse_range(line.split_ascii_whitespace().next()?)?;
            let path = line.find('/').filter(|_| range.contains(&addr))?;
            Some(line[path..].to_owned())
        })
    }

    fn request(&mut self, thread: &mut Thread, number: usize, arguments: &[u64]) {
        let Some(request) = arguments.first_chunk::<6>().and_then(requests::Action::of) else { return };
        let instructions = self.instructions() + thread.instructions;
        match request {
            requests::Action::Collect(on) => self.set_collecting(on.unwrap_or(!self.collecting)),
            requests::Action::Zero => {
                self.run_batch(Some(thread));
                while let Some(done) = self.simulator.next_finished() {
                    self.book(done, Some(thread));
                }
                thread.settle(&self.blocks).zero();
                for other in self.threads.iter_mut().flatten() {
                    other.settle(&self.blocks).zero();
                }
                self.dram_writes.clear();
                self.timeline.zero();
            }
            requests::Action::Mark { name, name_bytes } => {
                let name = requests::text(arguments).or_else(|| self.text(name, name_bytes));
                let name = name.unwrap_or_else(|| "mark".into());
                let thread = Some(memlens_profile::ThreadIx::from_index(number));
                self.marks.push(Mark { instructions, thread, name });
            }
            requests::Action::Region { start, bytes, name, name_bytes } => {
                let name = requests::text(arguments).or_else(|| self.text(name, name_bytes));
                let pc = requests::pc(arguments).map(|pc| self.space.frame_key(pc));
                let site = self.region_site(thread, pc, name.as_deref());
                if let Some(name) = name {
                    self.space.name_site(site, SiteName::Text(name));
                }
                self.new_block(start, bytes, Layer::POOL, site);
            }
            requests::Action::RegionFreed { start } => {
                self.space.freed(start, Layer::POOL);
            }
        }
    }

    /// Text in the target's memory, read now.
    fn text(&self, addr: u64, bytes: u64) -> Option<String> {
        requests::read_text(self.pid?, addr, bytes)
    }
}

fn page_range(start: u64, len: u64) -> Range<u64> {
    start..start.saturating_add(len).next_multiple_of(4096)
}

/// The text in the words of a `ThreadName`; `None`: it is empty.
fn name_of(words: [u64; 2]) -> Option<String> {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0).collect();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn parse_range(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}
