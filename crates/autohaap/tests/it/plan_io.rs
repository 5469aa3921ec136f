//! Plan files: round trips, defaults, refusals with field and place.

use autohaap::error::Problem;
use autohaap::plan::{Plan, check};
use serde_json::{Value, json};

use crate::plan::{asymmetric, predicted};

fn tree() -> Value {
    serde_json::from_str(&predicted(asymmetric()).to_json()).expect("own output")
}

fn refused(tree: &Value) -> Problem {
    let text = serde_json::to_string_pretty(tree).expect("a tree");
    Plan::from_json(&text, "plan.json")
        .expect_err("to be refused")
        .0
        .remove(0)
}

#[test]
fn saving_loading_saving_changes_no_byte() {
    for plan in [asymmetric(), predicted(asymmetric())] {
        let text = plan.to_json();
        let loaded = Plan::from_json(&text, "plan.json").expect("own output");
        assert_eq!(loaded, plan);
        assert_eq!(loaded.to_json(), text);
        assert!(check(&loaded).is_empty());
        assert_eq!(loaded.id, loaded.new_id());
    }
}

#[test]
fn parts_that_other_programs_leave_out_may_be_absent() {
    let mut tree = tree();
    for key in [
        "prediction",
        "search",
        "alternatives",
        "profile",
        "idle",
        "id",
        "name",
        "created_by",
    ] {
        tree.as_object_mut().expect("an object").remove(key);
    }
    tree["model"]["figures"] = json!([]);
    tree["unknown_to_this_release"] = json!({"a": 1});
    let plan = Plan::from_json(&tree.to_string(), "plan.json").expect("a plan");
    assert_eq!(plan.model.figures, asymmetric().model.figures, "derived again");
    assert!(plan.prediction.is_none());
    tree["model"]
        .as_object_mut()
        .expect("an object")
        .remove("figures");
    assert!(Plan::from_json(&tree.to_string(), "plan.json").is_ok());
}

#[test]
fn identifiers_follow_the_contents() {
    let (one, mut two) = (asymmetric(), asymmetric());
    assert_eq!(one.id, two.new_id());
    two.pipelines[0].stages[0].in_flight += 1;
    assert_ne!(one.id, two.new_id());
    two = asymmetric();
    two.name = "another name".into();
    assert_eq!(one.id, two.new_id());
}

#[test]
fn other_files_are_refused_by_name() {
    let of = |schema: Value| {
        let mut tree = tree();
        tree["schema"] = schema;
        refused(&tree)
    };
    let newer = of(json!("autohaap/plan@2"));
    assert_eq!(newer.code.id, "E402");
    assert!(
        newer.message.contains("newer") && newer.message.contains("autohaap/plan@2"),
        "{newer:?}"
    );
    assert!(newer.line.is_some());
    assert!(of(json!("autohaap/cluster@1")).message.contains("unknown schema"));
    assert!(of(json!(7)).message.contains("not a text"));
    let mut tree = tree();
    tree.as_object_mut().expect("an object").remove("schema");
    assert_eq!(refused(&tree).code.id, "E402");
    let infeasible = json!({"schema": "autohaap/plan@1", "feasible": false, "proven": true});
    assert!(refused(&infeasible).message.contains("found no plan"));
    assert_eq!(refused(&json!([1, 2])).code.id, "E402");
}

#[test]
fn broken_text_is_placed() {
    for text in ["", "{", "{\"schema\": \"autohaap/plan@1\",}", "nonsense"] {
        let problem = Plan::from_json(text, "plan.json")
            .expect_err("no JSON")
            .0
            .remove(0);
        assert_eq!(problem.code.id, "E401", "{problem:?}");
        assert_eq!(problem.path, "plan.json");
    }
    let deep = format!("{{\"schema\": {}", "[".repeat(100_000));
    assert!(Plan::from_json(&deep, "plan.json").is_err());
}

#[test]
fn wrong_fields_are_named_with_their_place() {
    let mut wrong = tree();
    wrong["pipelines"][0]["stages"][1]["replicas"][0]["tp"] = json!("8");
    let problem = refused(&wrong);
    assert_eq!(problem.code.id, "E403");
    assert_eq!(problem.path, "plan.json: pipelines[0].stages[1].replicas[0].tp");
    assert!(
        problem
            .source_line
            .as_deref()
            .is_some_and(|l| l.contains("\"tp\": \"8\"")),
        "{problem:?}"
    );

    let mut misspelt = tree();
    misspelt["pipelines"][0]["stages"][0]["recompte"] = json!([]);
    let problem = refused(&misspelt);
    assert!(problem.hint.contains("`recompute`"), "{problem:?}");

    let mut missing = tree();
    missing["pipelines"][0]
        .as_object_mut()
        .expect("an object")
        .remove("micro_batch");
    let problem = refused(&missing);
    assert!(
        problem.message.contains("missing field `micro_batch`"),
        "{problem:?}"
    );

    let mut inside = tree();
    inside["model"]["atoms"][3]["shape"]["hidden"] = json!("wide");
    let problem = refused(&inside);
    assert!(
        problem.path.starts_with("plan.json: model.atoms[3].shape"),
        "{problem:?}"
    );
    assert!(problem.line.is_some());

    let mut node = tree();
    node["cluster"]["nodes"][1]["groups"][0]["count"] = json!(-1);
    let problem = refused(&node);
    assert_eq!(problem.path, "plan.json: cluster.nodes[1].groups[0].count");

    for number in [
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(4_294_967_296_u64),
        json!(null),
    ] {
        let mut odd = tree();
        odd["pipelines"][0]["micro_batches"] = number;
        assert_eq!(refused(&odd).code.id, "E403");
    }
}

#[test]
fn counts_are_bounded_before_they_are_used() {
    let mut devices = tree();
    devices["cluster"]["nodes"][0]["groups"][0]["count"] = json!(4_000_000_000_u32);
    let problem = refused(&devices);
    assert_eq!(
        (problem.code.id, problem.path.as_str()),
        ("E404", "plan.json: cluster.nodes")
    );
    let mut batches = tree();
    batches["pipelines"][0]["micro_batches"] = json!(4_000_000_000_u32);
    assert_eq!(refused(&batches).code.id, "E404");
    let mut atoms = tree();
    atoms["pipelines"][0]["stages"][0]["atoms"] = json!([0, u64::MAX]);
    let plan = Plan::from_json(&atoms.to_string(), "plan.json").expect("readable");
    assert!(check(&plan).iter().any(|v| v.code.id == "E411"));
}

#[cfg(feature = "schema")]
#[test]
fn the_committed_schema_is_the_generated_one() {
    use autohaap::plan::{PLAN_SCHEMA_TEXT, schema_json};
    assert_eq!(PLAN_SCHEMA_TEXT, schema_json(), "run `cargo xtask gen`");
}

#[test]
fn the_schema_names_every_part() {
    let schema: Value = serde_json::from_str(autohaap::plan::PLAN_SCHEMA_TEXT).expect("JSON");
    for key in tree().as_object().expect("an object").keys() {
        assert!(schema["properties"].get(key).is_some(), "{key}");
    }
}
