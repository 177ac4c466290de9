//! The DynamoRIO client: records every access of the target into shared memory.
//!
//! It knows machine code, and the events that DynamoRIO reports. It deliberately knows nothing of
//! objects, caches, files or symbols: memlens, in another process, tells it which addresses are
//! special ([`memlens_events::SpecialRole`]) and makes sense of the rest.
//!
//! ```text
//! lib.rs        start, threads, system calls, signals, fork, exit
//! instrument.rs what a block's code becomes       operands.rs  what an instruction touches
//! blocks.rs     block ids                         modules.rs   modules, special addresses
//! requests.rs   client requests                   channel.rs   the shared segment, writer's side
//! ir.rs         instruction constructors          sys.rs       system calls of our own
//! pre_encode.rs instructions' bytes, machine_code.rs how they follow from operands
//! syscalls.rs   system calls of the target        signals.rs   signals across execve
//! follow.rs     programs recorded besides         own_exe.rs   /proc/self/exe is the program
//! program_break.rs brk(2)
//! ```
//!
//! # Signal safety
//! Everything here runs inside the target, on DynamoRIO's stacks, under DynamoRIO's rules: memory
//! comes from DynamoRIO's heap, no lock of the target's libc is ever taken, and there is no
//! thread-local storage of Rust's (the private loader's support for it is not relied on).

mod blocks;
mod channel;
mod follow;
mod instrument;
mod ir;
mod machine_code;
mod modules;
mod operands;
mod own_exe;
mod pre_encode;
mod program_break;
mod requests;
mod shared_memory;
mod signals;
mod startup;
mod state;
mod sys;
mod syscalls;

use channel::{CHANNEL, Thread, ThreadArea};
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;
use dynamorio_sys::*;
use memlens_events::segment::SlotState;
use memlens_events::{EventKind, MAX_BLOCK_WORDS, RecordHeader};
use state::STATE;

/// DynamoRIO refuses clients that do not say which of its versions they were built for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static _USES_DR_VERSION_: c_int = 1190;

/// Words of [`ThreadArea`].
const AREA_WORDS: u32 = 4;

/// DynamoRIO's entry into the client. The arguments are the segment's file descriptor (`-`: ask for one),
/// the sets of signals ignored and blocked, in hexadecimal, and, if further programs are to be recorded, the
/// socket on which to ask for segments, and which programs ([`follow::start`]).
///
/// # Safety
/// Called by DynamoRIO, once, before the target's first instruction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dr_client_main(_id: client_id_t, argc: c_int, argv: *const *const c_char) {
    // SAFETY: DynamoRIO's start-up contract; the argument vector is its own.
    unsafe {
        let argument = |index: usize| {
            let text = (argc as usize > index).then(|| core::ffi::CStr::from_ptr(*argv.add(index)));
            text.and_then(|text| text.to_str().ok())
        };
        let signals =
            |index| argument(index).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0);
        signals::start(signals(2), signals(3));
        let options = startup::hide_environment();
        own_exe::initialise();
        if let (Some(socket), Some(whom), Some(options)) = (argument(4), argument(5), options) {
            follow::start(socket.as_bytes(), whom.as_bytes(), &options);
        }
        let fd = match argument(1) {
            Some("-") => follow::segment_after_exec(),
            text => text.and_then(|text| text.parse().ok()),
        };
        let is_recorded = fd.is_some_and(|fd| CHANNEL.connect(fd));
        if !is_recorded && !follow::is_on() {
            // Without memlens the target runs on, unrecorded.
            return;
        }
        let mut options: drreg_options_t = core::mem::zeroed();
        options.struct_size = core::mem::size_of::<drreg_options_t>();
        options.num_spill_slots = 6;
        drmgr_init();
        drutil_init();
        drx_init();
        drreg_init(&mut options);
        let (mut segment, mut offset) = (0, 0);
        dr_raw_tls_calloc(&mut segment, &mut offset, AREA_WORDS, 0);
        STATE.tls_segment.store(segment, Ordering::Relaxed);
        STATE.tls_offset.store(offset, Ordering::Relaxed);
        STATE.tls_field.store(drmgr_register_tls_field(), Ordering::Relaxed);
        program_break::BREAK.initialise();
        modules::SPECIALS.initialise();
        blocks::BLOCKS.initialise();
        startup::make_stubs(next_chunk as *mut c_void);
        dr_register_exit_event(Some(process_exit));
        drmgr_register_thread_init_event(Some(thread_init));
        drmgr_register_thread_exit_event(Some(thread_exit));
        dr_register_fork_init_event(Some(fork_init));
        dr_register_filter_syscall_event(Some(syscalls::filter));
        drmgr_register_pre_syscall_event(Some(syscalls::before));
        drmgr_register_post_syscall_event(Some(syscalls::after));
        if !is_recorded {
            // memlens has too many processes to record this one; those that it executes may be again.
            return;
        }
        drmgr_register_module_load_event(Some(module_load));
        drmgr_register_module_unload_event(Some(module_unload));
        drmgr_register_kernel_xfer_event(Some(kernel_transfer));
        drmgr_register_bb_app2app_event(Some(instrument::transform), core::ptr::null_mut());
        drmgr_register_bb_instrumentation_event(
            Some(instrument::analyse),
            Some(instrument::insert),
            core::ptr::null_mut(),
        );
        drmgr_register_bb_instru2instru_event(Some(pre_encode::pre_encode), core::ptr::null_mut());
    }
}

