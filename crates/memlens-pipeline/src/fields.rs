//! Which fields of structures were touched: offsets out of windows and of first accesses, with the objects' types.

use memlens_fields::{Layouts, Offset, Seen, TypeOf, add_fields};
use memlens_objects::{ObjectId, ObjectKey};
use memlens_profile::ObjectIx;
use rustc_hash::FxHashMap;

use crate::address_space::ANONYMOUS;
use crate::process::Process;
use crate::snapshot::{Builder, CodeRows};

impl Process {
    /// Where in objects references, which are the operands here, were seen: what windows have, and of those that were in none the first access.
    pub(crate) fn offsets(&self) -> Vec<Offset> {
        let (offsets, numbers) = self.windows.offsets();
        let references = self.blocks.references();
        let number_of = |reference: u32| {
            let known = references.get(reference as usize)?;
            numbers.get(&known.operand_key()).copied()
        };
        let mut reference_of: FxHashMap<u32, u32> = FxHashMap::default();
        let mut seen: Vec<Offset> = Vec::new();
        for thread in self.threads.iter().flatten() {
            for (reference, object, offset) in thread.references.cells().offsets() {
                let number = number_of(reference);
                if let Some(number) = number {
                    reference_of.entry(number).or_insert(reference);
                }
                if self.may_have_fields(object) && number.is_none_or(|number| !offsets.knows(number, object))
                {
                    seen.push(Offset { operand: reference, object, bytes: offset, times: 1, is_run: false });
                }
            }
        }
        let of_windows = offsets.iter().filter(|seen| self.may_have_fields(seen.object));
        for it in of_windows {
            let Some(&operand) = reference_of.get(&it.operand) else { continue };
            let it = Offset { operand, ..it };
            // Mostly an operand is at one offset of an object each time: all of them would be tens of megabytes.
            match seen.last_mut() {
                Some(last) if Offset { times: it.times, ..*last } == it => last.times += it.times,
                _ => seen.push(it),
            }
        }
        seen
    }

    fn may_have_fields(&self, object: u32) -> bool {
        let key = ObjectId::new(object).and_then(|id| self.space.heap.objects().key(id));
        matches!(
            key,
            Some(
                ObjectKey::HeapSite(_)
                    | ObjectKey::HeapBlock { .. }
                    | ObjectKey::Global { .. }
                    | ObjectKey::Tls { .. }
                    | ObjectKey::Local { .. }
                    | ObjectKey::Mmap { file: ANONYMOUS, site: Some(_) }
            )
        )
    }
}

impl<'a> Builder<'a> {
    /// The fields of the profile's objects.
    pub(crate) fn fields(&mut self, seen: Vec<Offset>, code_of: &CodeRows, layouts: &mut Layouts) {
        // As large as what they are made of: in its place.
        let mut rows: Vec<Seen> = seen
            .into_iter()
            .filter_map(|Offset { operand, object, bytes, times, is_run }| {
                let (code, object) = (code_of.of(operand)?, *self.object_of.get(&object)?);
                Some(Seen { code, object, offset_bytes: bytes, times, is_run })
            })
            .collect();
        let place = |seen: &Seen| (seen.object, seen.code, seen.offset_bytes, seen.is_run);
        rows.sort_unstable_by_key(place);
        rows.dedup_by(|next, kept| {
            let is_same = place(next) == place(kept);
            kept.times += if is_same { next.times } else { 0 };
            is_same
        });
        let ids: Vec<u32> = self.profile.objects.iter().map(|object| object.id).collect();
        let (space, block_types, variable_types) = (self.space, &self.block_types, &self.variable_types);
        let type_of = |object: ObjectIx| {
            let id = ids.get(object.index()).and_then(|&id| ObjectId::new(id));
            let key = id.and_then(|id| Some((id, space.heap.objects().key(id)?)));
            let known = |number, type_ref, is_behind| {
                let module = space.module(number)?.symbols.as_ref()?;
                Some(TypeOf::Known { number, module, type_ref, is_behind })
            };
            let found = match key {
                Some((
                    _,
                    &(ObjectKey::HeapSite(site)
                    | ObjectKey::HeapBlock { site, .. }
                    | ObjectKey::Mmap { file: ANONYMOUS, site: Some(site) }),
                )) => {
                    let found = block_types.get(&site);
                    found.and_then(|found| known(found.module, found.type_ref, found.is_behind))
                }
                Some((id, key)) => {
                    let noted = match *key {
                        ObjectKey::Global { module, svma } => variable_types.get(&(module, svma)),
                        _ => None,
                    };
                    let found = match noted {
                        Some(&noted) => noted,
                        None => space.variable_type(id),
                    };
                    found.and_then(|(number, type_ref)| known(number, type_ref, false))
                }
                None => None,
            };
            found.unwrap_or(TypeOf::Unknown)
        };
        add_fields(&mut self.profile, &rows, layouts, &type_of);
    }
}
