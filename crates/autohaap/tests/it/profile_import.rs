//! Importers of other tools' measurements, on small files written from the formats' descriptions.

use autohaap::cluster::{Collective, Precision};
use autohaap::model::Model;
use autohaap::profile::folder::{Folder, LayerRow, Phase};
use autohaap::profile::import::{File, KINDS, Kind, Settings, import};

use crate::cost_support::{close, dense};

fn settings(model: Option<&Model>) -> Settings<'_> {
    Settings {
        model,
        entry: None,
        device: None,
        seq_len: 2048,
        precision: Precision::Fp32,
        ranks: None,
    }
}

fn file(name: &str, bytes: impl Into<Vec<u8>>) -> File {
    File {
        name: name.into(),
        bytes: bytes.into(),
    }
}

fn good(kind: Kind, files: &[File], settings: &Settings<'_>) -> Folder {
    import(kind, files, settings).unwrap_or_else(|p| panic!("{p}"))
}

#[track_caller]
fn refused(kind: Kind, files: &[File], settings: &Settings<'_>) -> &'static str {
    let problems = import(kind, files, settings).expect_err("refused");
    assert!(!problems.0[0].hint.is_empty());
    problems.0[0].code.id
}

fn row<'f>(folder: &'f Folder, class: &str, tp: u32, micro_batch: u32, phase: Phase) -> &'f LayerRow {
    folder
        .layers
        .iter()
        .find(|r| {
            serde_json::to_value(r.layer_class).expect("a word") == class
                && (r.tp, r.micro_batch, r.phase) == (tp, micro_batch, phase)
        })
        .expect("a row")
}

/// Two blocks: embedding, 2, head.
const SAILOR: &str = r#"{"M": {"A100-40": {"1": {"1": {
    "0": [0.001, 0.002, 0.0001], "1": [0.010, 0.020, 0.001], "2": [0.012, 0.022, 0.001], "3": [0.005, 0.006, 0.0001]},
  "2": {"0": [0.001, 0.002, 0.0001], "1": [0.006, 0.011, 0.001], "2": [0.006, 0.011, 0.001], "3": [0.003, 0.004, 0.0001]}}}}}"#;

#[test]
fn sailor_layer_times() {
    let model = dense(2, true);
    let folder = good(
        Kind::SailorProfile,
        &[file("p.json", SAILOR)],
        &settings(Some(&model)),
    );
    assert!(folder.manifest.includes_communication);
    assert_eq!(folder.layers.len(), 2 * 2 * 3);
    close(row(&folder, "dense", 1, 1, Phase::F).time_s_median, 0.011, 1e-12);
    close(row(&folder, "dense", 1, 1, Phase::B).time_s_median, 0.021, 1e-12);
    close(row(&folder, "dense", 2, 1, Phase::B).time_s_median, 0.011, 1e-12);
    close(
        row(&folder, "embedding", 1, 1, Phase::F).time_s_median,
        0.001,
        1e-12,
    );
    close(row(&folder, "head", 2, 1, Phase::B).time_s_median, 0.004, 1e-12);
    assert!(row(&folder, "head", 1, 1, Phase::F).device.starts_with("A100"));
    // One device's own file begins at the micro-batch and needs the device.
    let own = r#"{"4": {"1": {"0": [1, 2, 0], "1": [3, 4, 0], "2": [3, 4, 0], "3": [5, 6, 0]}}}"#;
    let mut given = settings(Some(&model));
    assert_eq!(
        refused(Kind::SailorProfile, &[file("p.json", own)], &given),
        "E564"
    );
    given.device = Some("V100-16GB");
    let folder = good(Kind::SailorProfile, &[file("p.json", own)], &given);
    close(row(&folder, "dense", 1, 4, Phase::F).time_s_median, 3.0, 1e-12);
}

#[test]
fn sailor_files_of_another_model_are_refused() {
    let model = dense(3, true);
    let files = [file("p.json", SAILOR)];
    assert_eq!(
        refused(Kind::SailorProfile, &files, &settings(Some(&model))),
        "E564"
    );
    assert_eq!(refused(Kind::SailorProfile, &files, &settings(None)), "E564");
    let right = dense(2, true);
    let zero = SAILOR.replace("0.010", "0.0");
    let files = [file("p.json", zero)];
    assert_eq!(
        refused(Kind::SailorProfile, &files, &settings(Some(&right))),
        "E562"
    );
    let two = r#"{"A": {"T4": {}}, "B": {"T4": {}}}"#;
    assert_eq!(
        refused(
            Kind::SailorProfile,
            &[file("p.json", two)],
            &settings(Some(&right))
        ),
        "E564"
    );
}

