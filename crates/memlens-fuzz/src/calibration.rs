//! The file that `memlens calibrate` writes.

use std::fs;

use memlens_calibrate::skid::LoopSkid;
use memlens_calibrate::{Calibration, CurvePoint, Latency, LatencyTable, LineRates, NodeLatency, WalkPoint};
use tempfile::TempDir;
use toml::Value;

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let of = |cycles, spread| Latency { cycles, spread };
    let skid = |name: &str, samples: [u64; 4]| LoopSkid {
        name: name.to_owned(),
        instructions: samples.len(),
        samples: samples.into(),
        elsewhere: 3,
    };
    let latency = LatencyTable {
        cycle_ns: 0.25,
        cycle_spread: 0.01,
        l1: of(4.0, 0.0),
        l2: Some(of(14.2, 0.05)),
        llc: of(51.5, 0.3),
        dram: of(310.0, 0.125),
        stlb: Some(of(7.0, 1.5)),
        walk: Some(of(22.0, 0.5)),
        transfer: Some(of(120.0, 0.2)),
        walks: [(6144, 22.0), (24_576, 90.5)]
            .map(|(pages, cycles)| WalkPoint { pages, cycles: of(cycles, 0.5) })
            .into(),
        nodes: vec![NodeLatency { node: 1, cycles: of(520.0, 0.25) }],
        llc_reach_bytes: 16 << 20,
        curve: vec![
            CurvePoint { bytes: 4096, small_pages: of(4.0, 0.0), huge_pages: None },
            CurvePoint { bytes: 1 << 24, small_pages: of(60.0, 0.1), huge_pages: Some(of(50.0, 0.1)) },
        ],
    };
    let lines = LineRates {
        from_l2: Some(of(2.2, 0.01)),
        from_llc: of(3.6, 0.1),
        from_memory: of(8.8, 0.2),
        from_memory_alone: Some(of(17.1, 0.2)),
        set_loads: Some(of(10.5, 0.02)),
        set_stores: None,
        set_modifies: None,
    };
    let skids = vec![skid("load", [1, 1800, 2, 0]), skid("store", [9, 1, i64::MAX as u64, 0])];
    let least = LatencyTable {
        l2: None,
        stlb: None,
        walk: None,
        transfer: None,
        walks: Vec::new(),
        nodes: Vec::new(),
        curve: Vec::new(),
        ..latency.clone()
    };
    let all = [
        Calibration::now(latency, Some(lines), Some("cpu-clock".to_owned()), skids),
        Calibration::now(least, None, None, Vec::new()),
    ];
    let fixed =
        |calibration| Calibration { processor: "AMD (26-68-0)".into(), measured_at: 1, ..calibration };
    all.into_iter().filter_map(|it| Some(toml::to_string(&fixed(it)).ok()?.into_bytes())).collect()
}

pub(crate) fn check(bytes: &[u8]) {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("calibration.toml");
    fs::write(&path, bytes).expect("space for a small file");
    let calibration = match Calibration::read(&path) {
        Ok(calibration) => calibration,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let again = folder.path().join("again").join("calibration.toml");
    calibration.write(&again).expect("what was read can be written");
    assert_eq!(Calibration::read(&again).expect("what was written can be read"), calibration);
    let text = std::str::from_utf8(bytes).expect("what was read is text");
    // Numbers above 2^63 are none to the general parser (TOML 1.0.0, "Integer").
    let Ok(table) = text.parse::<toml::Table>() else { return };
    assert_eq!(table["format"].as_integer(), Some(1));
    let latency = table["latency"].as_table().expect("what accesses cost");
    let of = |stored: &Value| (number(&stored["cycles"]), number(&stored["spread"]));
    let level = |level: &str| latency.get(level).map(of);
    let nodes = latency.get("nodes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let nodes: Vec<(f64, f64)> = nodes.iter().map(|node| of(&node["cycles"])).collect();
    // Of other nodes it is their mean, and the widest spread.
    let remote = (!nodes.is_empty()).then(|| {
        let sum: f64 = nodes.iter().map(|(cycles, _)| cycles).sum();
        (sum / nodes.len() as f64, nodes.iter().fold(0.0, |widest: f64, &(_, spread)| widest.max(spread)))
    });
    let levels = [
        level("l1"),
        level("l2"),
        level("llc"),
        level("dram"),
        remote,
        level("stlb"),
        level("walk"),
        level("transfer"),
    ];
    let stored: Vec<(f64, f64)> = levels.into_iter().flatten().collect();
    let found = calibration.latency.levels();
    assert_eq!(found.len(), stored.len());
    let mut widest = number(&latency["cycle_spread"]);
    for ((name, found), stored) in found.iter().zip(stored) {
        assert_eq!((found.cycles, found.spread), stored);
        assert!((0.0..1e6).contains(&found.cycles), "{name}: {found:?}");
        widest = widest.max(found.spread);
    }
    assert_eq!(calibration.largest_spread().1, widest);
    let pages: Vec<u64> = calibration.latency.walks.iter().map(|walk| walk.pages).collect();
    assert!(pages.is_sorted_by(|near, far| near < far) && pages.first() != Some(&0), "{pages:?}");
    for skid in &calibration.skid {
        let shares: Vec<f64> = (0..skid.samples.len()).map(|at| skid.share(at)).collect();
        let (sum, most) = (shares.iter().sum::<f64>(), shares.iter().copied().fold(0.0, f64::max));
        let has_samples = skid.samples.iter().any(|&samples| samples > 0);
        assert!((sum - f64::from(u8::from(has_samples))).abs() < 1e-6, "{shares:?}");
        assert_eq!(skid.usual().map(|usual| shares[usual]), has_samples.then_some(most));
    }
}

/// A number, with a fraction or without.
fn number(value: &Value) -> f64 {
    value.as_float().or_else(|| Some(value.as_integer()? as f64)).expect("a number")
}
