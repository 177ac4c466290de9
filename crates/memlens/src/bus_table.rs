//! An analysis as tables for people.

use memlens_bus::analysis::{Analysis, Losses, ObjectRow, PageSizes, TagCounts, Verification};

/// Groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.2}", 100.0 * part / whole) } else { "-".into() }
}

/// Names come from the traced program: nothing in them may steer a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Lays out rows in columns; the first is left-aligned.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[at].saturating_sub(cell.chars().count()));
            let gap = if at == 0 { "" } else { "  " };
            line += &if at < 2 { format!("{gap}{cell}{pad}") } else { format!("{gap}{pad}{cell}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn row(row: &ObjectRow, analysis: &Analysis) -> Vec<String> {
    let lines = (analysis.totals.data_reads + analysis.totals.data_writes) as f64;
    let walks: f64 = analysis.totals.walk_reads.iter().sum::<u64>() as f64;
    let misses: f64 = analysis.totals.leaf_reads.iter().sum::<u64>() as f64;
    let counts = &row.counts;
    vec![
        printable(&row.name),
        row.kind.to_owned(),
        format!("{:.2}", row.bytes as f64 / f64::from(1 << 20)),
        grouped(counts.reads),
        percent(counts.reads as f64, lines),
        grouped(counts.writes),
        percent(counts.writes as f64, lines),
        grouped(counts.walk_reads().round() as u64),
        percent(counts.walk_reads(), walks),
        grouped(counts.tlb_misses.round() as u64),
        percent(counts.tlb_misses, misses),
    ]
}

/// Which memory node lines come from: of each object, and altogether. Nothing if the trace names no nodes.
fn memory_nodes(analysis: &Analysis, shown: usize) -> String {
    if analysis.nodes.is_empty() {
        return String::new();
    }
    let numbers = 0..analysis.nodes.len();
    let titles = numbers.flat_map(|node| [format!("node {node}"), "%".to_owned()]);
    let mut rows = vec![[String::from("lines of"), String::new()].into_iter().chain(titles).collect()];
    let mut add = |name: String, kind: &str, counts: &[u64]| {
        let all = counts.iter().sum::<u64>() as f64;
        let cells = counts.iter().flat_map(|&lines| [grouped(lines), percent(lines as f64, all)]);
        rows.push([name, kind.to_owned()].into_iter().chain(cells).collect());
    };
    for object in analysis.objects.iter().take(shown) {
        add(printable(&object.name), object.kind, &object.lines_by_node);
    }
    let data: Vec<u64> = analysis.nodes.iter().map(|node| node.reads + node.writes).collect();
    let tables: Vec<u64> = analysis.nodes.iter().map(|node| node.walk_reads).collect();
    add("all data".into(), "", &data);
    add("page tables".into(), "", &tables);
    format!("\nMemory nodes\n{}", columns(&rows))
}

/// How much of the first objects pages of which size mapped, in MiB; empty if the trace has no page tables.
fn page_sizes(analysis: &Analysis, shown: usize) -> String {
    let mib = |bytes: u64| format!("{:.2}", bytes as f64 / f64::from(1 << 20));
    let titles =
        ["object", "kind", "MiB in 4-KiB pages", "2-MiB", "1-GiB", "% huge", "% transparent", "% hugetlb"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for object in analysis.objects.iter().take(shown).filter(|object| object.mapped.total() > 0) {
        let PageSizes { bytes_in_4k_pages, bytes_in_2m_pages, bytes_in_1g_pages, .. } = object.mapped;
        let share = |bytes: u64| percent(bytes as f64, object.mapped.total() as f64);
        // Hardware's traces do not tell where large pages are from.
        let told = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), share);
        rows.push(vec![
            printable(&object.name),
            object.kind.to_owned(),
            mib(bytes_in_4k_pages),
            mib(bytes_in_2m_pages),
            mib(bytes_in_1g_pages),
            share(object.mapped.huge()),
            told(object.mapped.bytes_in_transparent_pages),
            told(object.mapped.bytes_in_hugetlb_pages),
        ]);
    }
    let whose = match analysis.header.real_bytes {
        0 => "",
        _ => ", the running kernel's where its frames were known",
    };
    if rows.len() == 1 { String::new() } else { format!("\nPage sizes{whose}\n{}", columns(&rows)) }
}

