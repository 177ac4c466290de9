//! Advice for programs.

use memlens_analysis::{
    Advice, Allocating, Finding, LEAST_GAIN, LEAST_TIME_GAIN, Level, Nodes, Remedy, Searched, SetConflict,
};
use memlens_profile::{ObjectIx, Profile};
use serde_json::{Value, json};

use super::words::{field_names, ids, object, title};

/// What the first key of the JSON says.
pub const ADVICE_SCHEMA: &str = "memlens-advice/1";

/// Advice for programs, everything: schema `memlens-advice/1`.
pub fn advice_json(profile: &Profile, advice: &Advice) -> Value {
    let entry = |finding: &Finding| {
        let mut entry = json!({
            "remedy": finding.remedy.as_str(),
            "title": title(profile, finding),
            "gain_at_most": finding.gain,
            "time_gain_at_most": finding.time_gain,
            "measured_time_gain": finding.time_gain.and_then(|gain| profile.of_measured_time(gain)),
            "object": object(profile, finding).map(|object| object.id),
            "objects": ids(profile, &finding.objects),
            "accesses": finding.counts.accesses(),
            "l1_misses": finding.counts.l1_misses(),
            "llc_misses": finding.counts.llc_misses(),
            "page_walks": finding.counts.stlb_misses,
            "code": finding.code.iter().filter_map(|code| {
                let code = profile.code.get(code.index())?;
                let module = profile.module(code.module).map(|module| module.name());
                Some(json!({"module": module, "offset": format!("{:#x}", code.offset)}))
            }).collect::<Vec<_>>(),
        });
        let names = |fields| field_names(profile, fields);
        match &finding.remedy {
            Remedy::HugePages { pages, walks_saved } => {
                entry["huge_pages"] = (*pages).into();
                entry["walks_saved"] = (*walks_saved).into();
            }
            Remedy::Prefetch { index, beside } => {
                let id = |object: &ObjectIx| profile.objects.get(object.index()).map(|object| object.id);
                entry["index_object"] = index.as_ref().and_then(id).into();
                entry["beside"] = beside.iter().filter_map(id).collect::<Vec<_>>().into();
            }
            Remedy::Sort { index, walks, beside } => {
                let id = |object: &ObjectIx| profile.objects.get(object.index()).map(|object| object.id);
                entry["index_object"] = id(index).into();
                entry["walks"] = (*walks).into();
                entry["beside"] = beside.iter().filter_map(id).collect::<Vec<_>>().into();
            }
            Remedy::Layout { stride_bytes, used_bytes, against } => {
                entry["against"] = against.map(|object| profile.objects[object.index()].id).into();
                entry["stride_bytes"] = (*stride_bytes).into();
                entry["used_bytes"] = (*used_bytes).into();
            }
            Remedy::Pad { stride_bytes, lines, padding_bytes, conflicts } => {
                entry["stride_bytes"] = (*stride_bytes).into();
                entry["lines"] = (*lines).into();
                entry["padding_bytes"] = (*padding_bytes).into();
                let level = |one: &SetConflict| {
                    json!({
                        "level": one.level.number(),
                        "sets": one.sets,
                        "of_sets": one.of_sets,
                        "ways": one.ways,
                        "misses": one.misses,
                        "misses_needed": one.needed,
                    })
                };
                let of_caches = conflicts.iter().filter(|one| one.level != Level::Stlb);
                entry["conflicts"] = of_caches.map(level).collect();
                let of_pages = conflicts.iter().find(|one| one.level == Level::Stlb);
                entry["stlb_conflict"] = of_pages.map(level).into();
            }
            Remedy::Split { hot, hot_bytes, element_bytes } => {
                entry["hot_fields"] = names(hot).into();
                entry["hot_bytes"] = (*hot_bytes).into();
                entry["element_bytes"] = (*element_bytes).into();
            }
            Remedy::Pack { nodes } => {
                entry["nodes"] = match nodes {
                    Nodes::Blocks => "blocks",
                    Nodes::Parts => "parts",
                }
                .into();
            }
            Remedy::Shorten { searched, nodes } => {
                entry["searched"] = match searched {
                    Searched::Lists => "lists",
                    Searched::Tree => "tree",
                }
                .into();
                entry["nodes_per_search"] = (*nodes).into();
            }
            Remedy::Separate { false_sharing, users, writers, fields } => {
                entry["false_sharing"] = (*false_sharing).into();
                entry["users"] = (*users).into();
                entry["writers"] = (*writers).into();
                entry["fields"] = names(fields).into();
            }
            Remedy::PerThread { true_sharing, writers, fields, one_writer_each } => {
                entry["one_writer_each"] = (*one_writer_each).into();
                entry["true_sharing"] = (*true_sharing).into();
                entry["writers"] = (*writers).into();
                entry["fields"] = names(fields).into();
            }
            Remedy::Allocate { blocks, allocating } => {
                entry["blocks"] = (*blocks).into();
                let site = |it: &Allocating| json!({"objects": ids(profile, &it.row), "blocks": it.blocks, "bytes": it.bytes});
                entry["allocating"] = allocating.iter().map(site).collect();
            }
            Remedy::Place { remote_misses, misplaced, users, first } => {
                entry["remote_misses"] = (*remote_misses).into();
                entry["misplaced"] = (*misplaced).into();
                entry["users"] = (*users).into();
                entry["first_touch"] = first.map_or(Value::Null, |first| {
                    let thread = profile.threads.get(first.thread.index()).map(|thread| thread.tid);
                    json!({"thread": thread, "pages": first.pages})
                });
            }
        }
        entry
    };
    json!({
        "schema": ADVICE_SCHEMA,
        "estimated": profile.run.estimated,
        "least_gain": LEAST_GAIN,
        "least_time_gain": LEAST_TIME_GAIN,
        "findings": advice.findings.iter().map(entry).collect::<Vec<_>>(),
        "hidden": advice.hidden.iter().map(entry).collect::<Vec<_>>(),
        "without_remedy": advice.without_remedy.iter().map(|(row, share)| {
            json!({"objects": ids(profile, row), "stall_share": share})
        }).collect::<Vec<_>>(),
    })
}
