//! Plans priced per second by the pipeline evaluators, on one core: `cargo bench -p autohaap --bench pipeline`.

use autohaap::cost::pipeline::{
    Depth, Scratch, StageTime, Suffix, closed_form_step, makespan, makespan_unabridged, minimal_depths,
    rendezvous_makespan, standard_depths,
};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const PLANS: usize = 256;

struct Plan {
    stages: Vec<StageTime>,
    in_flight: Vec<u32>,
}

fn main() {
    divan::main();
}

/// Random asymmetric pipelines: stages within a factor of two, links up to a fifth of a stage.
fn plans(num_stages: usize, minimal: bool) -> Vec<Plan> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut unit = move || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    (0..PLANS)
        .map(|_| {
            let mut stages: Vec<StageTime> = (0..num_stages)
                .map(|_| {
                    let forward = 1.0 + unit();
                    let link = 0.3 * unit();
                    let backward = forward * (1.8 + 0.4 * unit());
                    StageTime {
                        forward,
                        backward,
                        link_forward: link,
                        link_backward: link,
                    }
                })
                .collect();
            let last = stages.last_mut().expect("a stage");
            (last.link_forward, last.link_backward) = (0.0, 0.0);
            let in_flight = if minimal {
                minimal_depths(&stages, 0.0)
            } else {
                standard_depths(num_stages)
            };
            Plan { stages, in_flight }
        })
        .collect()
}

fn bench(bencher: Bencher, plans: &[Plan], mut price: impl FnMut(&Plan) -> f64) {
    bencher.counter(ItemsCount::new(PLANS)).bench_local(|| {
        for plan in plans {
            black_box(price(black_box(plan)));
        }
    });
}

#[divan::bench(args = [4, 8, 16])]
fn closed_form(bencher: Bencher, num_stages: usize) {
    bench(bencher, &plans(num_stages, false), |plan| {
        closed_form_step(&plan.stages, &plan.in_flight, 64)
    });
}

#[divan::bench(args = [4, 8, 16])]
fn closed_form_minimal_depths(bencher: Bencher, num_stages: usize) {
    bench(bencher, &plans(num_stages, true), |plan| {
        closed_form_step(&plan.stages, &plan.in_flight, 64)
    });
}

#[divan::bench(args = [4, 8, 16])]
fn suffix_bound(bencher: Bencher, num_stages: usize) {
    bench(bencher, &plans(num_stages, false), |plan| {
        let depths = plan.stages.iter().zip(&plan.in_flight).rev();
        depths
            .fold(Suffix::EMPTY, |suffix, (stage, &w)| {
                suffix.prepend(stage, Depth::Exactly(w), 64, 0.1)
            })
            .step
    });
}

const SIZES: [(usize, u32); 6] = [(4, 32), (8, 64), (16, 64), (32, 128), (4, 1024), (16, 1024)];

#[divan::bench(args = SIZES)]
fn exact(bencher: Bencher, (num_stages, micro_batches): (usize, u32)) {
    let mut scratch = Scratch::default();
    bench(bencher, &plans(num_stages, false), |plan| {
        makespan(&plan.stages, &plan.in_flight, micro_batches, &mut scratch)
    });
}

#[divan::bench(args = SIZES)]
fn exact_minimal_depths(bencher: Bencher, (num_stages, micro_batches): (usize, u32)) {
    let mut scratch = Scratch::default();
    bench(bencher, &plans(num_stages, true), |plan| {
        makespan(&plan.stages, &plan.in_flight, micro_batches, &mut scratch)
    });
}

#[divan::bench(args = SIZES)]
fn exact_unabridged(bencher: Bencher, (num_stages, micro_batches): (usize, u32)) {
    let mut scratch = Scratch::default();
    bench(bencher, &plans(num_stages, false), |plan| {
        makespan_unabridged(&plan.stages, &plan.in_flight, micro_batches, &mut scratch)
    });
}

#[divan::bench(args = [(4, 32), (8, 64)])]
fn rendezvous(bencher: Bencher, (num_stages, micro_batches): (usize, u32)) {
    bench(bencher, &plans(num_stages, false), |plan| {
        rendezvous_makespan(&plan.stages, &plan.in_flight, micro_batches)
    });
}
