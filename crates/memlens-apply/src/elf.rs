//! What an ELF file says about places in it.

use std::fs::File;
use std::io;
use std::path::Path;

use object::elf::PT_LOAD;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ReadCache};

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// Facts about an executable or library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElfFacts {
    /// The GNU build-id in lower-case hex.
    pub build_id: Option<String>,
    /// Address that its first loadable segment asks for, rounded down to a page.
    pub first_svma: u64,
    /// Whether Go's runtime is in it, which interrupts threads anywhere and goes on with them on stacks of its own.
    pub moves_threads: bool,
}

impl ElfFacts {
    /// Reads them.
    ///
    /// # Errors
    /// When the file cannot be read; `InvalidData` when it is no 64-bit ELF file.
    pub fn of(path: &Path) -> io::Result<Self> {
        let invalid = |error: object::Error| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
        let cache = ReadCache::new(File::open(path)?);
        let elf = ElfFile64::<Endianness, _>::parse(&cache).map_err(invalid)?;
        let build_id = elf.build_id().map_err(invalid)?;
        let build_id = build_id.map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        let endian = elf.endian();
        let mut loads = elf.elf_program_headers().iter().filter(|header| header.p_type(endian) == PT_LOAD);
        let first = loads.next().map_or(0, |header| header.p_vaddr(endian));
        let moves_threads = elf.section_by_name(".gopclntab").is_some();
        Ok(Self { build_id, first_svma: first & !(PAGE_BYTES - 1), moves_threads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_program_lies_anywhere_and_a_text_is_refused() {
        let own = ElfFacts::of(&std::env::current_exe().expect("known")).expect("readable");
        assert_eq!(own.first_svma, 0, "test programs are position-independent");
        let error = ElfFacts::of(Path::new("/etc/passwd"));
        assert_eq!(error.expect_err("no ELF").kind(), io::ErrorKind::InvalidData);
    }
}
