//! Short words for places: in code, and of allocations.

use crate::{CodeLocation, Frame, Object, Profile};

/// The last part of a path.
pub fn base_name(path: &str) -> &str {
    match path.rsplit('/').next() {
        Some(name) if !name.is_empty() => name,
        _ => path,
    }
}

/// `file:line` of a frame.
pub fn source_place(frame: &Frame) -> Option<String> {
    let file = base_name(frame.file.as_deref()?);
    Some(match frame.line {
        Some(line) => format!("{file}:{line}"),
        None => file.to_owned(),
    })
}

/// `module+0x1234` of a frame.
pub fn module_place(profile: &Profile, frame: &Frame) -> String {
    match profile.module(frame.module) {
        Some(module) => format!("{}+{:#x}", module.name(), frame.offset),
        None => format!("{:#x}", frame.offset),
    }
}

/// Where an object was allocated or declared: `function file:line`. The innermost frame is shown that is
/// no allocation wrapper: neither one inside the frame whose variable gave the object its name, nor one
/// of a language's library. The drill-down shows the whole stack.
pub fn object_place(profile: &Profile, object: &Object) -> Option<String> {
    if object.site.is_none() {
        let module = || profile.module(object.module).map(|module| module.name().to_owned());
        let declared = object.declared.as_ref();
        return declared
            .map(|declared| format!("{}:{}", base_name(&declared.file), declared.line))
            // Not twice where the reason is the name.
            .or_else(|| object.unknown_reason.clone().filter(|reason| *reason != object.name))
            .or_else(module);
    }
    let frames = || profile.stack_frames(object.site);
    let from = object.named_at.unwrap_or(0) as usize;
    let frame = frames().skip(from).find(|frame| !is_library(frame)).or_else(|| frames().next())?;
    Some(frame_place(profile, frame))
}

/// `function file:line` of a frame, as far as it is known.
pub fn frame_place(profile: &Profile, frame: &Frame) -> String {
    match (&frame.function, source_place(frame)) {
        (Some(function), Some(place)) => format!("{function} {place}"),
        (Some(function), None) => format!("{function} {}", module_place(profile, frame)),
        (None, _) => module_place(profile, frame),
    }
}

/// Functions of languages' libraries: everybody allocates and looks things up through them, so that they say nothing about who.
pub fn is_library(frame: &Frame) -> bool {
    const PREFIXES: [&str; 13] = [
        "std::",
        "__gnu_cxx::",
        "__cxxabi",
        "operator new",
        "alloc::",
        "<alloc::",
        "core::",
        "<core::",
        "<std::",
        "hashbrown::",
        "__rust_",
        "__rdl_",
        "__rg_",
    ];
    frame
        .function
        .as_deref()
        .is_some_and(|function| PREFIXES.iter().any(|prefix| function.starts_with(prefix)))
}

/// The innermost function at an operand, inlined or not; else where it is.
pub fn function_name(profile: &Profile, code: &CodeLocation) -> String {
    let frame = profile.stack_frames(code.stack).next();
    match (frame.and_then(|frame| frame.function.as_deref()), profile.module(code.module)) {
        (Some(function), _) => function.to_owned(),
        (None, Some(module)) => format!("{} (no symbol)", module.name()),
        (None, None) => "generated code".to_owned(),
    }
}

/// `file:line` of an operand.
pub fn code_place(profile: &Profile, code: &CodeLocation) -> Option<String> {
    profile.stack_frames(code.stack).next().and_then(source_place)
}