#[test]
fn sailor_links_are_clamped() {
    // 1 + y GB/s with y = log2 MB, at most 5: 64 KiB would be below zero.
    let text = r#"{"A100-40": {"1": [[0, 0, 1], 1e9], "2": [[0, 1, 1], 5e9]}}"#;
    let folder = good(Kind::SailorLinks, &[file("l.json", text)], &settings(None));
    assert_eq!(folder.comm.len(), 15);
    let at = |bytes: f64| {
        let row = folder.comm.iter().find(|r| r.bytes == bytes).expect("a size");
        assert_eq!(row.op, Collective::PointToPoint);
        bytes / row.time_s_median
    };
    let mib = f64::from(1 << 20);
    close(at(mib), 1e9 * (1.0 + (mib / 1e6).log2()), 1e-9);
    close(at(1024.0 * mib), 5e9, 1e-12);
    // 0.52 MB is the smallest size with a positive rate; below it that rate stands.
    close(at(65_536.0), 1e9 * (1.0 + (mib / 2e6).log2()), 1e-9);
    assert_eq!(
        refused(
            Kind::SailorLinks,
            &[file("l.json", r#"{"A100-40": {"4": [[0,1,1],5e9]}}"#)],
            &settings(None)
        ),
        "E564"
    );
}

#[test]
fn metis_times_are_forward_and_backward() {
    let model = dense(2, true);
    let text = r#"{"model": {"parameters": {}}, "execution_time": {"layer_compute_total_ms": [1.0, 6.0, 8.0, 3.0]}}"#;
    let files = [
        file("x/DeviceType.A100_tp1_bs1.json", text),
        file("DeviceType.A100_tp2_bs4.json", text),
    ];
    let folder = good(Kind::MetisProfile, &files, &settings(Some(&model)));
    let found = row(&folder, "dense", 2, 4, Phase::FB);
    close(found.time_s_median, 0.007, 1e-12);
    assert_eq!(found.provenance, "split");
    assert_eq!(
        refused(
            Kind::MetisProfile,
            &[file("a.json", text)],
            &settings(Some(&model))
        ),
        "E564"
    );
}

/// A file of NumPy, version 1.
fn npy(numbers: &[f64]) -> Vec<u8> {
    let header = format!(
        "{{'descr': '<f8', 'fortran_order': False, 'shape': ({},), }}\n",
        numbers.len()
    );
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
    bytes
}

#[test]
fn arrays_of_forward_times() {
    let model = dense(2, true);
    // Embedding, nothing, two blocks, nothing twice, head, nothing.
    let slots = [1.0, 0.0, 2.0, 4.0, 0.0, 0.0, 5.0, 0.0];
    let folder = good(
        Kind::AmpNpy,
        &[file("gpt2_P3_2.npy", npy(&slots))],
        &settings(Some(&model)),
    );
    assert_eq!(folder.layers.len(), 3);
    close(
        row(&folder, "embedding", 2, 1, Phase::F).time_s_median,
        1.0,
        1e-12,
    );
    close(row(&folder, "dense", 2, 1, Phase::F).time_s_median, 3.0, 1e-12);
    let head = row(&folder, "head", 2, 1, Phase::F);
    close(head.time_s_median, 5.0, 1e-12);
    assert!(head.device.starts_with("V100"), "{}", head.device);
    let folder = good(
        Kind::FasopNpy,
        &[file("gpt_A10_1.npy", npy(&[1.0, 2.0, 4.0, 5.0]))],
        &settings(Some(&model)),
    );
    close(row(&folder, "dense", 1, 1, Phase::F).time_s_median, 3.0, 1e-12);
    let mut cut = npy(&slots);
    cut.pop();
    for bad in [
        cut,
        b"PK".to_vec(),
        Vec::new(),
        npy(&[1.0]),
        b"\x93NUMPY\x01\x00\xff\xff".to_vec(),
    ] {
        assert_eq!(
            refused(
                Kind::AmpNpy,
                &[file("gpt2_P3_2.npy", bad)],
                &settings(Some(&model))
            ),
            "E564"
        );
    }
}

#[test]
fn text_of_the_nccl_tests() {
    let text = "# nThread 1 nGpus 8\n# all_reduce_perf\n#       size  count  type  redop  root  time  algbw  busbw\n\
        1048576 262144 float sum -1 50.0 20.97 36.70 0\n8388608 2097152 float sum -1 100.0 83.9 146.8 0\n";
    let mut given = settings(None);
    given.device = Some("A100-80G");
    given.ranks = Some(8);
    let folder = good(Kind::NcclTests, &[file("all_reduce.txt", text)], &given);
    assert_eq!(folder.comm.len(), 2);
    assert!(folder.manifest.model_hash.is_empty());
    close(folder.comm[0].time_s_median, 50e-6, 1e-9);
    assert_eq!(folder.comm[1].n_ranks, 8);
}

#[test]
fn any_bytes_are_an_error_and_no_crash() {
    let model = dense(2, true);
    let mut given = settings(Some(&model));
    given.device = Some("A100-80G");
    for (_, kind) in KINDS {
        for bytes in [
            &b""[..],
            b"{}",
            b"[]",
            b"\xff\xfe",
            b"{\"1\": {\"1\": 3}}",
            b"null",
        ] {
            let name = "DeviceType.A100_tp1_bs1.npy";
            assert!(import(*kind, &[file(name, bytes)], &given).is_err(), "{bytes:?}");
        }
    }
}
