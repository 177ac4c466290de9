//! ELF symbols: functions, data and entry points by address and by name.

use std::cell::OnceCell;
use std::collections::HashMap;

use object::elf;
use object::{Object, ObjectSymbol, SymbolFlags, SymbolSection};

use crate::demangle::{demangle, strip_local_suffix, strip_version};
use crate::error::Diagnostic;
use crate::image::Image;
use crate::section::{Section, SectionKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SymbolType {
    /// A label without a type: assembly code.
    Label,
    Function,
    /// A resolver whose result is the function (`STT_GNU_IFUNC`).
    IndirectFunction,
    Object,
    Tls,
}

/// One defined symbol; its name is a range of bytes of the image it came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// For TLS the offset in the module's TLS segment.
    pub(crate) svma: u64,
    pub(crate) size: u64,
    name_start: usize,
    name_len: u32,
    image: u32,
    pub(crate) kind: SymbolType,
    pub(crate) local: bool,
}

/// All symbols of a module. Adding is linear in the symbols, the sorted views are made at first
/// use (n log n).
#[derive(Default)]
pub(crate) struct SymbolTable {
    images: Vec<Image>,
    symbols: Vec<Symbol>,
    functions: OnceCell<Vec<u32>>,
    labels: OnceCell<Vec<u32>>,
    variables: OnceCell<(Vec<Symbol>, Vec<Symbol>)>,
    /// Whether the module uses gfortran's run-time library.
    pub(crate) fortran: bool,
    /// Whether symbols of single units are there: then no variable is without a symbol.
    pub(crate) lists_locals: bool,
    /// Whether Rust code is in it, whose virtual tables have no symbols.
    has_rust: bool,
}

