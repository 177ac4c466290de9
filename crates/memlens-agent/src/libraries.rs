//! The libraries of the process, as the dynamic linker has them, and which functions they have.
//!
//! `dlsym` of a name that no library has makes a message, and allocates for it: in a program whose own allocator asks for something of
//! the kernel while it holds its lock, that would wait for the lock. So it is asked only for what is there.
//!
//! # Signal safety
//! `dl_iterate_phdr` takes the dynamic linker's lock, and allocates nothing.

use core::ffi::{CStr, c_char, c_int, c_void};

use memlens_inside::weak;

use crate::arch;

/// A loaded library.
pub(crate) struct Library<'a> {
    /// What is added to addresses in its file.
    pub(crate) bias: usize,
    headers: &'a [Header],
}

/// `struct dl_phdr_info` (dl_iterate_phdr(3)), its first fields.
#[repr(C)]
struct Info {
    bias: usize,
    name: *const c_char,
    headers: *const Header,
    header_count: u16,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: usize,
    physical: u64,
    file_bytes: u64,
    bytes: usize,
    alignment: u64,
}

/// `Elf64_Sym`.
#[repr(C)]
pub(crate) struct Symbol {
    /// Where its name is among the strings.
    pub(crate) name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

/// What a dynamic section names, by tags; 0: it does not.
pub(crate) struct Dynamic {
    bias: usize,
    entries: *const [usize; 2],
}

impl Library<'_> {
    /// Where it lies: from its first byte to behind its last.
    pub(crate) fn image(&self) -> (usize, usize) {
        const LOAD: u32 = 1;
        let parts = self.parts(LOAD);
        parts.fold((usize::MAX, 0), |(start, end), part| (start.min(part.0), end.max(part.1)))
    }

    /// Whether it is the agent's own.
    pub(crate) fn is_own(&self) -> bool {
        let (start, end) = self.image();
        (start..end).contains(&arch::own_image().0)
    }

    /// Its parts of a kind, each from its first byte to behind its last.
    pub(crate) fn parts(&self, kind: u32) -> impl Iterator<Item = (usize, usize)> {
        self.headers.iter().filter(move |header| header.kind == kind).map(|header| {
            let start = self.bias.wrapping_add(header.address);
            (start, start.wrapping_add(header.bytes))
        })
    }

    /// Its dynamic section.
    pub(crate) fn dynamic(&self) -> Option<Dynamic> {
        const DYNAMIC: u32 = 2;
        let (start, _) = self.parts(DYNAMIC).next()?;
        Some(Dynamic { bias: self.bias, entries: start as *const [usize; 2] })
    }
}

impl Dynamic {
    const HASH: usize = 4;
    pub(crate) const STRINGS: usize = 5;
    pub(crate) const SYMBOLS: usize = 6;
    const GNU_HASH: usize = 0x6fff_fef5;

    /// The value of a tag.
    ///
    /// # Safety
    /// The library is loaded.
    pub(crate) unsafe fn value(&self, of_tag: usize) -> usize {
        let mut entry = self.entries;
        loop {
            // SAFETY: the section ends with a tag of 0, and the caller promises that it is there.
            let [tag, value] = unsafe { entry.read() };
            if tag == 0 || tag == of_tag {
                return if tag == 0 { 0 } else { value };
            }
            // SAFETY: not its last entry.
            entry = unsafe { entry.add(1) };
        }
    }

    /// The address that a tag has; 0: it is not there.
    ///
    /// # Safety
    /// As for [`Self::value`].
    pub(crate) unsafe fn address(&self, of_tag: usize) -> usize {
        // SAFETY: the caller's promise.
        let value = unsafe { self.value(of_tag) };
        // glibc has made addresses of most; others leave offsets.
        if value != 0 && value < self.bias { value.wrapping_add(self.bias) } else { value }
    }

    /// Whether the library has a symbol of this name that others can use; None: its tables do not tell.
    ///
    /// # Safety
    /// As for [`Self::value`].
    unsafe fn exports(&self, name: &CStr) -> Option<bool> {
        // SAFETY: the caller's promise.
        let [symbols, strings, gnu, plain] = unsafe {
            [Self::SYMBOLS, Self::STRINGS, Self::GNU_HASH, Self::HASH].map(|tag| self.address(tag))
        };
        if symbols == 0 || strings == 0 {
            return None;
        }
        let is_it = |at: u32| {
            // SAFETY: an entry of the table that a hash table names, and its name.
            unsafe {
                let symbol = &*(symbols as *const Symbol).add(at as usize);
                symbol.section != 0
                    && CStr::from_ptr((strings + symbol.name as usize) as *const c_char) == name
            }
        };
        // SAFETY: the tables that the dynamic section names, of these layouts.
        unsafe {
            match (gnu, plain) {
                (0, 0) => None,
                (0, table) => Some(plain_hashed(table as *const u32, name).any(is_it)),
                (table, _) => Some(gnu_hashed(table as *const u32, name).any(is_it)),
            }
        }
    }
}

