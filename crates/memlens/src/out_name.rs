//! Names of profiles that say what tells runs apart: of several that one command line starts, as an MPI launcher does, each has its own.
//!
//! As valgrind's `--log-file` (user manual, section 2.6.2): `%p` is a process id, here memlens's own, which is there before the
//! program's; `%q{NAME}` what the environment has under a name; `%%` a percent sign. Any other percent sign stands for itself.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};

/// Reads `--out`.
pub fn parser() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        expanded(path.as_os_str(), std::process::id(), |name| std::env::var_os(name)).map(PathBuf::from)
    })
}

/// `variable`: of the environment.
///
/// # Errors
/// When a variable is not set.
fn expanded(
    name: &OsStr,
    process_id: u32,
    variable: impl Fn(&OsStr) -> Option<OsString>,
) -> Result<OsString, String> {
    let (mut found, mut rest) = (Vec::new(), name.as_bytes());
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        let behind = &rest[at + 1..];
        found.extend_from_slice(&rest[..at]);
        rest = match behind {
            [b'p', behind @ ..] => {
                found.extend_from_slice(process_id.to_string().as_bytes());
                behind
            }
            [b'%', behind @ ..] => {
                found.push(b'%');
                behind
            }
            [b'q', b'{', named @ ..] if named.contains(&b'}') => {
                let end = named.iter().position(|&byte| byte == b'}').unwrap_or(named.len());
                let wanted = OsStr::from_bytes(&named[..end]);
                let value = variable(wanted)
                    .ok_or_else(|| format!("the environment has no {}", wanted.to_string_lossy()))?;
                found.extend_from_slice(value.as_bytes());
                &named[end + 1..]
            }
            behind => {
                found.push(b'%');
                behind
            }
        };
    }
    found.extend_from_slice(rest);
    Ok(OsString::from_vec(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_apart_by_process_and_environment() {
        let of = |name: &str| {
            let rank = |name: &OsStr| (name == "RANK").then(|| OsString::from("3"));
            expanded(OsStr::new(name), 47, rank).map(|found| found.to_string_lossy().into_owned())
        };
        assert_eq!(of("r.%q{RANK}.%p").as_deref(), Ok("r.3.47"));
        assert_eq!(of("100%%p").as_deref(), Ok("100%p"));
        for same in ["plain", "50%", "%d", "%q", "%q{RANK", "%"] {
            assert_eq!(of(same).as_deref(), Ok(same));
        }
        assert_eq!(of("r.%q{NONE}"), Err("the environment has no NONE".to_owned()));
        let bytes = OsStr::from_bytes(b"\xff%p");
        assert_eq!(expanded(bytes, 1, |_| None).map(OsString::into_vec), Ok(b"\xff1".to_vec()));
    }
}
