//! Pipeline times agree with published oracle rows and with a plain event simulation of random pipelines.

mod bounds;
mod closed;
mod exact;
mod published;
mod rates;

use autohaap::cost::pipeline::{StageTime, minimal_depths, standard_depths};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Seeded random pipelines.
struct Source(ChaCha8Rng);

struct Pipeline {
    stages: Vec<StageTime>,
    in_flight: Vec<u32>,
    micro_batches: u32,
}

impl Source {
    fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `low` to `high`, both included.
    fn count(&mut self, low: u32, high: u32) -> u32 {
        low + (self.0.next_u64() % u64::from(high - low + 1)) as u32
    }

    fn stages(&mut self, num_stages: usize) -> Vec<StageTime> {
        // Equal or unequal stages; no links, short ones or ones as long as a stage; whole numbers make ties.
        let spread = [0.0, 0.5, 4.0][self.count(0, 2) as usize];
        let link = [0.0, 0.3, 3.0][self.count(0, 2) as usize];
        let whole = self.count(0, 3) == 0;
        let round = |x: f64| if whole { x.round() } else { x };
        let mut stages: Vec<StageTime> = (0..num_stages)
            .map(|_| StageTime {
                forward: round(1.0 + spread * self.unit()),
                backward: round(1.0 + (1.0 + spread) * self.unit()),
                link_forward: round(link * self.unit()),
                link_backward: round(link * self.unit()),
            })
            .collect();
        let last = &mut stages[num_stages - 1];
        (last.link_forward, last.link_backward) = (0.0, 0.0);
        stages
    }

    /// Textbook, minimal or random depths, never rising downstream.
    fn depths(&mut self, stages: &[StageTime]) -> Vec<u32> {
        match self.count(0, 3) {
            0 => standard_depths(stages.len()),
            1 => minimal_depths(stages, 0.0),
            _ => {
                let widest = self.count(0, 3);
                let mut depth = self.count(1, 2);
                let mut depths: Vec<u32> = stages
                    .iter()
                    .map(|_| {
                        depth += self.count(0, widest);
                        depth
                    })
                    .collect();
                depths.reverse();
                depths
            }
        }
    }

    fn pipeline(&mut self, max_micro_batches: u32) -> Pipeline {
        let num_stages = self.count(1, 12) as usize;
        let stages = self.stages(num_stages);
        let in_flight = self.depths(&stages);
        Pipeline {
            stages,
            in_flight,
            micro_batches: self.count(1, max_micro_batches),
        }
    }
}

/// Times of each stage, by walking each rank's list of ops until nothing moves. None: deadlock.
struct Reference {
    first: Vec<f64>,
    last: Vec<f64>,
    peak: Vec<u32>,
}

fn simulate(stages: &[StageTime], in_flight: &[u32], m: u32) -> Option<Reference> {
    let (p, m) = (stages.len(), m as usize);
    let orders: Vec<Vec<(bool, usize)>> = in_flight
        .iter()
        .map(|&w| {
            let warm_up = (w as usize - 1).min(m);
            let mut order: Vec<(bool, usize)> = (0..warm_up).map(|i| (false, i)).collect();
            for i in warm_up..m {
                order.extend([(false, i), (true, i - warm_up)]);
            }
            order.extend((m - warm_up..m).map(|i| (true, i)));
            order
        })
        .collect();
    let mut forward = vec![vec![f64::NAN; m]; p];
    let mut backward = vec![vec![f64::NAN; m]; p];
    let (mut next, mut free) = (vec![0; p], vec![0.0_f64; p]);
    let mut reference = Reference {
        first: vec![0.0; p],
        last: vec![0.0; p],
        peak: vec![0; p],
    };
    let mut live = vec![0_u32; p];
    loop {
        let mut moved = false;
        for s in 0..p {
            while let Some(&(is_backward, i)) = orders[s].get(next[s]) {
                let ready = match (is_backward, s) {
                    (false, 0) => 0.0,
                    (false, s) => forward[s - 1][i] + stages[s - 1].link_forward,
                    (true, s) if s + 1 == p => forward[s][i],
                    (true, s) => backward[s + 1][i] + stages[s].link_backward,
                };
                if ready.is_nan() {
                    break;
                }
                let start = free[s].max(ready);
                if next[s] == 0 {
                    reference.first[s] = start;
                }
                if is_backward {
                    free[s] = start + stages[s].backward;
                    backward[s][i] = free[s];
                    live[s] -= 1;
                } else {
                    free[s] = start + stages[s].forward;
                    forward[s][i] = free[s];
                    live[s] += 1;
                    reference.peak[s] = reference.peak[s].max(live[s]);
                }
                reference.last[s] = free[s];
                next[s] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    (0..p).all(|s| next[s] == 2 * m).then_some(reference)
}

#[track_caller]
fn assert_near(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!(
        (got - want).abs() <= tolerance * want.abs().max(1e-9),
        "{what}: {got} is not {want}"
    );
}
