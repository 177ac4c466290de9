//! What the client's parts share: where DynamoRIO put our thread area, and the stubs.

use crate::channel::Thread;
use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU16, AtomicU32, Ordering};
use dynamorio_sys::{drmgr_get_tls_field, reg_id_t};

/// Set once at start.
pub struct State {
    /// The segment register of DynamoRIO's thread area.
    pub tls_segment: AtomicU16,
    /// Offset of our words in it.
    pub tls_offset: AtomicU32,
    /// drmgr's index of our thread pointer.
    pub tls_field: AtomicI32,
    stubs: [AtomicPtr<u8>; 17],
}

/// The one state.
pub static STATE: State = State {
    tls_segment: AtomicU16::new(0),
    tls_offset: AtomicU32::new(0),
    tls_field: AtomicI32::new(-1),
    stubs: [const { AtomicPtr::new(core::ptr::null_mut()) }; 17],
};

impl State {
    /// The code that gets a thread a new chunk and then jumps to where `reg` points.
    pub fn stub(&self, reg: reg_id_t) -> *mut u8 {
        self.stubs[usize::from(reg)].load(Ordering::Relaxed)
    }

    /// Remembers a stub.
    pub fn set_stub(&self, reg: reg_id_t, code: *mut u8) {
        self.stubs[usize::from(reg)].store(code, Ordering::Relaxed);
    }

    /// The thread's end of the channel.
    ///
    /// # Safety
    /// `context` is the calling thread's and its thread-init event has run; the reference is
    /// dropped before anything else asks for it.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn thread(&self, context: *mut c_void) -> &mut Thread {
        // SAFETY: set in the thread-init event to a leaked box.
        unsafe { &mut *drmgr_get_tls_field(context, self.tls_field.load(Ordering::Relaxed)).cast::<Thread>() }
    }
}