impl SymbolTable {
    /// Adds `.symtab` (or else, and in addition, `.dynsym`) of the ELF file `file`, parsed from
    /// `image`.
    pub(crate) fn add(&mut self, image: &Image, file: &object::File<'_>, diagnostics: &mut Vec<Diagnostic>) {
        let index = self.images.len() as u32;
        let base = image.as_ptr() as usize;
        self.images.push(image.clone());
        let mut damaged = false;
        let exec: Vec<bool> = {
            let mut flags = Vec::new();
            for section in crate::section::all(file) {
                let at = section.index;
                if flags.len() <= at {
                    flags.resize(at + 1, false);
                }
                flags[at] = section.kind == SectionKind::Text;
            }
            flags
        };
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { continue };
            let Ok(name) = symbol.name_bytes() else {
                damaged = true;
                continue;
            };
            if name.is_empty() {
                continue;
            }
            if symbol.is_undefined() {
                self.fortran |= name.starts_with(b"_gfortran_");
                continue;
            }
            let section = match symbol.section() {
                SymbolSection::Section(section) => section.0,
                SymbolSection::Common => 0,
                _ => continue,
            };
            let kind = match st_info.st_type() {
                elf::STT_FUNC => SymbolType::Function,
                elf::STT_GNU_IFUNC => SymbolType::IndirectFunction,
                elf::STT_OBJECT | elf::STT_COMMON => SymbolType::Object,
                elf::STT_TLS => SymbolType::Tls,
                elf::STT_NOTYPE
                    if exec.get(section).copied().unwrap_or(false)
                        && !name.starts_with(b".L")
                        && !name.starts_with(b"$") =>
                {
                    SymbolType::Label
                }
                _ => continue,
            };
            // The name lies in the image, except where `object` had to make it up (it does not).
            let Some(name_start) = (name.as_ptr() as usize).checked_sub(base) else { continue };
            if name_start.checked_add(name.len()).is_none_or(|end| end > image.len()) {
                continue;
            }
            let local = st_info.st_bind() == elf::STB_LOCAL;
            self.has_rust |= name == b"rust_eh_personality";
            // Linkers add local symbols of their own, without a size.
            let has_size = symbol.size() > 0;
            self.lists_locals |=
                local && has_size && matches!(kind, SymbolType::Function | SymbolType::Object);
            self.symbols.push(Symbol {
                svma: symbol.address(),
                size: symbol.size(),
                name_start,
                name_len: name.len().min(u32::MAX as usize) as u32,
                image: index,
                kind,
                local,
            });
        }
        self.lists_locals &= !self.has_rust;
        if damaged {
            diagnostics.push(Diagnostic::Symbols("names outside of the string table".into()));
        }
    }

    pub(crate) fn name_bytes(&self, symbol: &Symbol) -> &[u8] {
        self.images
            .get(symbol.image as usize)
            .and_then(|image| image.get(symbol.name_start..symbol.name_start + symbol.name_len as usize))
            .unwrap_or_default()
    }

    pub(crate) fn name(&self, symbol: &Symbol) -> &str {
        std::str::from_utf8(self.name_bytes(symbol)).unwrap_or("?")
    }

    /// The symbols of code that are called one of `names`; versions and LTO suffixes are ignored.
    pub(crate) fn named_code(&self, names: &[&str]) -> Vec<(usize, Symbol)> {
        self.named_code_by(names, lto_stem)
    }

    /// The symbols of copies of functions that are called one of `names`: see [`cloned`].
    pub(crate) fn named_clones(&self, names: &[&str]) -> Vec<(usize, Symbol)> {
        let is_clone = |symbol: &Symbol| cloned(self.name(symbol)) != self.name(symbol);
        let mut found = self.named_code_by(names, cloned);
        found.retain(|(_, symbol)| is_clone(symbol));
        found
    }

    /// The symbols of functions that one of `names` is the source's name of, as reports show it; and, for each name, the
    /// source's name of a function whose last component it is (`md::spmv` for `spmv`).
    pub(crate) fn named_in_source(&self, names: &[&str]) -> (Vec<(usize, Symbol)>, Vec<Option<String>>) {
        let (mut found, mut longer) = (Vec::new(), vec![None; names.len()]);
        if names.is_empty() {
            return (found, longer);
        }
        let parts: Vec<&str> = names.iter().map(|name| last_identifier(name)).collect();
        for symbol in &self.symbols {
            if symbol.kind != SymbolType::Function {
                continue;
            }
            let raw = self.name(symbol);
            let mut demangled = None;
            for (index, (&name, &part)) in names.iter().zip(&parts).enumerate() {
                // Manglings spell identifiers out: most names need not be taken apart.
                if part.is_empty() || !raw.contains(part) {
                    continue;
                }
                let source = demangled.get_or_insert_with(|| demangle(raw, self.fortran));
                if *source == name {
                    found.push((index, *symbol));
                } else if source.strip_suffix(name).is_some_and(|before| before.ends_with("::")) {
                    longer[index].get_or_insert_with(|| source.clone().into_owned());
                }
            }
        }
        found.sort_by_key(|(index, symbol)| (*index, symbol.svma));
        found.dedup_by_key(|(index, symbol)| (*index, symbol.svma));
        (found, longer)
    }

    /// The symbols of code whose name is one of `names`, or is one as `stem` has it, versions ignored.
    fn named_code_by(&self, names: &[&str], stem: fn(&str) -> &str) -> Vec<(usize, Symbol)> {
        let mut wanted: HashMap<&[u8], Vec<usize>> = HashMap::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            wanted.entry(name.as_bytes()).or_default().push(index);
        }
        let mut found = Vec::new();
        for symbol in &self.symbols {
            if !matches!(symbol.kind, SymbolType::Function | SymbolType::IndirectFunction | SymbolType::Label)
            {
                continue;
            }
            let raw = self.name_bytes(symbol);
            let indices = wanted.get(raw).or_else(|| {
                if !raw.iter().any(|b| matches!(b, b'@' | b'.')) {
                    return None;
                }
                let text = std::str::from_utf8(raw).ok()?;
                wanted.get(stem(strip_version(text)).as_bytes())
            });
            if let Some(indices) = indices {
                found.extend(indices.iter().map(|&index| (index, *symbol)));
            }
        }
        found.sort_by_key(|(index, symbol)| (*index, symbol.svma, symbol.kind));
        found.dedup_by_key(|(index, symbol)| (*index, symbol.svma));
        found
    }

    /// Every function's symbol, one for each first address, with its range.
    pub(crate) fn all_functions(&self, sections: &[Section]) -> Vec<(u64, u64, Symbol)> {
        let functions = self.functions.get_or_init(|| {
            self.sorted(|k| matches!(k, SymbolType::Function | SymbolType::IndirectFunction))
        });
        let mut starts: Vec<u64> = functions.iter().map(|&i| self.symbols[i as usize].svma).collect();
        starts.dedup();
        let found = starts.into_iter().filter_map(|svma| self.function_at(svma, sections));
        let mut found: Vec<_> = found.collect();
        found.dedup_by_key(|(start, _, _)| *start);
        found
    }

    /// The best function symbol that covers `svma`, with its range `[start, end)`.
    pub(crate) fn function_at(&self, svma: u64, sections: &[Section]) -> Option<(u64, u64, Symbol)> {
        let functions = self.functions.get_or_init(|| {
            self.sorted(|k| matches!(k, SymbolType::Function | SymbolType::IndirectFunction))
        });
        self.covering(functions, svma, sections).or_else(|| {
            let labels = self.labels.get_or_init(|| self.sorted(|k| k == SymbolType::Label));
            self.covering(labels, svma, sections)
        })
    }

    fn sorted(&self, wanted: impl Fn(SymbolType) -> bool) -> Vec<u32> {
        let mut order: Vec<u32> =
            (0..self.symbols.len() as u32).filter(|&i| wanted(self.symbols[i as usize].kind)).collect();
        // The best alias of one address comes last, where `covering` looks first.
        order.sort_by_key(|&i| {
            let symbol = &self.symbols[i as usize];
            (symbol.svma, std::cmp::Reverse(self.rank(symbol)))
        });
        order
    }

    /// Smaller is better: exported before local, few leading underscores, shorter, then by name so
    /// that the choice does not depend on the table's order.
    fn rank<'s>(&'s self, symbol: &Symbol) -> (bool, bool, usize, usize, &'s [u8]) {
        let name = self.name_bytes(symbol);
        let mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
        let underscores = if mangled { 0 } else { name.iter().take_while(|&&b| b == b'_').count() };
        (symbol.size == 0, symbol.local, underscores, name.len(), name)
    }

    fn covering(&self, order: &[u32], svma: u64, sections: &[Section]) -> Option<(u64, u64, Symbol)> {
        let after = order.partition_point(|&i| self.symbols[i as usize].svma <= svma);
        // Functions nest rarely (outlined code inside), so a few steps back are enough.
        for at in (after.saturating_sub(16)..after).rev() {
            let symbol = self.symbols[order[at] as usize];
            let end = if symbol.size > 0 {
                symbol.svma.saturating_add(symbol.size)
            } else {
                let next = order.get(after).map_or(u64::MAX, |&i| self.symbols[i as usize].svma);
                let section =
                    sections.iter().find(|s| s.contains(symbol.svma)).map_or(symbol.svma, |s| s.end);
                next.min(section)
            };
            if svma < end {
                return Some((symbol.svma, end, symbol));
            }
        }
        None
    }

    /// Data symbols, sorted by address, overlapping ones removed (the larger, then the better
    /// ranked, stays), and such as would end behind the last address. TLS symbols are apart because their
    /// addresses are offsets.
    pub(crate) fn data(&self) -> (&[Symbol], &[Symbol]) {
        let (addressed, thread_local) = self.variables.get_or_init(|| self.read_data());
        (addressed, thread_local)
    }

    fn read_data(&self) -> (Vec<Symbol>, Vec<Symbol>) {
        let pick = |kind: SymbolType| {
            let is_sound = |s: &&Symbol| s.size > 0 && s.svma.checked_add(s.size).is_some();
            let all = self.symbols.iter().filter(|s| s.kind == kind);
            let mut list: Vec<Symbol> = all.filter(is_sound).copied().collect();
            list.sort_by(|a, b| {
                (a.svma, std::cmp::Reverse(a.size), self.rank(a)).cmp(&(
                    b.svma,
                    std::cmp::Reverse(b.size),
                    self.rank(b),
                ))
            });
            let mut end = 0;
            list.retain(|symbol| {
                let keep = symbol.svma >= end;
                if keep {
                    end = symbol.svma.saturating_add(symbol.size);
                }
                keep
            });
            list
        };
        (pick(SymbolType::Object), pick(SymbolType::Tls))
    }
}

