//! Profiles: the format, the ladder, and what a measured time does to a prediction.

use std::collections::BTreeMap;

use autohaap::cluster::{Cluster, Precision};
use autohaap::cost::atom::{AtomCost, ReplicaShape, Setting, atom_cost};
use autohaap::cost::price::{Cache, price};
use autohaap::model::Model;
use autohaap::plan::Pipeline;
use autohaap::profile::folder::Folder;
use autohaap::profile::{Step, attach, model_hash};
use proptest::prelude::*;

use crate::cost_support::{close, dense, inside, pipeline, replica, round, shape, stage, training};

const NODE: &str = "1x8 A100-SXM-80GB";
const HEAD: &str = "device,layer_class,tp,sp,micro_batch,seq_len,phase,time_s_median\n";

/// A profile of a model's layers with these rows; collectives inside the times or not.
fn files(model: &Model, included: bool, rows: &str) -> BTreeMap<String, String> {
    let manifest = format!(
        r#"{{"schema":"autohaap/profile@1","dtype":"bf16","model_hash":"{}","includes_communication":{included}}}"#,
        model_hash(model)
    );
    BTreeMap::from([
        ("manifest.json".to_owned(), manifest),
        ("layers.csv".to_owned(), format!("{HEAD}{rows}")),
    ])
}

fn folder(model: &Model, included: bool, rows: &str) -> Folder {
    Folder::read(&files(model, included, rows), "p").unwrap_or_else(|p| panic!("{p}"))
}

fn with(cluster: &Cluster, model: &Model, included: bool, rows: &str) -> Cluster {
    let mut cluster = cluster.clone();
    attach(
        &mut cluster,
        &folder(model, included, rows),
        model,
        Precision::Bf16,
        "p",
    )
    .unwrap_or_else(|p| panic!("{p}"));
    cluster
}

fn block(model: &Model, cluster: &Cluster, rows: u32, tp: u32) -> AtomCost {
    let mut shape: ReplicaShape = shape(cluster);
    (shape.rows, shape.tp) = (rows, tp);
    shape.tp_group = inside(cluster, tp);
    atom_cost(&Setting::new(model, cluster, &training()), 1, &shape)
}

fn code<T>(found: Result<T, autohaap::error::Problems>) -> Vec<&'static str> {
    match found {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(|p| p.code.id).collect(),
    }
}

fn step(cost: &AtomCost) -> Option<Step> {
    cost.origin.map(|o| o.step)
}

#[test]
fn a_measured_time_comes_back() {
    let (model, bare) = (dense(4, true), round(NODE, 1));
    let cluster = with(
        &bare,
        &model,
        false,
        "A100-80G,dense,1,false,2,1024,F,0.001\nA100-80G,dense,1,false,2,1024,B,0.0015\nA100-80G,dense,1,false,2,1024,W,0.0007\n",
    );
    let cost = block(&model, &cluster, 2, 1);
    close(cost.forward.compute.0, 0.001, 1e-12);
    close(cost.input_grad.compute.0, 0.0015, 1e-12);
    close(cost.weight_grad.compute.0, 0.0007, 1e-12);
    close(cost.recompute_full.compute.0, 0.001, 1e-12);
    let origin = cost.origin.expect("an origin");
    assert_eq!(origin.step, Step::Measured);
    close(origin.sigma, 0.02, 1e-12);
    // The embedding has no row: its time is the device's figures', and is labelled so by having no origin here.
    let training = training();
    let setting = Setting::new(&model, &cluster, &training);
    let embedding = atom_cost(&setting, 0, &shape(&cluster));
    assert_eq!(embedding.origin, None);
    assert!(embedding.forward.compute.0 > 0.0);
}

