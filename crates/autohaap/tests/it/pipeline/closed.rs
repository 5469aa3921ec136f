//! Closed forms: equal stages under 1F1B, GPipe as two flow shops.

use autohaap::cost::pipeline::{Depth, StageTime, Suffix, gpipe, gpipe_makespan};

use super::{Pipeline, Source, assert_near};

#[test]
fn equal_stages_give_the_textbook_span() {
    let stage = StageTime {
        forward: 1.0,
        backward: 2.0,
        ..StageTime::default()
    };
    let mut suffix = Suffix::EMPTY;
    for p in 1..=8_u32 {
        suffix = suffix.prepend(&stage, Depth::Exactly(p), 16, 0.0);
        assert_eq!(suffix.step, f64::from(16 + p - 1) * 3.0);
    }
}

#[test]
fn gpipe_is_two_flow_shops() {
    let mut source = Source::new(12);
    for _ in 0..500 {
        let Pipeline {
            stages,
            micro_batches,
            ..
        } = source.pipeline(24);
        // Backward order is reversed, so micro-batch `i` of the return is the i-th from the end.
        let (p, m) = (stages.len(), micro_batches as usize);
        let mut ends = vec![vec![0.0_f64; m]; p];
        for s in 0..p {
            for i in 0..m {
                let free = if i == 0 { 0.0 } else { ends[s][i - 1] };
                let ready = if s == 0 {
                    0.0
                } else {
                    ends[s - 1][i] + stages[s - 1].link_forward
                };
                ends[s][i] = free.max(ready) + stages[s].forward;
            }
        }
        let mut returns = vec![vec![0.0_f64; m]; p];
        for s in (0..p).rev() {
            for i in 0..m {
                let free = if i == 0 { ends[s][m - 1] } else { returns[s][i - 1] };
                let ready = if s + 1 == p {
                    0.0
                } else {
                    returns[s + 1][i] + stages[s].link_backward
                };
                returns[s][i] = free.max(ready) + stages[s].backward;
            }
        }
        let run = gpipe(&stages, micro_batches);
        assert_near(
            gpipe_makespan(&stages, micro_batches),
            returns[0][m - 1],
            1e-12,
            "makespan",
        );
        for s in 0..p {
            assert_near(
                run.stages[s].last_backward_end,
                returns[s][m - 1],
                1e-12,
                "last backward",
            );
        }
    }
}
