//! The engine: sharing of pools, deadlocks, schedule files.

use autohaap::plan::PointToPointMode;
use autohaap::simulate::engine::execute;
use autohaap::simulate::program::{Pool, Program, StageWork, Transfer};
use autohaap::simulate::schedule::{self, csv};

use crate::cost_support::close;
use crate::simulate_oracles::chain;

const UNIT: StageWork = StageWork {
    forward: 1.0,
    backward: 2.0,
    input_grad: 1.0,
    weight_grad: 1.0,
};

/// Two pipelines of two stages with one micro-batch whose transfers (1 s) leave the same node.
fn crowd(share: f64) -> Program {
    let mut program = Program::of_chains(Vec::new(), PointToPointMode::Async);
    program.pools.push(Pool {
        name: "node out".into(),
        node: Some(0),
    });
    for _ in 0..2 {
        let mut one = chain(schedule::one_f_one_b(&[2, 1], 1), vec![UNIT; 2], &[(1.0, 0.0)]);
        one.forward[0] = Transfer {
            seconds: 1.0,
            bytes: 8.0,
            uses: vec![(0, share)],
        };
        program.chains.push(one);
    }
    program
}

#[test]
fn transfers_share_a_pool_in_proportion() {
    // Forward 1, transfer, forward 1, backward 2, backward 2.
    for (share, transfer) in [(0.25, 1.0), (0.5, 1.0), (0.75, 1.5), (1.0, 2.0)] {
        let execution = execute(&crowd(share), true).expect("runs");
        close(execution.makespan, 6.0 + transfer, 1e-12);
    }
    // The second starts half-way: 0.5 alone, then both at half speed, then alone again.
    let mut program = crowd(1.0);
    program.chains[1].stages[0].forward = 1.5;
    let execution = execute(&program, true).expect("runs");
    close(execution.forward[0][0].end, 2.5, 1e-12);
    close(execution.forward[1][0].end, 3.0, 1e-12);
}

#[test]
fn deadlocks_print_their_circle() {
    let program = |depths: &[u32], p2p| {
        let links = vec![(0.0, 0.0); depths.len() - 1];
        let order = schedule::one_f_one_b(depths, 8);
        Program::of_chains(vec![chain(order, vec![UNIT; depths.len()], &links)], p2p)
    };
    let problem = execute(&program(&[1, 2], PointToPointMode::Async), false).expect_err("deadlock");
    assert_eq!(problem.code.id, "E473");
    assert!(
        problem
            .message
            .contains("rank 0 stands at `0B0` and waits for `1B0` of rank 1")
            && problem
                .message
                .contains("rank 1 stands at `1F1` and waits for `0F1` of rank 0"),
        "{}",
        problem.message
    );
    let problem = execute(&program(&[7, 1, 1], PointToPointMode::Rendezvous), false).expect_err("deadlock");
    assert!(
        problem.message.contains("rank 0 stands at"),
        "{}",
        problem.message
    );
    assert!(execute(&program(&[3, 2, 1], PointToPointMode::Rendezvous), false).is_ok());
}

#[test]
fn schedule_files_come_back_as_they_went() {
    let orders = [
        schedule::one_f_one_b(&[3, 2, 1], 5),
        schedule::interleaved(3, 2, 6, 3),
        schedule::zb_v(3, 7),
        schedule::dual_pipe_v(4, 9).expect("enough"),
    ];
    for order in orders {
        let text = csv::write(&order);
        assert_eq!(csv::read(&text, "order.csv").expect("reads"), order);
    }
    let text = "0F0,,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0\n";
    let order = csv::read(text, "order.csv").expect("reads");
    assert_eq!(csv::write(&order), "0F0,0B0\n1F0,1B0\n");
    let problems = csv::read("0F0,0X1\n0B0,99999999999F1,(0F1;0B0\n", "bad.csv").expect_err("bad cells");
    assert_eq!(problems.0.len(), 4, "{problems}");
    assert!(csv::read("", "empty.csv").is_err());
    assert!(csv::read("1F0,1B0\n", "gap.csv").is_err());
}