/// The function that `work.constprop.0` or `work.isra.0` is a copy of, whose arguments the compiler has changed. Parts of functions
/// (`.part`, `.cold`) are no copies.
fn cloned(name: &str) -> &str {
    const SUFFIXES: [&str; 2] = [".constprop", ".isra"];
    let ends = SUFFIXES.iter().filter_map(|suffix| name.find(suffix));
    let end = ends.min().filter(|_| ![".part", ".cold"].iter().any(|part| name.contains(part)));
    end.map_or(name, |end| lto_stem(&name[..end]))
}

/// `malloc.lto_priv.0` without what link-time optimisation appended. Clones with another calling
/// convention or body (`.constprop`, `.part`, `.cold`, `.isra`) keep their suffix.
fn lto_stem(name: &str) -> &str {
    if name.contains(".lto_priv") { strip_local_suffix(name) } else { name }
}

/// `spmv` of `md::spmv`, `push` of `Stack<int>::push<long>`.
fn last_identifier(name: &str) -> &str {
    let mut depth = 0;
    let begin = name.char_indices().rev().find(|&(at, c)| {
        match c {
            '>' => depth += 1,
            '<' => depth -= 1,
            _ => {}
        }
        depth == 0 && name[..at].ends_with("::")
    });
    let last = begin.map_or(name, |(at, _)| &name[at..]);
    last.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_functions_are_told_from_parts() {
        let of = |name| cloned(name);
        assert_eq!(["work.constprop.0", "work.isra.3", "work.isra.0.constprop.1"].map(of), ["work"; 3]);
        assert_eq!(cloned("work.lto_priv.0.constprop.0"), "work");
        for other in ["work", "work.part.0", "work.constprop.0.cold", "work.cold", "work.1"] {
            assert_eq!(cloned(other), other);
        }
    }
}
