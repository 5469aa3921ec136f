//! `compare` and `replan`, as a user runs them.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const CLUSTER: &str = "1x2 A100-80G + 1x2 V100-32G @ ib:100Gb";

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_autohaap"))
        .args(args)
        .args(["--no-config", "--no-progress"])
        .current_dir(folder)
        .env("HOME", folder)
        .output()
        .expect("the command runs")
}

fn json(folder: &Path, args: &[&str]) -> (i32, Value, String) {
    let args: Vec<&str> = args.iter().copied().chain(["--format", "json"]).collect();
    let ended = run(folder, &args);
    let value = serde_json::from_slice(&ended.stdout).unwrap_or_default();
    let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
    (ended.status.code().unwrap_or(-1), value, errors)
}

fn plan(folder: &Path, output: &str, more: &[&str]) -> Value {
    let mut args = vec![
        "plan",
        "-m",
        "llama-3.2-1b",
        "-c",
        CLUSTER,
        "--seq",
        "1024",
        "--global-batch",
        "16",
    ];
    args.extend(["-o", output]);
    args.extend(more);
    let (code, value, errors) = json(folder, &args);
    assert_eq!(code, 0, "{errors}");
    value
}

#[test]
fn spaces_are_never_faster_than_the_full_one_and_the_larger_never_slower() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, answer, errors) = json(
        folder.path(),
        &[
            "compare",
            "--spaces",
            "uniform,whale,sailor,sailor-layers,amp,metis",
            "-m",
            "llama-3.2-1b",
            "-c",
            CLUSTER,
            "--seq",
            "1024",
            "--global-batch",
            "16",
        ],
    );
    assert_eq!(code, 0, "{errors}");
    assert_eq!(answer["schema"], "autohaap/compare@1");
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 7);
    assert_eq!(rows[0]["name"], "full");
    let step = |name: &str| {
        let row = rows.iter().find(|r| r["name"] == name).expect("a row");
        row["step_time_s"].as_f64().unwrap_or(f64::INFINITY)
    };
    for row in rows {
        let name = row["name"].as_str().expect("a name");
        assert!(step("full") <= step(name), "{name}");
        if let Some(bound) = row["bound_s"].as_f64() {
            assert!(bound <= step(name) * (1.0 + 1e-9), "{name}");
        }
    }
    for (part, whole) in [
        ("uniform", "whale"),
        ("sailor", "sailor-layers"),
        ("amp", "metis"),
    ] {
        assert!(step(whole) <= step(part), "{whole} holds {part}");
    }
    assert!(step("uniform").is_finite() && step("metis").is_finite());
}

#[test]
fn plans_side_by_side_say_what_differs() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = plan(folder.path(), "a.json", &[]);
    plan(folder.path(), "b.json", &["--space", "uniform"]);
    let (code, answer, errors) = json(folder.path(), &["compare", "a.json", "b.json"]);
    assert_eq!(code, 0, "{errors}");
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!(rows[0]["step_time_s"], first["prediction"]["step_time_s"]);
    assert_eq!(rows[0]["violations"], 0);
    assert!(answer["notes"].as_array().expect("notes").is_empty());
    let screen = run(folder.path(), &["compare", "a.json", "b.json"]);
    let screen = String::from_utf8_lossy(&screen.stdout).into_owned();
    assert!(screen.contains("a.json") && screen.contains("1.00x"), "{screen}");
    let (code, _, errors) = json(folder.path(), &["compare", "a.json", "missing.json", "gone.json"]);
    assert_eq!(code, 2);
    let errors: Value = serde_json::from_str(&errors).expect("errors");
    assert_eq!(errors["errors"].as_array().map(Vec::len), Some(2));
}

#[test]
fn wrong_spaces_and_usage_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, _, errors) = json(
        folder.path(),
        &[
            "compare",
            "--spaces",
            "metiss,full,nothing",
            "-m",
            "llama-3.2-1b",
            "-c",
            "1x2 A100x",
        ],
    );
    assert_eq!(code, 2);
    let errors: Value = serde_json::from_str(&errors).expect("errors");
    let errors = errors["errors"].as_array().expect("a list");
    assert_eq!(errors.len(), 3, "two spaces and the cluster: {errors:?}");
    assert!(errors[0]["hint"].as_str().is_some_and(|h| h.contains("metis")));
    assert_eq!(json(folder.path(), &["compare"]).0, 2);
    assert_eq!(json(folder.path(), &["compare", "--spaces", "amp"]).0, 2);
    plan(folder.path(), "a.json", &[]);
    std::fs::write(folder.path().join("m.json"), "{}").expect("a file");
    let (code, _, errors) = json(folder.path(), &["compare", "a.json", "--measured", "m.json"]);
    assert_eq!(code, 2);
    assert!(errors.contains("E612"), "{errors}");
}

#[test]
fn a_new_plan_uses_what_is_left_and_lists_what_moves() {
    let folder = tempfile::tempdir().expect("a folder");
    plan(folder.path(), "a.json", &[]);
    for (flag, value) in [("--without", "n1:1"), ("--slow", "n0=1.8x"), ("--add", "n0=1")] {
        let (code, answer, errors) = json(
            folder.path(),
            &["replan", "a.json", flag, value, "-o", "new.json"],
        );
        assert_eq!(code, 0, "{flag}: {errors}");
        let (old, new) = (answer["old_step_time_s"].as_f64(), answer["step_time_s"].as_f64());
        if flag != "--add" {
            assert!(new >= old, "{flag}: less hardware is not faster");
        }
        let moves = answer["moves"].as_array().expect("moves");
        let bytes: f64 = moves.iter().filter_map(|m| m["bytes"].as_f64()).sum();
        assert!(
            (bytes - answer["bytes"].as_f64().expect("bytes")).abs() < 1.0,
            "{flag}"
        );
        assert_eq!(
            json(folder.path(), &["check", "new.json"]).1["ok"],
            true,
            "{flag}"
        );
        if flag == "--without" {
            let text = std::fs::read_to_string(folder.path().join("new.json")).expect("a plan");
            let new: Value = serde_json::from_str(&text).expect("JSON");
            let pipelines = new["pipelines"].to_string();
            assert!(!pipelines.contains("n1:1"), "{pipelines}");
        }
    }
    let (code, _, errors) = json(
        folder.path(),
        &["replan", "a.json", "--without", "n9", "--slow", "n0=fast"],
    );
    assert_eq!(code, 2);
    assert_eq!(errors.matches("E611").count(), 2, "{errors}");
}
