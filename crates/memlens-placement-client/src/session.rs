//! Start of the library in a process.
//!
//! memlens passes the plan's descriptor in an environment variable, the library's path in `LD_PRELOAD` and, where small
//! blocks are meant, settings in `GLIBC_TUNABLES`. The constructor maps the plan, closes the descriptor and takes all
//! of them out of the environment again, in place: the program and what it executes see what they would have
//! seen. A forked child goes on with its parent's plan.

use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use memlens_inside::environment::{self, value_of};
use memlens_placement::{MAGIC, NO_VARIABLE, Plan, VARIABLE, VERSION};

use crate::place::{self, LEAST_BYTES};
use crate::{modules, patch, real, reserved};

static PLAN: AtomicPtr<Plan> = AtomicPtr::new(ptr::null_mut());

/// The plan, once it is mapped.
pub fn plan() -> Option<&'static Plan> {
    // SAFETY: null, or a mapping that stays; memlens wrote its plain fields before the program started, and writes
    // to none since.
    unsafe { PLAN.load(Ordering::Acquire).as_ref() }
}

/// Called by the dynamic linker with the program's arguments and environment.
extern "C" fn start(_argc: c_int, _argv: *const *const c_char, environment: *mut *mut c_char) {
    real::find();
    // SAFETY: the array that the dynamic linker hands to constructors, ended by a null pointer; nothing else
    // runs yet, and its strings are the process's own to change.
    let plan = unsafe { environment::number(environment, VARIABLE) }.and_then(map);
    let Some(plan) = plan else {
        LEAST_BYTES.store(u64::MAX, Ordering::Release);
        return;
    };
    // SAFETY: as above.
    unsafe { restore(environment, plan.tunables_bytes as usize, own_tunables(plan)) };
    plan.processes.fetch_add(1, Ordering::Relaxed);
    modules::find(plan);
    for variable in plan.statics() {
        if let Some(bias) = modules::bias(variable.module) {
            place::variable(plan, variable.object, bias.wrapping_add(variable.svma), variable.bytes);
        }
    }
    patch::at_start(plan);
    if plan.takes_reserved != 0 {
        reserved::prepare_for_forks();
    }
    PLAN.store(ptr::from_ref(plan).cast_mut(), Ordering::Release);
    let least = if plan.sites().is_empty() { u64::MAX } else { plan.least_bytes.max(1) };
    LEAST_BYTES.store(least, Ordering::Release);
}

// SAFETY: an entry of `.init_array` is a function that gets the program's arguments (System V gABI, "Initialization and
// Termination Functions"; glibc passes them).
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *mut *mut c_char) = start;

/// Bytes of `GLIBC_TUNABLES` behind memlens's; None: the variable was not set.
fn own_tunables(plan: &Plan) -> Option<usize> {
    (plan.own_tunables_bytes != NO_VARIABLE).then_some(plan.own_tunables_bytes as usize)
}

/// Takes memlens's part out of the environment.
///
/// # Safety
/// As [`start`]'s argument.
unsafe fn restore(environment: *mut *mut c_char, tunables_bytes: usize, own: Option<usize>) {
    // SAFETY: the caller's promise.
    unsafe { environment::restore(environment, |word| take_out(word, tunables_bytes, own)) };
}

/// Takes memlens's part out of a word. Whether nothing is left of it.
///
/// # Safety
/// A writable string that ends in a zero byte.
unsafe fn take_out(word: *mut c_char, tunables_bytes: usize, own_tunables: Option<usize>) -> bool {
    // SAFETY: the caller's string; all is written inside of it.
    unsafe {
        let text = CStr::from_ptr(word).to_bytes();
        // Bytes that are ours, and those of the program's own value behind our colon.
        let (value, ours, own) = if let Some(list) = value_of(text, b"LD_PRELOAD") {
            let colon = list.iter().position(|&byte| byte == b':');
            (list, colon.unwrap_or(list.len()), colon.map(|colon| list.len() - colon - 1))
        } else if let Some(list) = value_of(text, b"GLIBC_TUNABLES")
            && tunables_bytes > 0
        {
            // glibc up to 2.38 ends each setting by a zero byte in place: the word seems shorter than it is.
            (list, tunables_bytes, own_tunables)
        } else if let Some(list) = value_of(text, VARIABLE.as_bytes()) {
            (list, list.len(), None)
        } else {
            return false;
        };
        let start = text.len() - value.len();
        let left = own.unwrap_or(0);
        if own.is_some() {
            ptr::copy(word.add(start + ours + 1), word.add(start), left);
        }
        let end = start + ours + own.map_or(0, |own| own + 1);
        ptr::write_bytes(word.add(start + left), 0, end - start - left);
        own.is_none()
    }
}

/// Maps the plan and closes its descriptor.
fn map(descriptor: usize) -> Option<&'static Plan> {
    // SAFETY: the descriptor was made for this.
    let address = unsafe { memlens_inside::map(descriptor, size_of::<Plan>()) }?;
    // SAFETY: memlens made the file as long as a plan, of the same layout if the version says so.
    let plan = unsafe { &*address.cast::<Plan>() };
    (plan.magic == MAGIC && plan.version == VERSION).then_some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn restored(words: &[&str], tunables_bytes: usize, own: Option<usize>) -> Vec<String> {
        let strings: Vec<*mut c_char> =
            words.iter().map(|&word| CString::new(word).expect("no zero").into_raw()).collect();
        let lengths: Vec<usize> = words.iter().map(|word| word.len()).collect();
        let mut array = strings.clone();
        array.push(ptr::null_mut());
        // SAFETY: strings of our own, the array ends in null; each string is taken back with its length as it was.
        unsafe {
            restore(array.as_mut_ptr(), tunables_bytes, own);
            let left = array
                .iter()
                .take_while(|word| !word.is_null())
                .map(|&word| CStr::from_ptr(word).to_str().expect("text").to_owned())
                .collect();
            for (string, length) in strings.into_iter().zip(lengths) {
                drop(Vec::from_raw_parts(string.cast::<u8>(), length + 1, length + 1));
            }
            left
        }
    }

    #[test]
    fn the_environment_is_as_it_was_without_memlens() {
        let words = ["A=1", "MEMLENS_PLACEMENT=7", "LD_PRELOAD=/x.so", "GLIBC_TUNABLES=a.b=1", "B=2"];
        assert_eq!(restored(&words, 5, None), ["A=1", "B=2"]);
        let words = ["LD_PRELOAD=/x.so:/own.so", "GLIBC_TUNABLES=a.b=1:c.d=2", "MEMLENS_PLACEMENT=7"];
        assert_eq!(restored(&words, 5, Some(5)), ["LD_PRELOAD=/own.so", "GLIBC_TUNABLES=c.d=2"]);
        let words = ["LD_PRELOAD=/x.so:", "GLIBC_TUNABLES=a.b=1:"];
        assert_eq!(restored(&words, 5, Some(0)), ["LD_PRELOAD=", "GLIBC_TUNABLES="], "empty, but there");
        let words = ["LD_PRELOAD=/x.so", "GLIBC_TUNABLES=c.d=2"];
        assert_eq!(restored(&words, 0, Some(5)), ["GLIBC_TUNABLES=c.d=2"], "ours are none");
    }
}
