//! The exact makespan against a plain event simulation, and its monotony.

use autohaap::cost::pipeline::{
    Scratch, StageTime, closed_form_step, executable_depths, gpipe_makespan, makespan, makespan_unabridged,
    rendezvous_makespan, run,
};

use super::{Pipeline, Source, assert_near, simulate};

#[test]
fn rounds_equal_a_plain_simulation() {
    let (mut source, mut scratch) = (Source::new(1), Scratch::default());
    for case in 0..3_000 {
        let Pipeline {
            stages,
            in_flight,
            micro_batches,
        } = source.pipeline(80);
        let want = simulate(&stages, &in_flight, micro_batches).expect("no deadlock");
        let got = run(&stages, &in_flight, micro_batches, &mut scratch);
        assert_near(
            got.makespan,
            want.last.iter().copied().fold(0.0, f64::max),
            1e-12,
            "makespan",
        );
        for (s, row) in got.stages.iter().enumerate() {
            let what = format!("case {case}, stage {s}");
            assert_near(row.first_forward_start, want.first[s], 1e-12, &what);
            assert_near(row.last_backward_end, want.last[s], 1e-12, &what);
            assert_near(
                row.busy,
                f64::from(micro_batches) * stages[s].compute(),
                1e-12,
                &what,
            );
            assert_eq!(row.peak_in_flight, want.peak[s], "{what}");
        }
    }
}

#[test]
fn depths_deadlock_exactly_where_they_rise_downstream() {
    let mut source = Source::new(2);
    let mut deadlocks = 0;
    for _ in 0..3_000 {
        let num_stages = source.count(1, 6) as usize;
        let stages = source.stages(num_stages);
        let mut in_flight: Vec<u32> = (0..num_stages).map(|_| source.count(1, 6)).collect();
        let m = source.count(1, 10);
        let rises = in_flight.windows(2).any(|pair| pair[0].min(m) < pair[1].min(m));
        assert_eq!(simulate(&stages, &in_flight, m).is_none(), rises);
        let scratch = &mut Scratch::default();
        assert_eq!(makespan(&stages, &in_flight, m, scratch).is_infinite(), rises);
        assert_eq!(run(&stages, &in_flight, m, scratch).makespan.is_infinite(), rises);
        deadlocks += u32::from(rises);
        executable_depths(&mut in_flight);
        assert!(makespan(&stages, &in_flight, m, scratch).is_finite());
    }
    assert!(deadlocks > 500);
}

#[test]
fn jumping_over_repeating_rounds_changes_nothing() {
    let (mut source, mut scratch) = (Source::new(3), Scratch::default());
    for case in 0..10_000 {
        let Pipeline {
            stages,
            in_flight,
            micro_batches,
        } = source.pipeline(600);
        let full = makespan_unabridged(&stages, &in_flight, micro_batches, &mut scratch);
        let short = makespan(&stages, &in_flight, micro_batches, &mut scratch);
        assert_near(short, full, 1e-12, &format!("case {case}"));
    }
}

#[test]
fn slower_parts_or_more_micro_batches_never_shorten_a_step() {
    let (mut source, mut scratch) = (Source::new(10), Scratch::default());
    for _ in 0..5_000 {
        let Pipeline {
            mut stages,
            in_flight,
            micro_batches,
        } = source.pipeline(64);
        let base = makespan(&stages, &in_flight, micro_batches, &mut scratch);
        let longer = makespan(&stages, &in_flight, micro_batches + 1, &mut scratch);
        assert!(longer >= base * (1.0 - 1e-12));
        let s = source.count(0, stages.len() as u32 - 1) as usize;
        let more = source.unit();
        match source.count(0, 3) {
            0 => stages[s].forward += more,
            1 => stages[s].backward += more,
            2 => stages[s].link_forward += more,
            _ => stages[s].link_backward += more,
        }
        assert!(makespan(&stages, &in_flight, micro_batches, &mut scratch) >= base * (1.0 - 1e-12));
    }
}

#[test]
fn nothing_to_run_takes_no_time() {
    let scratch = &mut Scratch::default();
    assert_eq!(makespan(&[], &[], 4, scratch), 0.0);
    let stage = StageTime {
        forward: 1.0,
        backward: 2.0,
        ..StageTime::default()
    };
    assert_eq!(makespan(&[stage], &[1], 0, scratch), 0.0);
    assert_eq!(run(&[stage], &[1], 0, scratch).makespan, 0.0);
    assert_eq!(rendezvous_makespan(&[stage], &[1], 0), 0.0);
    assert_eq!(gpipe_makespan(&[stage], 0), 0.0);
    // A depth of 0 counts as 1, one above the micro-batches as their number.
    assert_eq!(makespan(&[stage], &[0], 5, scratch), 15.0);
    assert_eq!(makespan(&[stage, stage], &[5, 9], 4, scratch), 15.0);
    assert!(closed_form_step(&[stage, stage], &[5, 9], 4).is_finite());
    assert!(closed_form_step(&[stage, stage], &[2, 3], 4).is_infinite());
}