#[test]
fn phases_measured_together_keep_their_sum() {
    let (model, bare) = (dense(4, true), round(NODE, 1));
    let plain = block(&model, &bare, 1, 1);
    let cluster = with(&bare, &model, false, "A100-80G,dense,1,false,1,1024,FB,0.01\n");
    let cost = block(&model, &cluster, 1, 1);
    let sum = |c: &AtomCost| (c.forward.compute + c.input_grad.compute + c.weight_grad.compute).0;
    close(sum(&cost), 0.01, 1e-12);
    // Split as the model splits it.
    close(
        cost.forward.compute.0 / sum(&cost),
        plain.forward.compute.0 / sum(&plain),
        1e-12,
    );
    // A backward without its weight gradient apart holds both.
    let cluster = with(
        &bare,
        &model,
        false,
        "A100-80G,dense,1,false,1,1024,F,0.004\nA100-80G,dense,1,false,1,1024,B,0.006\n",
    );
    let cost = block(&model, &cluster, 1, 1);
    close(cost.forward.compute.0, 0.004, 1e-12);
    close(
        (cost.input_grad.compute + cost.weight_grad.compute).0,
        0.006,
        1e-12,
    );
}

#[test]
fn between_and_beyond_measured_settings() {
    let (model, bare) = (dense(4, true), round(NODE, 1));
    let plain = |rows, tp| block(&model, &bare, rows, tp).forward.compute.0;
    // Twice the model's time at one row, three times at four.
    let rows = format!(
        "A100-80G,dense,1,false,1,1024,F,{}\nA100-80G,dense,1,false,4,1024,F,{}\n",
        2.0 * plain(1, 1),
        3.0 * plain(4, 1)
    );
    let cluster = with(&bare, &model, false, &rows);
    // One third of the way from one to four: 2 + 1/3.
    let between = block(&model, &cluster, 2, 1);
    close(between.forward.compute.0, plain(2, 1) * 7.0 / 3.0, 1e-9);
    assert_eq!(step(&between), Some(Step::Interpolated));
    let beyond = block(&model, &cluster, 8, 1);
    close(beyond.forward.compute.0, plain(8, 1) * 3.0, 1e-9);
    assert_eq!(step(&beyond), Some(Step::Scaled));
    let split = block(&model, &cluster, 1, 4);
    close(split.forward.compute.0, plain(1, 4) * 2.0, 1e-9);
    assert_eq!(step(&split), Some(Step::Scaled));
    // A nearer setting in doublings decides: 3 rows lie between, 6 beyond.
    assert_eq!(step(&block(&model, &cluster, 4, 1)), Some(Step::Measured));
}

#[test]
fn another_device_is_transferred() {
    let model = dense(4, true);
    let bare = round("1x8 A100-SXM-80GB", 1);
    let h100 = round("1x8 H100-SXM-80GB", 1);
    let slower = block(&model, &h100, 1, 1).forward.compute.0;
    // Rows of a catalogue device that is not in the cluster; its model time is the catalogue's.
    let rows = "H100,dense,1,false,1,1024,F,0.002\n";
    let cluster = with(&bare, &model, false, rows);
    let cost = block(&model, &cluster, 1, 1);
    let origin = cost.origin.expect("an origin");
    assert_eq!(origin.step, Step::Transferred);
    assert!(origin.sigma >= Step::Transferred.sigma());
    assert!(slower > 0.0 && cost.forward.compute.0.is_finite());
    // Twice the measurement, twice the time.
    let twice = with(&bare, &model, false, "H100,dense,1,false,1,1024,F,0.004\n");
    close(
        block(&model, &twice, 1, 1).forward.compute.0,
        2.0 * cost.forward.compute.0,
        1e-12,
    );
}

#[test]
fn times_with_collectives_hold_for_their_own_degree() {
    let (model, bare) = (dense(4, true), round(NODE, 1));
    let rows = "A100-80G,dense,2,true,1,1024,F,0.003\n";
    let cluster = with(&bare, &model, true, rows);
    let cost = block(&model, &cluster, 1, 2);
    close(cost.forward.total().0, 0.003, 1e-12);
    assert!(cost.forward.tp.0 > 0.0);
    // At another degree the collectives are not known apart: the device's figures, labelled so.
    assert_eq!(block(&model, &cluster, 1, 4).origin, None);
    // Without collectives they are added.
    let cluster = with(&bare, &model, false, rows);
    let apart = block(&model, &cluster, 1, 2);
    close(apart.forward.compute.0, 0.003, 1e-12);
    close(apart.forward.tp.0, block(&model, &bare, 1, 2).forward.tp.0, 1e-12);
}

