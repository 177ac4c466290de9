//! Rows of objects: what each is called, and where it comes from.

use super::Builder;
use crate::address_space::{ALLOCATORS, ANONYMOUS, BREAK, LoadedModule};
use memlens_objects::{ObjectId, ObjectKey, SiteId, split_frame_key};
use memlens_profile::{ALLOCATOR_DATA, Object, ObjectIx, SourceLine};
use memlens_symbols::{Module, NamingCode, Receiver};
use rustc_hash::{FxHashMap, FxHashSet};

impl<'a> Builder<'a> {
    /// Rows for all objects that were accessed, written back or allocated.
    pub(super) fn objects(
        &mut self,
        mut accessed: FxHashSet<u32>,
        dram_writes: &FxHashMap<u32, u64>,
        merged: bool,
    ) {
        accessed.extend(dram_writes.keys());
        let space = self.space;
        let objects = space.heap.objects();
        let is_heap = |key: &ObjectKey| matches!(key, ObjectKey::HeapSite(_) | ObjectKey::HeapBlock { .. });
        let mut wanted: Vec<(ObjectId, &ObjectKey)> = objects
            .iter()
            .filter(|(id, key, stats)| accessed.contains(&id.get()) || (is_heap(key) && stats.blocks > 0))
            .map(|(id, key, _)| (id, key))
            .collect();
        self.read_ahead(&wanted);
        // Globals in the order of addresses, for the debug information's sake; rows in that of numbers.
        wanted.sort_by_key(|(id, key)| match key {
            ObjectKey::Global { module, svma } | ObjectKey::DataGap { module, section_svma: svma } => {
                (*module, *svma, *id)
            }
            _ => (u32::MAX, 0, *id),
        });
        let (heap_peak, at_peak) = space.heap.peak();
        let at_peak: FxHashMap<ObjectId, u64> = at_peak.into_iter().collect();
        self.profile.run.heap_peak_bytes = Some(heap_peak);
        let mut rows: Vec<Object> = Vec::with_capacity(wanted.len());
        for (id, key) in wanted {
            let stats = objects.stats(id);
            let mut row = self.describe(id, key);
            row.id = id.get();
            row.kind = key.kind();
            // What an allocator maps is not asked for once more: the blocks in it are.
            let is_allocators = matches!(key, ObjectKey::Mmap { file: ALLOCATORS, .. });
            let allocated = is_heap(key) || matches!(key, ObjectKey::Mmap { .. });
            if is_allocators {
                row.blocks = stats.blocks;
            } else if allocated && (stats.blocks > 0 || stats.max_live_blocks > 0) {
                row.blocks = stats.blocks;
                row.bytes = Some(stats.total_bytes);
                row.max_live_bytes = Some(stats.max_live_bytes);
            } else if !allocated {
                row.blocks = 1;
            }
            if is_heap(key) && !stats.is_nested {
                row.live_at_end_bytes = Some(stats.live_bytes);
                row.live_at_peak_bytes = merged.then(|| at_peak.get(&id).copied().unwrap_or(0));
            }
            if let ObjectKey::HeapBlock { block, .. } = key
                && !merged
            {
                row.name = format!("{} #{block}", row.name);
            }
            row.counts.dram_writes = dram_writes.get(&id.get()).copied().unwrap_or(0);
            rows.push(row);
        }
        rows.sort_by_key(|row| row.id);
        self.object_of =
            rows.iter().enumerate().map(|(at, row)| (row.id, ObjectIx::from_index(at))).collect();
        self.profile.objects = rows;
    }

