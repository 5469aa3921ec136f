//! The text that the nccl-tests print.

use crate::cluster::{Collective, LinkPoint};
use crate::error::{Problem, Problems, validate as codes};
use crate::units::{Bytes, Seconds};

/// Names of the nccl-tests and the operation each measures.
const TESTS: &[(&str, Collective)] = &[
    ("all_reduce", Collective::AllReduce),
    ("all_gather", Collective::AllGather),
    ("reduce_scatter", Collective::ReduceScatter),
    ("alltoall", Collective::AllToAll),
    ("sendrecv", Collective::PointToPoint),
];

/// Whether a text is the output of an nccl-tests run.
pub fn is_output(text: &str) -> bool {
    text.lines()
        .any(|l| l.starts_with('#') && (l.contains("nThread") || l.contains("algbw")))
}

/// Reads the points of a run. `ranks` overrides the number of ranks that the text lists.
///
/// # Errors
/// A text without a measurement, an unknown test, an unknown number of ranks.
pub fn read(text: &str, name: &str, ranks: Option<u32>) -> Result<Vec<LinkPoint>, Problems> {
    let op = TESTS
        .iter()
        .find(|(word, _)| text.contains(&format!("{word}_perf")) || name.contains(word))
        .map(|(_, op)| *op)
        .ok_or_else(|| {
            Problem::new(
                &codes::NOTHING_TO_FIT,
                name,
                "neither the text nor the file's name says which test ran",
            )
            .hint("name the file after the test, for example `all_reduce.txt`")
        })?;
    let listed = text
        .lines()
        .filter(|l| l.starts_with('#') && l.contains("Rank") && l.contains("Pid"))
        .count() as u32;
    let ranks = ranks.or((listed > 1).then_some(listed)).ok_or_else(|| {
        Problem::new(&codes::NOTHING_TO_FIT, name, "the text does not list its ranks")
            .hint("say how many took part: `--ranks 8`")
    })?;
    // size, count, type, [redop, root,] time (us), algbw, busbw, ...: the first number after the words is the time.
    let points: Vec<LinkPoint> = text
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| {
            let words: Vec<&str> = l.split_whitespace().collect();
            let bytes: f64 = words.first()?.parse().ok()?;
            let numbers: Vec<f64> = words.iter().skip(3).filter_map(|w| w.parse().ok()).collect();
            // `root` is a whole number before the time in the tests that print it.
            let root = words
                .get(4)
                .is_some_and(|w| w.parse::<i64>().is_ok() && !w.contains('.'));
            let time = *numbers.get(usize::from(root && words.len() > 8))?;
            (bytes > 0.0 && time > 0.0).then_some(LinkPoint {
                op,
                ranks,
                bytes: Bytes(bytes),
                time_s: Seconds(time / 1e6),
            })
        })
        .collect();
    if points.is_empty() {
        return Err(Problem::new(
            &codes::NOTHING_TO_FIT,
            name,
            "no line of the text is a measurement",
        )
        .hint("pass the whole output of an nccl-tests run")
        .into());
    }
    Ok(points)
}