fn two_stages() -> Vec<Pipeline> {
    vec![pipeline(
        1,
        8,
        vec![
            stage([0, 3], 2, vec![replica("n0:0", 1)]),
            stage([3, 6], 1, vec![replica("n0:1", 1)]),
        ],
    )]
}

/// Rows that say `factor` times what the model says of the three classes.
fn own_rows(model: &Model, cluster: &Cluster, rows: u32, factor: f64) -> String {
    let training = training();
    let setting = Setting::new(model, cluster, &training);
    let mut shape = shape(cluster);
    shape.rows = rows;
    let mut text = String::new();
    for (atom, class) in [(0, "embedding"), (1, "dense"), (model.atoms.len() - 1, "head")] {
        let cost = atom_cost(&setting, atom, &shape);
        for (phase, time) in [
            ("F", cost.forward.compute.0),
            ("B", (cost.input_grad.compute + cost.weight_grad.compute).0),
        ] {
            text += &format!(
                "A100-80G,{class},1,false,{rows},1024,{phase},{:e}\n",
                time * factor
            );
        }
    }
    text
}

#[test]
fn a_plan_says_what_it_rests_on() {
    let (model, bare) = (dense(4, true), round(NODE, 1));
    let training = training();
    let priced = |cluster: &Cluster| {
        price(
            &Setting::new(&model, cluster, &training),
            &two_stages(),
            &mut Cache::default(),
        )
        .unwrap_or_else(|p| panic!("{p}"))
    };
    let (before, entries) = priced(&bare);
    assert!(entries.iter().all(|e| e.provenance == "fitted"));
    let same = with(&bare, &model, false, &own_rows(&model, &bare, 1, 1.0));
    let (after, entries) = priced(&same);
    assert!(!entries.is_empty());
    assert!(
        entries
            .iter()
            .all(|e| e.provenance == "measured" && e.sigma == 0.02)
    );
    close(after.step_time_s.0, before.step_time_s.0, 1e-9);
    // Measured entries narrow the range, and the shares add up.
    assert!(after.range_s[1].0 < before.range_s[1].0);
    close(after.provenance_share.values().sum(), 1.0, 1e-12);
    assert!(after.provenance_share["measured"] > 0.9);
    // The cluster of a plan carries the measurements through its file.
    let json = serde_json::to_string(&same).expect("JSON");
    let back: Cluster = serde_json::from_str(&json).expect("a cluster");
    assert_eq!(back, same);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_models_own_times_change_nothing(measured in 1..=4_u32, asked in 1..=8_u32, tp in 0..=3_u32) {
        let (model, bare) = (dense(4, true), round(NODE, 1));
        let cluster = with(&bare, &model, false, &own_rows(&model, &bare, measured, 1.0));
        let (was, is) = (block(&model, &bare, asked, 1 << tp), block(&model, &cluster, asked, 1 << tp));
        for (a, b) in [(was.forward, is.forward), (was.input_grad, is.input_grad), (was.weight_grad, is.weight_grad)] {
            close(b.compute.0, a.compute.0, 1e-9);
            close(b.tp.0, a.tp.0, 1e-9);
        }
        prop_assert!(is.origin.is_some());
    }

    #[test]
    fn all_times_scale_with_the_measured_ones(measured in 1..=4_u32, asked in 1..=8_u32, factor in 0.1..10.0_f64) {
        let (model, bare) = (dense(4, true), round(NODE, 1));
        let cluster = with(&bare, &model, false, &own_rows(&model, &bare, measured, factor));
        let (was, is) = (block(&model, &bare, asked, 1), block(&model, &cluster, asked, 1));
        close(is.forward.compute.0, factor * was.forward.compute.0, 1e-9);
        close(is.input_grad.compute.0, factor * was.input_grad.compute.0, 1e-9);
        close(is.weight_grad.compute.0, factor * was.weight_grad.compute.0, 1e-9);
    }

    #[test]
    fn what_is_written_reads_back(times in prop::collection::vec(1e-6..1.0_f64, 1..6)) {
        let model = dense(4, true);
        let rows: String = times
            .iter()
            .enumerate()
            .map(|(i, t)| format!("A100-80G,dense,1,false,{},1024,F,{t:e}\n", i + 1))
            .collect();
        let folder = folder(&model, true, &rows);
        let again = Folder::read(&folder.write(), "p").unwrap_or_else(|p| panic!("{p}"));
        prop_assert_eq!(&again, &folder);
        prop_assert_eq!(again.write(), folder.write());
    }
}

