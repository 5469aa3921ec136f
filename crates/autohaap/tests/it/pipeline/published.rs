//! Published rows: asymmetric pipelines and equal stages.

use autohaap::cost::pipeline::{
    Scratch, StageTime, gpipe, lower_bound, makespan, makespan_unabridged, minimal_depths,
    rendezvous_makespan, run, standard_depths, steady_period,
};
use serde_json::Value;

use super::assert_near;

const ORACLES: &str = include_str!("../../../../../data/published/oracles.csv");

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|x| x.as_f64().expect("a number"))
        .collect()
}

fn counts(text: &str) -> Vec<u32> {
    serde_json::from_str(text).expect("a list of counts")
}

struct Row {
    id: String,
    inputs: Value,
    quantity: String,
    expected: String,
}

fn rows(area: &str) -> Vec<Row> {
    csv::Reader::from_reader(ORACLES.as_bytes())
        .records()
        .map(|record| record.expect("a CSV record"))
        .filter(|record| &record[1] == area)
        .map(|record| Row {
            id: record[0].to_owned(),
            inputs: serde_json::from_str(&record[4]).expect("inputs are JSON"),
            quantity: record[5].to_owned(),
            expected: record[7].to_owned(),
        })
        .collect()
}

#[test]
fn rows_of_asymmetric_pipelines() {
    let rows = rows("hetero_1f1b");
    assert_eq!(rows.len(), 32);
    for Row {
        id,
        inputs,
        quantity,
        expected,
    } in rows
    {
        let mut link_forward = numbers(&inputs["link_fwd"]);
        let mut link_backward = numbers(&inputs["link_bwd"]);
        link_forward.push(0.0);
        link_backward.push(0.0);
        let stages: Vec<StageTime> = numbers(&inputs["f"])
            .into_iter()
            .zip(numbers(&inputs["b"]))
            .zip(link_forward.into_iter().zip(link_backward))
            .map(|((forward, backward), (link_forward, link_backward))| StageTime {
                forward,
                backward,
                link_forward,
                link_backward,
            })
            .collect();
        let in_flight: Vec<u32> = numbers(&inputs["warmup"])
            .into_iter()
            .map(|w| w as u32 + 1)
            .collect();
        let m = inputs["m"].as_u64().expect("micro-batches") as u32;
        let blocking = inputs["p2p"] == "rendezvous";
        let value = || expected.parse::<f64>().expect("a number");
        let scratch = &mut Scratch::default();
        match quantity.as_str() {
            "makespan" if blocking => {
                assert_near(rendezvous_makespan(&stages, &in_flight, m), value(), 1e-9, &id);
            }
            "makespan" => {
                assert_near(makespan(&stages, &in_flight, m, scratch), value(), 1e-9, &id);
                assert_near(
                    makespan_unabridged(&stages, &in_flight, m, scratch),
                    value(),
                    1e-9,
                    &id,
                );
            }
            "steady period" => assert_near(steady_period(&stages, &in_flight), value(), 1e-9, &id),
            "peak in-flight per stage" => {
                let peaks: Vec<u32> = run(&stages, &in_flight, m, scratch)
                    .stages
                    .iter()
                    .map(|s| s.peak_in_flight)
                    .collect();
                assert_eq!(peaks, counts(&expected), "{id}");
            }
            "minimal warm-up depths for rate max(f+b)" => {
                let warm_up: Vec<u32> = minimal_depths(&stages, 0.0).iter().map(|w| w - 1).collect();
                assert_eq!(warm_up, counts(&expected), "{id}");
            }
            "admissible lower bound of the makespan" => {
                assert_near(lower_bound(&stages, m), value(), 1e-9, &id);
            }
            other => panic!("{id}: no check for {other}"),
        }
    }
}

#[test]
fn rows_of_equal_stages() {
    let mut checked = 0;
    for Row {
        id,
        inputs,
        quantity,
        expected,
    } in rows("schedule")
    {
        let name = inputs["schedule"].as_str().expect("a name");
        if name != "gpipe" && name != "1f1b" {
            continue;
        }
        let number = |key: &str| inputs[key].as_f64().expect("a number");
        let stage = StageTime {
            forward: number("f"),
            backward: number("b_input") + number("b_weight"),
            ..StageTime::default()
        };
        let stages = vec![stage; number("p") as usize];
        let m = number("m") as u32;
        let run = if name == "gpipe" {
            gpipe(&stages, m)
        } else {
            run(
                &stages,
                &standard_depths(stages.len()),
                m,
                &mut Scratch::default(),
            )
        };
        if quantity == "makespan" {
            assert_near(run.makespan, expected.parse().expect("a number"), 1e-9, &id);
        } else {
            let peaks: Vec<u32> = run.stages.iter().map(|s| s.peak_in_flight).collect();
            assert_eq!(peaks, counts(&expected), "{id}");
        }
        checked += 1;
    }
    assert!(checked >= 6, "{checked} rows");
}