    /// Looks the call stacks of objects up in the order of addresses.
    fn read_ahead(&mut self, objects: &[(ObjectId, &ObjectKey)]) {
        let mut keys: Vec<u64> = Vec::new();
        for (_, key) in objects {
            let site = match **key {
                ObjectKey::HeapSite(site) | ObjectKey::HeapBlock { site, .. } => Some(site),
                ObjectKey::Mmap { site, .. } => site,
                _ => None,
            };
            keys.extend(site.into_iter().flat_map(|site| self.space.heap.sites().stack(site)));
        }
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            self.frames_at(key, true);
        }
    }

    /// What an object is called, and where it comes from.
    pub(crate) fn describe(&mut self, id: ObjectId, key: &ObjectKey) -> Object {
        match *key {
            ObjectKey::HeapSite(site) | ObjectKey::HeapBlock { site, .. } => self.heap_object(site),
            ObjectKey::Global { module, svma } => self.global(module, svma),
            ObjectKey::DataGap { module, section_svma } => self.data_gap(module, section_svma),
            ObjectKey::Local { module, .. } => self.local(id, module),
            ObjectKey::StackFrame { module, function_svma } => Object {
                name: format!("frame of {}", self.function_name(module, function_svma)),
                module: Self::module_ix(module),
                ..Object::default()
            },
            ObjectKey::Stack { thread } => Object {
                name: match thread {
                    0 => "stack outside known frames".into(),
                    thread => format!("stack of thread {thread} outside known frames"),
                },
                ..Object::default()
            },
            ObjectKey::Tls { module, offset_bytes } => self.thread_local(module, offset_bytes),
            ObjectKey::Code { module } => Object {
                name: format!("code of {}", self.module_name(module)),
                module: Self::module_ix(module),
                ..Object::default()
            },
            ObjectKey::Mmap { file, site } => self.mapping(file, site),
            ObjectKey::Kernel { page } => Object {
                name: if page == 0 { "vvar".into() } else { self.module_name(page) },
                ..Object::default()
            },
            ObjectKey::Unknown { reason } => Object {
                name: reason.as_str().into(),
                unknown_reason: Some(reason.as_str().into()),
                ..Object::default()
            },
            _ => Object { name: "unnamed".into(), ..Object::default() },
        }
    }

    pub(crate) fn symbols(&self, module: u32) -> Option<&'a Module> {
        self.space.module(module)?.symbols.as_ref()
    }

    pub(super) fn module_name(&self, module: u32) -> String {
        let path = self.space.module(module).map_or("", |module: &LoadedModule| module.path.as_str());
        match path.rsplit('/').next() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => "unknown module".to_owned(),
        }
    }

    fn function_name(&self, module: u32, svma: u64) -> String {
        let function = self.symbols(module).and_then(|symbols| symbols.function_at(svma));
        match function.and_then(|function| function.name) {
            Some(name) => name.to_string(),
            None if module == 0 => "generated code".to_owned(),
            None => format!("{}+{svma:#x}", self.module_name(module)),
        }
    }

    fn global(&mut self, module: u32, svma: u64) -> Object {
        let symbols = self.symbols(module);
        let mut object = Object { module: Self::module_ix(module), ..Object::default() };
        let Some(symbol) = symbols.and_then(|symbols| symbols.data_symbol(svma)) else {
            object.name = format!("data of {}", self.module_name(module));
            return object;
        };
        object.name = symbol.name;
        object.bytes = Some(symbol.size);
        let info = symbols.and_then(|symbols| symbols.variable_info(svma));
        let type_ref = info.as_ref().and_then(|info| info.type_ref);
        self.variable_types.insert((module, svma), type_ref.map(|it| (module, it)));
        if let Some(info) = info {
            object.type_name = info.type_name;
            object.declared = declared(info.decl_file.as_deref(), info.decl_line);
        }
        object
    }

    fn data_gap(&self, module: u32, section_svma: u64) -> Object {
        let section = self.symbols(module).and_then(|symbols| {
            symbols.sections().iter().find(|section| section_svma != 0 && section.start == section_svma)
        });
        let place = section.map_or("data", |section| section.name.as_str());
        Object {
            module: Self::module_ix(module),
            name: format!("{place} of {}", self.module_name(module)),
            bytes: section.map(|section| section.end - section.start),
            ..Object::default()
        }
    }

    fn local(&self, id: ObjectId, module: u32) -> Object {
        let mut object = Object { module: Self::module_ix(module), ..Object::default() };
        if let Some(variable) = self.space.local(id) {
            object.name = variable.name.to_string();
            object.type_name = variable.type_name.as_deref().map(str::to_owned);
            object.declared = declared(variable.decl_file.as_deref(), variable.decl_line);
            object.bytes = Some(variable.size_bytes);
        }
        object
    }

    fn thread_local(&self, module: u32, offset_bytes: u64) -> Object {
        let mut object = Object { module: Self::module_ix(module), ..Object::default() };
        if module == 0 {
            object.name = "thread control block".into();
            return object;
        }
        let symbols = self.symbols(module);
        let symbol = symbols.and_then(|symbols| symbols.tls_symbol(offset_bytes));
        object.name = match &symbol {
            Some(symbol) => symbol.name.clone(),
            None => format!("thread-local data of {}", self.module_name(module)),
        };
        object.bytes = symbol.as_ref().map(|symbol| symbol.size);
        if let Some(info) = symbol.and(symbols).and_then(|symbols| symbols.tls_variable_info(offset_bytes)) {
            object.name = info.name;
            object.type_name = info.type_name;
            object.declared = declared(info.decl_file.as_deref(), info.decl_line);
        }
        object
    }

    fn mapping(&mut self, file: u32, site: Option<SiteId>) -> Object {
        let site_stack = site.map(|site| self.site_stack(site));
        let name = match (file, site) {
            (BREAK, _) => format!("{ALLOCATOR_DATA} (brk heap)"),
            (ANONYMOUS, Some(site)) => return self.anonymous_mapping(site),
            (ALLOCATORS, Some(site)) => match self.naming_code(site, 0) {
                NamingCode::Function(function) => format!("{ALLOCATOR_DATA} (mapped by {function})"),
                NamingCode::Call(_) => format!("{ALLOCATOR_DATA} (mapped)"),
            },
            (ALLOCATORS, None) => format!("{ALLOCATOR_DATA} (mapped)"),
            (ANONYMOUS, None) => "anonymous mapping".to_owned(),
            (file, _) => format!("mapping of {}", self.space.file(file).unwrap_or("a file")),
        };
        Object { name, site: site_stack, ..Object::default() }
    }

    /// As a block of the heap, by the variable that receives it; else by who made it.
    fn anonymous_mapping(&mut self, site: SiteId) -> Object {
        let Receiver { level, variable } = self.receiver(site, None);
        let mut object = Object { site: Some(self.site_stack(site)), ..Object::default() };
        object.named_at = Some(self.naming_frame(site, level, variable.as_ref()));
        match variable {
            Some(variable) => {
                let key = self.space.heap.sites().stack(site).get(level);
                let module = key.map(|&key| u32::from(split_frame_key(key).0));
                self.note_block_type(site, module.zip(variable.type_ref));
                (object.name, object.type_name) = (variable.name, variable.type_name);
            }
            None => object.name = self.name_mapping_by_code(site, level),
        }
        object
    }

    fn name_mapping_by_code(&mut self, site: SiteId, level: usize) -> String {
        match self.naming_code(site, level) {
            NamingCode::Function(function) => format!("mapping by {function}"),
            NamingCode::Call(_) => "anonymous mapping".to_owned(),
        }
    }
}

fn declared(file: Option<&str>, line: Option<u32>) -> Option<SourceLine> {
    Some(SourceLine { file: file?.to_owned(), line: line? })
}