/// The tables. `top`: how many objects; 0: all.
pub fn table(analysis: &Analysis, top: usize) -> String {
    let totals = &analysis.totals;
    let header = &analysis.header;
    let mut text = format!(
        "Bus trace of {} on {}: {} lines of {} bytes in {:.3} s",
        printable(&header.command.join(" ")),
        printable(&header.machine),
        grouped(totals.records),
        header.line_bytes,
        analysis.seconds
    );
    if let Some(bandwidth) = analysis.bandwidth() {
        text += &format!(", {:.1} MB/s", bandwidth / 1e6);
    }
    text += "\n\n";
    let titles = ["object", "kind", "MiB", "reads", "% of lines", "writes", "% of lines", "walk reads", "%"];
    let titles = titles.into_iter().chain(["TLB misses seen", "%"]).map(str::to_owned).collect();
    let mut rows: Vec<Vec<String>> = vec![titles];
    let shown = if top == 0 { analysis.objects.len() } else { top };
    rows.extend(analysis.objects.iter().take(shown).map(|object| row(object, analysis)));
    text += &columns(&rows);
    if analysis.objects.len() > shown {
        text += &format!("… and {} more objects (--top 0)\n", analysis.objects.len() - shown);
    }
    text += &page_sizes(analysis, shown);
    text += &memory_nodes(analysis, shown);
    text += "\nPage walks\n";
    let mut rows =
        vec![vec!["level".to_owned(), String::new(), "reads".to_owned(), "of leaf entries".to_owned()]];
    for (at, level) in ["page table", "page directory", "pointer table", "root"].into_iter().enumerate() {
        let leaves = totals.leaf_reads.get(at).copied().map_or_else(String::new, grouped);
        rows.push(vec![
            level.to_owned(),
            format!("level {}", at + 1),
            grouped(totals.walk_reads[at]),
            leaves,
        ]);
    }
    text += &columns(&rows);
    let pages = &analysis.walked_pages;
    if pages.reads > 0 {
        text += &format!(
            "{} entries were read; the 5 % read most cause {:.1} % of the reads\n",
            grouped(pages.entries),
            100.0 * pages.top_5_percent
        );
    }
    let others = [
        (totals.table_writes, "writes of page tables"),
        (totals.tags, "tags"),
        (totals.shared, "lines of frames that several pages map"),
        (totals.late, "lines of pages that were unmapped before"),
        (totals.kernel, "lines of the kernel's frames"),
        (totals.page_cache, "lines of the page cache that nothing maps"),
        (totals.device, "lines of devices' buffers"),
        (totals.unknown, "lines of frames that the page-table trace does not mention"),
        (totals.out_of_range, "lines beyond the memory"),
    ];
    text += "\nOther lines\n";
    let rows: Vec<Vec<String>> = others
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| vec![what.to_owned(), String::new(), grouped(count)])
        .collect();
    text += &columns(&rows);
    let lost = losses(&analysis.losses);
    if !lost.is_empty() {
        text += "\nLost or odd\n";
        lost.iter().for_each(|line| text += &format!("  {line}\n"));
    }
    text
}

/// What was lost or odd, a sentence each; empty if nothing was.
pub fn losses(losses: &Losses) -> Vec<String> {
    let mut all = Vec::new();
    let mut say = |count: u64, what: &str| {
        if count > 0 {
            all.push(format!("{} {what}", grouped(count)));
        }
    };
    say(losses.lost_records, "bus records are missing, by their numbers");
    say(losses.gaps, "places where bus records are missing");
    for (damage, which) in [(&losses.bus_damage, "bus"), (&losses.page_damage, "page-table")] {
        say(damage.blocks, &format!("damaged blocks of the {which} trace"));
        say(damage.skipped_bytes, &format!("bytes of the {which} trace are no block"));
        say(u64::from(damage.is_cut), &format!("{which} trace without its end"));
    }
    say(u64::from(losses.objects_cut), "file of object events without its end");
    say(losses.lost_page_records, "page-table records are damaged");
    say(losses.contradictions, "page-table records contradict what was before");
    say(losses.bad_lines, "lines of text make no sense");
    for (tags, which) in [(&losses.page_tags, "page-table"), (&losses.object_tags, "object")] {
        let TagCounts { missing, reordered, extra, without_event, early, events_left, .. } = *tags;
        say(missing, &format!("tags of {which} events never came"));
        say(reordered, &format!("tags of {which} events came late"));
        say(extra, &format!("tags of {which} events too many"));
        say(without_event, &format!("tags after the last {which} event"));
        say(early, &format!("{which} events happened before their tag, because a record needed them"));
        say(events_left, &format!("{which} events after the last tag"));
    }
    all.extend(losses.problems.iter().map(|problem| format!("failed to {}", printable(problem))));
    all
}

/// What a verification found.
pub fn verification(found: &Verification) -> String {
    let share = if found.records > 0 { 100.0 * found.right as f64 / found.records as f64 } else { 0.0 };
    let mut text = format!(
        "{} of {} records are attributed rightly: {share:.6} %\n",
        grouped(found.right),
        grouped(found.records)
    );
    let parts = [
        (found.right_shared, "of these to one of several owners of a shared frame"),
        (found.right_other_object, "of these on a line of several objects, to the largest of them"),
        (found.wrong_kind, "of the wrong kind"),
        (found.wrong_process, "of the wrong process"),
        (found.wrong_address, "of the wrong address"),
        (found.wrong_object, "of the wrong object"),
        (found.wrong_level, "walks of the wrong level"),
        (found.without_truth, "records without truth"),
    ];
    for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!("  {} {what}\n", grouped(count));
    }
    found.examples.iter().for_each(|example| text += &format!("  {}\n", printable(example)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_columns_aligned() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let rows = [["a", "x", "10"], ["bcd", "", "7"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "a    x  10\nbcd      7\n");
    }
}