#[test]
fn bad_profiles_are_refused_with_their_codes() {
    let model = dense(4, true);
    let read = |rows: &str| code(Folder::read(&files(&model, false, rows), "p"));
    assert_eq!(read("A100-80G,dense,1,false,1,1024,F,0\n"), ["E562"]);
    assert_eq!(read("A100-80G,dense,1,false,1,1024,F,-1\n"), ["E562"]);
    assert_eq!(read("A100-80G,dense,1,false,1,1024,F,nan\n"), ["E562"]);
    assert_eq!(read("A100-80G,dense,0,false,1,1024,F,1\n"), ["E562"]);
    assert_eq!(read("A100-80G,dense,1,false,1,1024,W,1\n"), ["E562"]);
    assert_eq!(read("A100-80G,dense,1,false,1,1024,X,1\n"), ["E561"]);
    assert_eq!(read("A100-80G,thick,1,false,1,1024,F,1\n"), ["E561"]);
    let twice = "A100-80G,dense,1,false,1,1024,F,1\n".repeat(2);
    assert_eq!(read(&twice), ["E561"]);
    let mut unknown = files(&model, false, "");
    unknown.insert("layers.csv".into(), "device,time_ms\nA100-80G,3\n".into());
    assert_eq!(code(Folder::read(&unknown, "p")), ["E561"]);
    let mut extra = files(&model, false, "");
    extra.insert("ops.csv".into(), "op\n".into());
    assert_eq!(code(Folder::read(&extra, "p")), ["E561"]);
    assert_eq!(code(Folder::read(&BTreeMap::new(), "p")), ["E560"]);
    let mut other = files(&model, false, "");
    other.insert("manifest.json".into(), r#"{"schema":"x@1"}"#.into());
    assert_eq!(code(Folder::read(&other, "p")), ["E560"]);
}

#[test]
fn a_profile_of_something_else_is_refused() {
    let (model, bare) = (dense(4, true), round(NODE, 1));
    let given = |folder: &Folder, model: &Model, precision| {
        code(attach(&mut bare.clone(), folder, model, precision, "p"))
    };
    let fine = folder(&model, false, "A100-80G,dense,1,false,1,1024,F,0.1\n");
    assert!(given(&fine, &model, Precision::Bf16).is_empty());
    assert_eq!(given(&fine, &dense(5, true), Precision::Bf16), ["E563"]);
    assert_eq!(given(&fine, &model, Precision::Fp16), ["E563"]);
    let nothing = folder(&model, false, "");
    assert_eq!(given(&nothing, &model, Precision::Bf16), ["E563"]);
    let useless = folder(&model, false, "A100-80G,moe,1,false,1,1024,F,0.1\n");
    assert_eq!(given(&useless, &model, Precision::Bf16), ["E563"]);
    let unknown = folder(&model, false, "Abacus,dense,1,false,1,1024,F,0.1\n");
    assert_eq!(given(&unknown, &model, Precision::Bf16).len(), 1);
}
