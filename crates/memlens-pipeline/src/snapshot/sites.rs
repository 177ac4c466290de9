//! Allocation sites: who keeps their blocks, and what these are called after.

use super::Builder;
use crate::address_space::SiteName;
use memlens_objects::{ObjectId, ObjectKey, SiteId, split_frame_key};
use memlens_profile::{FrameIx, Object, StackIx};
use memlens_symbols::{
    AssignedVariable, Assignment, NamingCode, Receiver, TypeRef, block_type, naming_code, receiver,
    spelling_frame,
};

impl Builder<'_> {
    pub(super) fn site_stack(&mut self, site: SiteId) -> StackIx {
        let keys = self.space.heap.sites().stack(site).to_vec();
        let frames = keys.into_iter().flat_map(|key| self.frames_at(key, true)).collect();
        self.stack(frames)
    }

    /// After which code a site's blocks are called from its call number `level` outwards, if that has a function with a name.
    pub(super) fn naming_code(&mut self, site: SiteId, level: usize) -> NamingCode<String> {
        let keys = self.space.heap.sites().stack(site).to_vec();
        let calls = keys.into_iter().skip(level).map(|key| {
            let frames = self.frames_at(key, true);
            let frame = |ix: &FrameIx| &self.profile.frames[ix.index()];
            let named = frames.iter().map(|ix| (frame(ix).function.clone(), frame(ix).file.clone()));
            (split_frame_key(key).0, named.collect::<Vec<_>>())
        });
        match naming_code(calls) {
            NamingCode::Function(function) => NamingCode::Function(function.to_string()),
            NamingCode::Call(at) => NamingCode::Call(level + at),
        }
    }

    pub(super) fn heap_object(&mut self, site: SiteId) -> Object {
        let mut object = Object { site: Some(self.site_stack(site)), ..Object::default() };
        let receiver = match self.space.site_name(site) {
            Some(SiteName::Text(name)) => {
                object.name.clone_from(name);
                object.named_at = Some(self.requests_frames(site));
                return object;
            }
            Some(&SiteName::Stored { variable, cfa_offset }) => {
                let assignment = self.slot_assignment(site, cfa_offset);
                let handed_on = matches!(assignment, Assignment::HandedOn(_));
                if !handed_on && let Some((name, type_name)) = self.variable_name(variable) {
                    (object.name, object.type_name) = (name, type_name);
                    self.note_block_type(site, self.space.variable_type(variable));
                    return object;
                }
                self.receiver(site, Some(assignment))
            }
            None => self.receiver(site, None),
        };
        let mut type_of_variable = None;
        let Receiver { level, variable } = receiver;
        object.named_at = Some(self.naming_frame(site, level, variable.as_ref()));
        match variable {
            Some(variable) => {
                let key = self.space.heap.sites().stack(site).get(level);
                let module = key.map(|&key| u32::from(split_frame_key(key).0));
                type_of_variable = module.zip(variable.type_ref);
                object.name = variable.name;
                object.type_name = variable.type_name;
            }
            None => object.name = self.name_by_code(site, level),
        }
        self.note_block_type(site, type_of_variable);
        object
    }

    /// How many of a site's innermost frames make the request by which the program named it.
    fn requests_frames(&mut self, site: SiteId) -> u32 {
        let keys = self.space.heap.sites().stack(site).to_vec();
        let frames: Vec<FrameIx> = keys.into_iter().flat_map(|key| self.frames_at(key, true)).collect();
        let is_request = |frame: &&FrameIx| {
            let function = self.profile.frames[frame.index()].function.as_deref();
            function.is_some_and(|name| name.starts_with("memlens_"))
        };
        frames.iter().take_while(is_request).count() as u32
    }

    /// Notes the type of a site's blocks, which are called after a variable of this type.
    pub(super) fn note_block_type(&mut self, site: SiteId, variable: Option<(u32, TypeRef)>) {
        let calls = self.space.heap.sites().stack(site).iter().map_while(|&key| {
            let (number, svma) = split_frame_key(key);
            Some((number.into(), self.symbols(number.into())?, svma))
        });
        let variable = variable.and_then(|(number, held)| Some((number, self.symbols(number)?, held)));
        self.block_types.extend(block_type(calls, variable).map(|found| (site, found)));
    }

    /// The frame, counted from the innermost of a site's stack, in which the result of its call number
    /// `level` is kept: the outermost one of that call, unless the source says that `variable` is one of an inlined function;
    /// without a variable the innermost.
    pub(super) fn naming_frame(
        &mut self,
        site: SiteId,
        level: usize,
        variable: Option<&AssignedVariable>,
    ) -> u32 {
        let keys = self.space.heap.sites().stack(site).to_vec();
        let inside: usize = keys.iter().take(level).map(|&key| self.frames_at(key, true).len()).sum();
        let Some(variable) = variable else { return inside as u32 };
        let frames = keys.get(level).map(|&key| self.frames_at(key, true)).unwrap_or_default();
        let texts = frames.iter().map(|frame| self.profile.frames[frame.index()].source_text.as_deref());
        (inside + spelling_frame(&variable.name, texts)) as u32
    }

    /// Name and type of a local, global or thread-local variable.
    fn variable_name(&mut self, id: ObjectId) -> Option<(String, Option<String>)> {
        let key = *self.space.heap.objects().key(id)?;
        let named = matches!(
            key,
            ObjectKey::Local { .. }
                | ObjectKey::Global { .. }
                | ObjectKey::DataGap { .. }
                | ObjectKey::Tls { .. }
        );
        let object = named.then(|| self.describe(id, &key))?;
        Some((object.name, object.type_name))
    }

    /// Where the address goes that a site's innermost call stored in its caller's frame.
    fn slot_assignment(&self, site: SiteId, cfa_offset: Option<i64>) -> Assignment {
        let key = self.space.heap.sites().stack(site).first();
        let assignment = key.zip(cfa_offset).and_then(|(&key, offset)| {
            let (number, svma) = split_frame_key(key);
            Some(self.symbols(number.into())?.slot_assignment(svma, offset))
        });
        assignment.unwrap_or(Assignment::Unknown)
    }

    /// Who keeps the block, from the innermost caller outwards. `first` says what becomes of the innermost call's result, if
    /// that is not the block.
    pub(super) fn receiver(&mut self, site: SiteId, mut first: Option<Assignment>) -> Receiver {
        let keys = self.space.heap.sites().stack(site);
        let assignments = &mut self.assignments;
        receiver(keys.iter().map_while(|&key| {
            let (number, svma) = split_frame_key(key);
            let symbols = self.space.module(number.into())?.symbols.as_ref()?;
            Some(match first.take() {
                Some(first) => first,
                None => assignments.entry(key).or_insert_with(|| symbols.assignment(svma)).clone(),
            })
        }))
    }

    fn name_by_code(&mut self, site: SiteId, level: usize) -> String {
        let call = match self.naming_code(site, level) {
            NamingCode::Function(function) => return function,
            NamingCode::Call(call) => call,
        };
        match self.space.heap.sites().stack(site).get(call) {
            Some(&key) => {
                let (number, svma) = split_frame_key(key);
                format!("{}+{svma:#x}", self.module_name(number.into()))
            }
            None => "block allocated outside known code".to_owned(),
        }
    }
}
