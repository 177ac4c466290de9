//! The text of `perf script`.

use memlens_sample::{ScriptLine, ScriptSample, import_perf_script};

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let with_stacks = "# captured on: today\n\
        t 7/7  1752.555417: PERF_RECORD_COMM exec: t:7/7\n\
        t 7/7  1752.555457: PERF_RECORD_MMAP2 7/7: [0x558170f4a000(0x1000) @ 0x1000 fe:00 1028 22]: r-xp /opt/t\n\
        t 7/7  1752.561451:    1000000 cpu-clock:u: \n\
        \t            10b6 main+0x56 (/opt/t)\n\t    7f4a63bd3000 [unknown] (/usr/lib/libc.so.6)\n\
        \x20ABI:2    AX:0x1    BX:0x2    CX:0x3    DX:0x4    SI:0x5    DI:0x6    BP:0x7    SP:0x8    IP:0x9    \
        R8:0xa    R9:0xb   R10:0xc   R11:0xd   R12:0xe   R13:0xf   R14:0x10   R15:0x11 \n\n\
        t 7/7  1752.571451: PERF_RECORD_FORK(8:8):(7:7)\nt 8/8  1752.6: PERF_RECORD_LOST lost 5\n";
    let in_lines = "Web 3/77 [001]  9.000000001:    50 mem-loads:                0     55a34bb270af main+0x4f (/opt/t)\n\
        x 7 1.000001: cycles: ffffffff81000000 add ([kernel.kallsyms])\n\
        x 7 1.000002: PERF_RECORD_EXIT(7:7):(1:1)\n";
    vec![with_stacks.into(), in_lines.into()]
}

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut samples = 0u64;
    for line in text.split('\n') {
        if let ScriptLine::Sample(sample) = ScriptLine::parse(line.trim_end_matches('\r')) {
            samples += 1;
            round_trip(&sample);
        }
    }
    match import_perf_script(bytes, None) {
        Ok(profile) => {
            profile.validate().expect("what was imported is consistent");
            let sampling = profile.run.sampling.as_ref().expect("samples were imported");
            // Those whose period is impossible are counted as unread.
            assert!(sampling.samples <= samples, "only first lines are samples");
            assert!(samples - sampling.samples <= profile.attribution.lost_events);
            assert_eq!(profile.totals().sampled.samples, sampling.samples);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Written as perf writes it, a first line says the same again.
fn round_trip(sample: &ScriptSample) {
    let ScriptSample { comm, pid, tid, time_ns, event, numbers, .. } = sample;
    let (seconds, fraction) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let mut line = format!(" {comm:>15} {pid}/{tid} {seconds:5}.{fraction:09}: ");
    if let Some(period) = sample.period {
        line += &format!("{period:10} ");
    }
    line += &format!("{event}: ");
    for number in numbers {
        line += &format!(" {number:16x}");
    }
    if let Some(file) = &sample.file {
        line += &format!(" f+0x1 ({file})");
    }
    let ScriptLine::Sample(again) = ScriptLine::parse(&line) else { panic!("no sample: {line:?}") };
    assert_eq!(again, ScriptSample { registers: None, ..sample.clone() }, "{line:?}");
}
