//! Published rows are expressed, the rule of their use is fixed, and what was reached stays reached.

use autohaap::profile::calibration;
use autohaap::validate::case::{Use, read_cases, rule, with_use_column};
use autohaap::validate::express::express;
use autohaap::validate::{compare, oracle, published, published_cases};

#[test]
fn every_row_is_expressed_or_says_why_not() {
    let cases = published_cases().expect("the published rows are read");
    assert!(cases.len() > 900, "{}", cases.len());
    let mut expressed = 0;
    for case in &cases {
        match express(case) {
            Ok(row) => {
                expressed += 1;
                let devices: usize = row
                    .pipeline
                    .stages
                    .iter()
                    .flat_map(|s| &s.replicas)
                    .map(|r| r.devices.len())
                    .sum();
                assert_eq!(devices as u64, case.count("gpus").unwrap(), "{}", case.id);
                let last = row.pipeline.stages.last().unwrap();
                assert_eq!(last.atoms[1], row.model.atoms.len(), "{}", case.id);
            }
            Err(reason) => assert!(reason.len() > 10, "{}: {reason}", case.id),
        }
    }
    // What stays out: no plan, no batch or no shape published, 4-bit products.
    assert!(
        expressed * 100 > cases.len() * 94,
        "{expressed} of {}",
        cases.len()
    );
}

#[test]
fn parameters_of_expressed_models_are_the_stated_ones() {
    for case in published_cases().expect("rows") {
        let (Some(billions), Ok(row)) = (case.number("params_b"), express(&case)) else {
            continue;
        };
        if case.text("model").contains("cut to") || case.count("layers") == Some(1) {
            continue;
        }
        let found = row.model.parameters_total() as f64 / 1e9;
        // Names round, count embeddings or not, and proxies have fewer layers than the model they are named after.
        let proxy = case.group == "dgx";
        if !proxy && billions > 3.0 && case.count("layers").unwrap_or(0) > 12 {
            assert!(
                (found / billions - 1.0).abs() < 0.25,
                "{}: {found} against {billions}",
                case.id
            );
        }
    }
}

#[test]
fn the_use_column_follows_the_rule() {
    for (name, text) in published::SOURCES {
        let cases = read_cases(text, name).expect("rows");
        for (case, used) in cases.iter().zip(rule(&cases)) {
            assert_eq!(case.used_for, used, "{}", case.id);
        }
        assert_eq!(with_use_column(text, name).expect("written"), *text, "{name}");
        let some = cases.iter().any(|c| c.used_for == Use::Calibration);
        assert!(some, "{name} has a calibration row");
    }
}

#[test]
fn recorded_tolerances_hold_and_baselines_lose() {
    let cases = published_cases().expect("rows");
    let (groups, _) = compare(&cases, &cases, calibration::builtin());
    for g in &groups {
        assert!(
            g.ok,
            "{} {}: {} exceeds the recorded {:?}",
            g.group, g.kind, g.mape, g.tolerance
        );
    }
    let multi = groups
        .iter()
        .find(|g| g.group == "vtm" && g.kind == "time")
        .expect("vtm");
    assert!(multi.spearman.unwrap() > 0.9 && multi.regret.unwrap() < 0.03);
    assert!(multi.mape < multi.m1_mape.unwrap());
}

#[test]
fn exact_checks_hold() {
    let checks = oracle::check(oracle::PUBLISHED, "oracles.csv").expect("checks");
    let broken: Vec<&str> = checks
        .iter()
        .filter(|c| c.status == "broken")
        .map(|c| c.id.as_str())
        .collect();
    assert!(broken.is_empty(), "{broken:?}");
    assert!(checks.iter().filter(|c| c.status == "holds").count() >= 48);
}

#[test]
fn hostile_files_are_coded_errors() {
    for text in [
        "",
        "a,b\n1,2\n",
        "id,model,device,gpus,metric,value\n\"unclosed",
        "\u{0}\u{0}",
    ] {
        let problems = read_cases(text, "x.csv");
        assert!(problems.is_err() || problems.unwrap().is_empty(), "{text:?}");
    }
    let row = "id,model,device,gpus,metric,value,layers,hidden,heads,tp,pp,mbs,gbs\n\
        x-1,GPT,A100,99999999999999,iteration_time,1,24,1024,16,1,1,1,8\n\
        x-2,GPT,A100,8,iteration_time,nan,18446744073709551615,1024,16,1,1,1,8\n\
        x-3,GPT,nonsense,8,unknown,1,24,1024,16,0,0,1,8\n\
        x-4,GPT,A100,8,iteration_time,1,24,1024,16,1,1,1,99999999999999999\n";
    let cases = read_cases(row, "x.csv").expect("rows");
    let known = published_cases().expect("rows");
    let (_, rows) = compare(&cases, &known, calibration::builtin());
    assert!(
        rows.iter()
            .all(|r| r.status == "not-expressed" && !r.reason.is_empty())
    );
}
