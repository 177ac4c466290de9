//! Accesses without a process: traces of other tools.

use crate::process::PipelineError;
use crate::snapshot::machine_info;
use memlens_profile::{Cell, CodeIx, CodeLocation, Object, ObjectIx, Profile, Thread, ThreadIx};
use memlens_sim::{Batch, CoreId, MachineDescription, Model, Outcome, Rules, SimdLevel};
use memlens_types::{AccessAttr, AccessKind, Counts, ObjectKind};

const CAPACITY: usize = 16 << 10;
const REASON: &str = "imported trace has no objects";

/// Runs a stream of addresses through a machine and sums up.
pub struct AddressStream {
    machine: MachineDescription,
    model: Model,
    addrs: Vec<u64>,
    attrs: Vec<AccessAttr>,
    outcome: Outcome,
    /// By kind: loads, stores, modifies, prefetches, fetches.
    counts: [Counts; 5],
}

impl AddressStream {
    /// An empty stream.
    ///
    /// # Errors
    ///
    /// If the machine cannot be modelled.
    pub fn new(machine: MachineDescription) -> Result<Self, PipelineError> {
        let model = Model::new(&machine, SimdLevel::detect())
            .map_err(|source| PipelineError::Machine { name: machine.name.clone(), source })?;
        Ok(Self {
            machine,
            model,
            addrs: Vec::with_capacity(CAPACITY),
            attrs: Vec::with_capacity(CAPACITY),
            outcome: Outcome::default(),
            counts: [Counts::default(); 5],
        })
    }

    /// Adds an access of `size` bytes.
    pub fn access(&mut self, kind: AccessKind, addr: u64, size: u32) {
        let counts = &mut self.counts[kind as usize];
        if kind.reads() {
            counts.loads += 1;
            counts.load_bytes += u64::from(size);
        }
        if kind.writes() {
            counts.stores += 1;
            counts.store_bytes += u64::from(size);
        }
        counts.modifies += u64::from(kind == AccessKind::Modify);
        counts.fetched.fetches += u64::from(kind == AccessKind::Fetch);
        self.addrs.push(addr);
        self.attrs.push(AccessAttr::new(kind, size));
        if self.addrs.len() == CAPACITY {
            self.run();
        }
    }

    fn run(&mut self) {
        let Self { outcome, counts, attrs, .. } = self;
        outcome.clear();
        self.model.access(CoreId(0), Batch { addrs: &self.addrs, attrs }, outcome);
        // valgrind's cachegrind takes a modify for a read.
        let modify_reads = self.machine.rules == Rules::Cachegrind;
        let is_store = |kind: AccessKind| kind.writes() && !(modify_reads && kind == AccessKind::Modify);
        let mut book = |indices: &[u32], field: fn(&mut Counts, bool) -> &mut u64| {
            for &index in indices {
                let kind = attrs[index as usize].kind();
                if kind.reads() || kind.writes() {
                    *field(&mut counts[kind as usize], is_store(kind)) += 1;
                }
            }
        };
        book(&outcome.l1_misses, |c, s| if s { &mut c.l1_store_misses } else { &mut c.l1_load_misses });
        book(&outcome.l2_misses, |c, s| if s { &mut c.l2_store_misses } else { &mut c.l2_load_misses });
        book(&outcome.llc_misses, |c, s| if s { &mut c.llc_store_misses } else { &mut c.llc_load_misses });
        book(&outcome.l2_prefetched, |c, _| &mut c.l2_prefetched);
        book(&outcome.llc_prefetched, |c, _| &mut c.llc_prefetched);
        book(&outcome.llc_misses, |c, _| &mut c.dram_reads);
        book(&outcome.dtlb_misses, |c, _| &mut c.dtlb_misses);
        book(&outcome.stlb_misses, |c, _| &mut c.stlb_misses);
        for walk in &outcome.walks {
            let kind = attrs[walk.index as usize].kind();
            counts[kind as usize].page_walk_accesses += u64::from(walk.entries_read);
            counts[kind as usize].walk_cycles += u64::from(walk.cycles);
        }
        // No objects: write-backs are nobody's, and stores made them.
        counts[AccessKind::Store as usize].dram_writes += outcome.dram_writes.len() as u64;
        let code = &mut counts[AccessKind::Fetch as usize];
        code.fetched.l1i_misses += outcome.l1i_misses.len() as u64;
        code.fetched.l2i_misses += outcome.l2i_misses.len() as u64;
        code.fetched.llci_misses += outcome.llci_misses.len() as u64;
        code.dram_reads += outcome.llci_misses.len() as u64;
        self.addrs.clear();
        self.attrs.clear();
    }

    /// The profile: one object of kind unknown, one row of code for each kind of access, instruction fetches
    /// included.
    pub fn finish(mut self) -> Profile {
        self.run();
        let mut profile = Profile { machine: machine_info(&self.machine), ..Profile::default() };
        profile.run.threads = 1;
        let fetches = self.counts[AccessKind::Fetch as usize].fetched.fetches;
        profile.run.instructions = (fetches > 0).then_some(fetches);
        profile.run.primary_cost = "wait_cycles".into();
        profile.threads.push(Thread::default());
        let mut object = Object { id: 1, kind: ObjectKind::Unknown, ..Object::default() };
        object.name = REASON.into();
        object.unknown_reason = Some(REASON.into());
        let mut accesses = 0;
        for kind in AccessKind::ALL {
            let mut counts = self.counts[kind as usize];
            if counts == Counts::default() {
                continue;
            }
            object.counts.dram_writes += std::mem::take(&mut counts.dram_writes);
            accesses += counts.accesses();
            let code = CodeIx::from_index(profile.code.len());
            profile.code.push(CodeLocation { id: code.0 + 1, kind, ..CodeLocation::default() });
            profile.cells.push(Cell {
                code,
                object: ObjectIx(0),
                thread: ThreadIx(0),
                counts: counts.into(),
            });
        }
        profile.objects.push(object);
        profile.sum_cells();
        profile.attribution.unknown_accesses = accesses;
        if accesses > 0 {
            profile.attribution.unknown_reasons.insert(REASON.into(), accesses);
        }
        profile
    }
}
