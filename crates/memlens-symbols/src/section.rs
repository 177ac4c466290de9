//! Sections of a module.

use object::elf;
use object::{Object, ObjectSection, SectionFlags};

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SectionKind {
    /// Machine code.
    Text,
    /// Read-only data: constants, string literals, unwind tables.
    ReadOnly,
    /// Initialised writable data.
    Data,
    /// Data that is written by the dynamic linker only, then read-only (`.data.rel.ro`, `.got`).
    RelocatedReadOnly,
    /// Zero-initialised data.
    Bss,
    /// The template of initialised thread-local data.
    ThreadData,
    /// Zero-initialised thread-local data; it occupies no address of the module.
    ThreadBss,
}

/// A section that is loaded, at `[start, end)` (svma).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The name as linked, e.g. `.bss`.
    pub name: String,
    /// First address (svma).
    pub start: u64,
    /// One past the last address (svma).
    pub end: u64,
    /// What it holds.
    pub kind: SectionKind,
    pub(crate) index: usize,
}

impl Section {
    /// Whether `svma` lies in the section. Never true for [`SectionKind::ThreadBss`].
    pub fn contains(&self, svma: u64) -> bool {
        self.kind != SectionKind::ThreadBss && (self.start..self.end).contains(&svma)
    }

    /// Whether it holds data rather than code.
    pub fn is_data(&self) -> bool {
        self.kind != SectionKind::Text
    }
}

/// The allocated sections of `file`, by address.
pub(crate) fn all(file: &object::File<'_>) -> Vec<Section> {
    let mut sections = Vec::new();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
        let has = |flag: elf::SectionFlags| sh_flags.0 & flag.0 != 0;
        if !has(elf::SHF_ALLOC) || section.size() == 0 {
            continue;
        }
        let name = section.name().unwrap_or("?").to_owned();
        let no_bits = section.kind() == object::SectionKind::UninitializedData
            || section.kind() == object::SectionKind::UninitializedTls;
        let kind = if has(elf::SHF_TLS) {
            if no_bits { SectionKind::ThreadBss } else { SectionKind::ThreadData }
        } else if has(elf::SHF_EXECINSTR) {
            SectionKind::Text
        } else if !has(elf::SHF_WRITE) {
            SectionKind::ReadOnly
        } else if no_bits {
            SectionKind::Bss
        } else if name.starts_with(".data.rel.ro")
            || name == ".got"
            || name.ends_with("_array")
            || name == ".dynamic"
        {
            SectionKind::RelocatedReadOnly
        } else {
            SectionKind::Data
        };
        sections.push(Section {
            name,
            start: section.address(),
            end: section.address().saturating_add(section.size()),
            kind,
            index: section.index().0,
        });
    }
    sections.sort_by_key(|section| section.start);
    sections
}
