//! The environment that the dynamic linker hands to constructors: words of a library's own are read, and taken out
//! again in place.

use core::ffi::{CStr, c_char};
use core::ptr;

/// The number that a variable holds; None: it is not there, or no number.
///
/// # Safety
/// `environment` is null, or an array of strings that a null pointer ends.
pub unsafe fn number(environment: *mut *mut c_char, name: &str) -> Option<usize> {
    // SAFETY: the caller's promise.
    number_of(unsafe { value(environment, name) }?)
}

/// What a variable holds; None: it is not there.
///
/// # Safety
/// As [`number`]; the strings stay as they are for as long as the result is used.
pub unsafe fn value<'a>(environment: *mut *mut c_char, name: &str) -> Option<&'a [u8]> {
    if environment.is_null() {
        return None;
    }
    let mut at = environment;
    // SAFETY: up to the null pointer; strings end in a zero byte.
    unsafe {
        while !(*at).is_null() {
            if let Some(value) = value_of(CStr::from_ptr(*at).to_bytes(), name.as_bytes()) {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

/// Takes the words out for which `take_out` says that nothing is left of them.
///
/// # Safety
/// `environment` is an array of writable strings that a null pointer ends, and the process's own to change.
pub unsafe fn restore(environment: *mut *mut c_char, mut take_out: impl FnMut(*mut c_char) -> bool) {
    let (mut from, mut to) = (environment, environment);
    // SAFETY: up to the null pointer, which is moved down.
    unsafe {
        while !(*from).is_null() {
            if !take_out(*from) {
                *to = *from;
                to = to.add(1);
            }
            from = from.add(1);
        }
        *to = ptr::null_mut();
    }
}

/// The value in `NAME=value`, if it is that name.
pub fn value_of<'a>(word: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    word.strip_prefix(name)?.strip_prefix(b"=")
}

/// A number in decimal digits.
pub fn number_of(text: &[u8]) -> Option<usize> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| usize::from(byte - b'0'));
    text.iter().try_fold(0usize, |number, byte| number.checked_mul(10)?.checked_add(digit(byte)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_a_number() {
        assert_eq!([number_of(b"12"), number_of(b"12x")], [Some(12), None]);
        assert_eq!(value_of(b"A=1", b"A"), Some(&b"1"[..]));
        assert_eq!(value_of(b"AB=1", b"A"), None);
    }
}