/// Called by the stubs when a thread's chunk is full.
unsafe extern "C" fn next_chunk() {
    // SAFETY: a clean call of this thread.
    unsafe {
        let context = dr_get_current_drcontext();
        let thread = STATE.thread(context);
        thread.in_clean_call = Some(context);
        let may_have_signals = thread.next_chunk();
        // A child made by vfork shares all memory: its parent waits, and cannot be waited for.
        if may_have_signals && CHANNEL.is_own_process() {
            signals::deliver(thread.block_id());
        }
        thread.in_clean_call = None;
    }
}

/// Called before an allocation function returns that stored its block's address through a pointer.
unsafe extern "C" fn tell_pointer() {
    // SAFETY: a clean call of this thread; the pointer is read with fault protection.
    unsafe {
        let thread = STATE.thread(dr_get_current_drcontext());
        let (mut block, mut read) = (0_u64, 0);
        if dr_safe_read(thread.kept_pointer().cast(), 8, (&raw mut block).cast(), &mut read) != 0 {
            thread.event(EventKind::AllocatedPointer, &[block]);
        }
    }
}

unsafe extern "C" fn thread_init(context: *mut c_void) {
    // SAFETY: runs on the new thread, whose area was allocated by DynamoRIO; the box is freed in
    // `thread_exit`.
    unsafe {
        let base = dr_get_dr_segment_base(STATE.tls_segment.load(Ordering::Relaxed)).cast::<u8>();
        let area = base.add(STATE.tls_offset.load(Ordering::Relaxed) as usize).cast::<ThreadArea>();
        let tid = dr_get_thread_id(context) as u32;
        let mut thread = Box::new(Thread::new(area, tid));
        let mut machine: dr_mcontext_t = core::mem::zeroed();
        machine.size = core::mem::size_of::<dr_mcontext_t>();
        machine.flags = dr_mcontext_flags_t::DR_MC_CONTROL;
        let has_context = dr_get_mcontext(context, &mut machine) != 0;
        // The first thread has no context yet.
        let stack_pointer = match machine.__bindgen_anon_4.xsp {
            pointer if has_context && pointer != 0 => pointer,
            _ => startup::initial_stack_pointer().unwrap_or(0),
        };
        thread.event(EventKind::ThreadStart, &[u64::from(tid), stack_pointer, thread_pointer(&mut machine)]);
        let field = STATE.tls_field.load(Ordering::Relaxed);
        drmgr_set_tls_field(context, field, Box::into_raw(thread).cast());
    }
}

/// The base of the fs segment: where the thread control block is, above the thread-local variables.
///
/// # Safety
/// Called on the thread itself.
unsafe fn thread_pointer(machine: &mut dr_mcontext_t) -> u64 {
    let none = DR_REG_NULL as reg_id_t;
    // SAFETY: computes an address, touches no memory of the target.
    unsafe {
        let zero = opnd_create_far_base_disp(DR_SEG_FS as reg_id_t, none, none, 0, 0, OPSZ_8 as opnd_size_t);
        opnd_compute_address(zero, machine) as u64
    }
}

unsafe extern "C" fn thread_exit(context: *mut c_void) {
    // SAFETY: the last event of the thread; the box came from `thread_init`. When the process ends, it may be of another thread, which
    // was stopped while it waited for room and never runs again.
    unsafe {
        let field = STATE.tls_field.load(Ordering::Relaxed);
        let mut thread = Box::from_raw(drmgr_get_tls_field(context, field).cast::<Thread>());
        if follow::is_forking() && !CHANNEL.is_own_process() {
            // A copy, in a forked child, of a thread that lives on in the parent.
            return;
        }
        thread.in_clean_call = None;
        thread.event(EventKind::ThreadExit, &[dr_get_thread_id(context) as u64]);
        thread.publish(SlotState::Exited);
    }
}

unsafe extern "C" fn process_exit() {
    CHANNEL.close();
}