/// Symbols whose hash may be the name's, of a table as in the System V ABI 4.1, chapter 5, "Hash Table".
///
/// # Safety
/// It is such a table.
unsafe fn plain_hashed(table: *const u32, name: &CStr) -> impl Iterator<Item = u32> {
    let hash = name.to_bytes().iter().fold(0u32, |hash, &byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        (hash ^ (hash >> 24 & 0xf0)) & 0x0fff_ffff
    });
    // SAFETY: numbers of buckets and symbols, buckets, and for each symbol the next one.
    let at = move |place: usize| unsafe { table.add(place).read() };
    let buckets = at(0).max(1);
    let next = move |&symbol: &u32| Some(at(2 + (buckets + symbol) as usize));
    core::iter::successors(Some(at(2 + (hash % buckets) as usize)), next).take_while(|&symbol| symbol != 0)
}

/// The same of a table as GNU has it (binutils, `bfd/elflink.c`; U. Drepper, How To Write Shared Libraries, 2011, section 1.5.3).
///
/// # Safety
/// It is such a table.
unsafe fn gnu_hashed(table: *const u32, name: &CStr) -> impl Iterator<Item = u32> {
    let step = |hash: u32, &byte: &u8| hash.wrapping_mul(33).wrapping_add(byte.into());
    let hash = name.to_bytes().iter().fold(5381, step);
    // SAFETY: numbers of buckets, of symbols without hash, of words of 8 bytes of a filter; a shift; the filter, buckets, and for each
    // further symbol its hash, whose lowest bit ends a bucket.
    let at = move |place: usize| unsafe { table.add(place).read() };
    let (buckets, without, filter) = (at(0).max(1), at(1), at(2) as usize);
    let begins = 4 + 2 * filter;
    let hashes = begins + buckets as usize;
    let first = at(begins + (hash % buckets) as usize);
    let hash_of = move |symbol: u32| at(hashes + (symbol - without) as usize);
    let next = move |&symbol: &u32| (hash_of(symbol) & 1 == 0).then_some(symbol + 1);
    let all = core::iter::successors((first >= without).then_some(first), next);
    all.filter(move |&symbol| hash_of(symbol) | 1 == hash | 1)
}

/// Shows all libraries, the program itself first, while none can go away.
pub(crate) fn each(mut show: impl FnMut(&Library<'_>)) {
    let function = weak!("dl_iterate_phdr");
    if function == 0 {
        return;
    }
    let mut show: &mut dyn FnMut(&Library<'_>) = &mut show;
    // SAFETY: the C function of that name; the callback gets what it expects.
    unsafe {
        let function: unsafe extern "C" fn(
            extern "C" fn(*const Info, usize, *mut c_void) -> c_int,
            *mut c_void,
        ) -> c_int = core::mem::transmute(function);
        function(on_library, (&raw mut show).cast());
    }
}

extern "C" fn on_library(info: *const Info, _size: usize, show: *mut c_void) -> c_int {
    // SAFETY: the arguments that the C function promises, and what `each` handed on.
    let (info, show) = unsafe { (&*info, &mut *show.cast::<&mut dyn FnMut(&Library<'_>)>()) };
    if !info.headers.is_null() {
        // SAFETY: the library's program headers.
        let headers = unsafe { core::slice::from_raw_parts(info.headers, info.header_count.into()) };
        show(&Library { bias: info.bias, headers });
    }
    0
}

/// Whether a library other than the agent may have a function of this name.
pub(crate) fn may_have(name: &CStr) -> bool {
    let mut may = false;
    let mut any = false;
    each(|library| {
        any = true;
        if !may && !library.is_own() {
            // SAFETY: it stays while it is shown.
            may = library.dynamic().is_some_and(|it| unsafe { it.exports(name) }.unwrap_or(true));
        }
    });
    may || !any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_have_what_dlsym_finds() {
        assert!(may_have(c"malloc") && may_have(c"pthread_create") && may_have(c"dl_iterate_phdr"));
        assert!(!may_have(c"memlens_has_no_such_function") && !may_have(c"mallo"));
        // What the kernel's page has, which may have a plain hash table only. Not everywhere is there one.
        let name =
            if cfg!(target_arch = "aarch64") { c"__kernel_clock_gettime" } else { c"__vdso_clock_gettime" };
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        assert_eq!(may_have(name), maps.contains("[vdso]"));
    }
}
