//! Torch's schedule files: one row per rank, cells `{stage}{F|B|I|W}{micro-batch}`, overlapped pairs
//! `(0F4;7B2)OVERLAP_F_B`.

use crate::error::{Problem, Problems, simulate as codes};
use crate::simulate::action::{Action, Order, Work};

/// Most actions of an order.
pub const MAX_ACTIONS: usize = 40_000_000;

/// Cells that say nothing about the order of compute.
const COMMUNICATION: [&str; 11] = [
    "SEND_F",
    "RECV_F",
    "SEND_B",
    "RECV_B",
    "WAIT_SEND_F",
    "WAIT_SEND_B",
    "UNSHARD",
    "RESHARD",
    "REDUCE_GRAD",
    "WAIT_REDUCE_GRAD",
    "WAIT_UNSHARD",
];

/// The order as text that torch's `_load_csv` reads.
pub fn write(order: &Order) -> String {
    let mut text = String::with_capacity(6 * order.num_actions());
    for actions in &order.ranks {
        let mut first: Option<&Action> = None;
        let mut separator = "";
        for action in actions {
            if let Some(start) = first.take() {
                text.push_str(&format!("{separator}({start};{action})OVERLAP_F_B"));
            } else if action.with_next {
                first = Some(action);
                continue;
            } else {
                text.push_str(&format!("{separator}{action}"));
            }
            separator = ",";
        }
        text.push('\n');
    }
    text
}

/// Reads an order; all malformed cells are reported together.
///
/// # Errors
/// Cells of another form, numbers out of range, a stage on two ranks, stages that leave gaps.
pub fn read(text: &str, path: &str) -> Result<Order, Problems> {
    let mut problems = Problems::new();
    let mut ranks = Vec::new();
    let mut rank_of: Vec<Option<usize>> = Vec::new();
    let mut micro_batches = 0;
    let mut num_actions = 0;
    for (row, line) in text.lines().enumerate() {
        let mut actions = Vec::new();
        for (column, cell) in line.split(',').enumerate() {
            let cell = cell.trim().trim_matches('"').trim();
            match cell_actions(cell) {
                Some(found) => {
                    for action in found.into_iter().flatten() {
                        let stage = usize::from(action.stage);
                        if rank_of.len() <= stage {
                            rank_of.resize(stage + 1, None);
                        }
                        let owner = *rank_of[stage].get_or_insert(row);
                        if owner != row && problems.0.len() < 20 {
                            problems.push(
                                Problem::new(
                                    &codes::WRONG_SCHEDULE,
                                    path,
                                    format!(
                                        "stage {stage} is on rank {owner} and, with `{action}`, on rank {row}"
                                    ),
                                )
                                .hint("keep all actions of a stage in one row")
                                .at(row + 1, column + 1),
                            );
                        }
                        micro_batches = micro_batches.max(action.micro_batch + 1);
                        num_actions += 1;
                        actions.push(action);
                    }
                }
                None if problems.0.len() < 20 => problems.push(
                    Problem::new(
                        &codes::BAD_SCHEDULE_FILE,
                        path,
                        format!("`{}` is no action", short(cell)),
                    )
                    .hint("write for example `0F0`, `0B0`, `0I0`, `0W0` or `(0F4;7B2)OVERLAP_F_B`")
                    .at(row + 1, column + 1),
                ),
                None => {}
            }
        }
        ranks.push(actions);
        if num_actions > MAX_ACTIONS {
            break;
        }
    }
    while ranks.last().is_some_and(Vec::is_empty) {
        ranks.pop();
    }
    if num_actions > MAX_ACTIONS {
        problems.push(Problem::new(
            &codes::TOO_MANY_ACTIONS,
            path,
            format!("the file holds more than {MAX_ACTIONS} actions"),
        ));
    } else if num_actions == 0 && problems.0.is_empty() {
        problems.push(
            Problem::new(&codes::BAD_SCHEDULE_FILE, path, "the file holds no action")
                .hint("write one row per rank, for example `0F0,0B0`"),
        );
    }
    if problems.0.is_empty()
        && let Some(gap) = rank_of.iter().position(Option::is_none)
    {
        problems.push(
            Problem::new(
                &codes::WRONG_SCHEDULE,
                path,
                format!("stage {gap} has no action, but stage {} has", rank_of.len() - 1),
            )
            .hint("stages count from 0 without gaps"),
        );
    }
    problems.or(Order {
        micro_batches,
        rank_of: rank_of.into_iter().flatten().collect(),
        cut: None,
        ranks,
    })
}

fn short(cell: &str) -> String {
    if cell.chars().count() <= 40 {
        return cell.to_owned();
    }
    cell.chars().take(40).chain("...".chars()).collect()
}

/// The actions of one cell (none for idle steps and communication); outer None: malformed.
fn cell_actions(cell: &str) -> Option<[Option<Action>; 2]> {
    if cell.is_empty() {
        return Some([None, None]);
    }
    if let Some(rest) = cell.strip_prefix('(') {
        let pair = rest.strip_suffix(")OVERLAP_F_B")?;
        let (first, second) = pair.split_once(';')?;
        let (mut first, second) = (one(first.trim())?, one(second.trim())?);
        first.with_next = true;
        return Some([Some(first), Some(second)]);
    }
    if let Some(action) = one(cell) {
        return Some([Some(action), None]);
    }
    let rest = cell.trim_start_matches(|c: char| c.is_ascii_digit());
    let name = rest.trim_end_matches(|c: char| c.is_ascii_digit());
    (rest.len() < cell.len() && COMMUNICATION.contains(&name)).then_some([None, None])
}

/// `{stage}{letter}{micro-batch}`.
fn one(text: &str) -> Option<Action> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (stage, rest) = text.split_at(at);
    let mut characters = rest.chars();
    let work = match characters.next()? {
        'F' => Work::Forward,
        'B' => Work::Backward,
        'I' => Work::InputGrad,
        'W' => Work::WeightGrad,
        _ => return None,
    };
    let digits = characters.as_str();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let stage: u16 = stage.parse().ok()?;
    let micro_batch: u32 = digits.parse().ok().filter(|&i| (i as usize) < MAX_ACTIONS)?;
    Some(Action::new(usize::from(stage), work, micro_batch))
}