unsafe extern "C" fn module_load(context: *mut c_void, data: *const module_data_t, _loaded: bool_) {
    // SAFETY: DynamoRIO's data lives for the call.
    unsafe {
        // DynamoRIO also reports the libraries that it loaded itself before the target's start.
        let start = (*data).__bindgen_anon_1.start;
        if dr_memory_is_in_client(start) != 0 || dr_memory_is_dr_internal(start) != 0 {
            return;
        }
        if let Some(id) = modules::SPECIALS.module_loaded(&*data) {
            module_event(context, EventKind::ModuleLoad, id);
        }
    }
}

/// The dynamic linker mapped a file: if it is a module, memlens is told now. DynamoRIO tells of it when its code runs first,
/// but before that the linker reads and writes its tables.
///
/// # Safety
/// `context` is the calling thread's.
pub(crate) unsafe fn file_mapped(context: *mut c_void, address: u64) {
    // SAFETY: the module's data is ours, and freed after the call.
    unsafe {
        let data = dr_lookup_module(address as *mut u8);
        if data.is_null() {
            return;
        }
        if (*data).__bindgen_anon_1.start as u64 == address {
            module_load(context, data, 1);
        }
        dr_free_module_data(data);
    }
}

/// Memory is about to be unmapped: if it is a module, it is gone.
///
/// # Safety
/// `context` is the calling thread's.
pub(crate) unsafe fn unmapped(context: *mut c_void, memory: core::ops::Range<u64>) {
    if let Some(id) = modules::SPECIALS.unmapped(memory) {
        // SAFETY: the caller's promise.
        unsafe { module_event(context, EventKind::ModuleUnload, id) };
    }
}

unsafe extern "C" fn module_unload(context: *mut c_void, data: *const module_data_t) {
    // SAFETY: DynamoRIO's data lives for the call.
    unsafe {
        if let Some(id) = modules::SPECIALS.module_unloaded(&*data) {
            module_event(context, EventKind::ModuleUnload, id);
        }
    }
}

/// # Safety
/// `context` is the calling thread's.
unsafe fn module_event(context: *mut c_void, kind: EventKind, id: u32) {
    let field = STATE.tls_field.load(Ordering::Relaxed);
    // SAFETY: the caller's promise. Modules mapped before the first thread's init event have no
    // thread yet; their definition alone then stands for the event.
    unsafe {
        if !drmgr_get_tls_field(context, field).is_null() {
            STATE.thread(context).event(kind, &[u64::from(id)]);
        }
    }
}

/// A signal is delivered: the handler's frame begins, and the block that faulted ends early.
unsafe extern "C" fn kernel_transfer(context: *mut c_void, info: *const dr_kernel_xfer_info_t) {
    // SAFETY: DynamoRIO's information lives for the call; the thread is the calling one.
    unsafe {
        let info = &*info;
        if info.type_ != dr_kernel_xfer_type_t_DR_XFER_SIGNAL_DELIVERY {
            return;
        }
        let thread = STATE.thread(context);
        const SYNCHRONOUS: [c_int; 5] = [4, 5, 7, 8, 11];
        if SYNCHRONOUS.contains(&info.sig) && !info.source_mcontext.is_null() {
            let pc = (*info.source_mcontext).__bindgen_anon_10.xip as u64;
            let unfinished = thread.unfinished_block();
            let header = RecordHeader(unfinished[0]);
            let mut payload = vec![unfinished[0], pc];
            payload.extend(&unfinished[1..1 + header.words().min(MAX_BLOCK_WORDS - 3)]);
            thread.event(EventKind::PartialBlock, &payload);
        }
        thread.event(EventKind::SignalFrame, &[info.target_xsp, info.target_pc as u64]);
    }
}

/// In a forked child: the segment belongs to the parent. The child gets one of its own, or records
/// nothing.
unsafe extern "C" fn fork_init(context: *mut c_void) {
    // SAFETY: the calling thread's own state; no other thread is left.
    unsafe {
        let thread = STATE.thread(context);
        follow::set_forking(false);
        let announced = thread.fork.take().filter(|_| !CHANNEL.is_detached());
        if let Some((token, known)) = announced {
            CHANNEL.forget_other_forks();
            let parent = CHANNEL.control().number.load(Ordering::Relaxed);
            let segment = follow::segment_after_fork(parent.into(), token);
            if segment.is_some_and(|fd| CHANNEL.reconnect(fd, known)) {
                thread.restart(dr_get_thread_id(context) as u32);
                return;
            }
        }
        if !CHANNEL.is_detached() {
            CHANNEL.control().children_unrecorded.fetch_add(1, Ordering::Relaxed);
        }
        CHANNEL.detach();
        thread.throw_away();
    }
}
