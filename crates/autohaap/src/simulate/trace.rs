//! Chrome trace JSON (Perfetto, `chrome://tracing`): process = node, thread = rank, categories fwd, bwd, wgrad, p2p, tp,
//! cp, ep, dp and opt; times in microseconds. Opens beside a trace of PyTorch's profiler.

use serde_json::{Value, json};

use super::Simulation;
use super::action::Work;
use super::timeline::{Lane, Span, SpanKind};
use crate::cluster::Cluster;
use crate::cost::price::Communication;

/// Most events with every device of a lane drawn; larger traces draw one device per lane.
const MOST_EVENTS: usize = 150_000;

const MICRO: f64 = 1e6;

/// The trace as JSON text. Ranks number the plan's devices in plan order.
pub fn chrome(simulation: &Simulation, cluster: &Cluster) -> String {
    let timeline = &simulation.timeline;
    let whole: usize = timeline
        .lanes
        .iter()
        .map(|lane| lane.devices.len() * (3 * lane.compute.len() + lane.reductions.len()))
        .sum();
    let every = whole <= MOST_EVENTS;
    let mut events = Events::default();
    for (pid, node) in cluster.nodes.iter().enumerate() {
        events.add(&json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": node.name}}));
        events
            .add(&json!({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}));
    }
    let mut rank = 0;
    for lane in &timeline.lanes {
        for d in 0..lane.devices.len() {
            if every || d == 0 {
                let alike = if every { 1 } else { lane.devices.len() };
                draw(&mut events, simulation, lane, d, rank, alike);
            }
            rank += 1;
        }
    }
    let mut id = 0;
    for link in &timeline.links {
        let lane = timeline
            .lanes
            .iter()
            .find(|l| l.pipeline == link.pipeline && l.stages.iter().any(|s| s.0 == link.from));
        let Some(device) = lane.and_then(|l| l.devices.first()) else {
            continue;
        };
        let gradient = link
            .spans
            .first()
            .is_some_and(|s| s.kind == SpanKind::SendBackward);
        let what = if gradient { "gradient" } else { "activation" };
        let name = format!("p{} {what} {} -> {}", link.pipeline, link.from, link.to);
        for span in &link.spans {
            // Transfers of one link may overlap: asynchronous events.
            let common = |ph: &str, at: f64| {
                json!({"ph": ph, "cat": "p2p", "name": name, "id": id, "pid": device.node, "tid": 0, "ts": at * MICRO,
                    "args": {"micro_batch": span.micro_batch, "bytes": span.bytes.0}})
            };
            events.add(&common("b", span.start.0));
            events.add(&common("e", span.end.0));
            id += 1;
        }
    }
    format!(
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"program\":\"autohaap simulate\",\"predicted\":true}},\"traceEvents\":[\n{}\n]}}\n",
        events.text
    )
}

/// Events as text, one a line: nothing is held twice.
#[derive(Default)]
struct Events {
    text: String,
}

impl Events {
    fn add(&mut self, event: &Value) {
        if !self.text.is_empty() {
            self.text.push_str(",\n");
        }
        self.text.push_str(&event.to_string());
    }
}

/// Threads of a rank: compute, gradient reductions.
fn draw(events: &mut Events, simulation: &Simulation, lane: &Lane, d: usize, rank: usize, alike: usize) {
    let device = &lane.devices[d];
    let stages: Vec<String> = lane.stages.iter().map(|s| s.0.to_string()).collect();
    let more = if alike > 1 {
        format!(" (and {} alike)", alike - 1)
    } else {
        String::new()
    };
    let (pid, tid, dp) = (device.node, 2 * rank, 2 * rank + 1);
    for (tid, what) in [(tid, ""), (dp, " dp")] {
        let name = format!(
            "rank {rank}{what} {} pipeline {} stage {}{more}",
            device.device_type,
            lane.pipeline,
            stages.join("+")
        );
        events
            .add(&json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}));
        events.add(&json!({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}));
    }
    let complete = |category: &str, name: String, tid: usize, start: f64, seconds: f64, arguments: Value| {
        json!({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start * MICRO,
            "dur": seconds * MICRO, "args": arguments})
    };
    let mut paired: Option<&Span> = None;
    for span in &lane.compute {
        let SpanKind::Work(work) = span.kind else { continue };
        // Overlapped pairs share their time: the second is drawn inside the first.
        let inside = paired.is_some_and(|p| p.start == span.start && p.end == span.end);
        paired = if inside { None } else { Some(span) };
        let (start, seconds) = (span.start.0, span.seconds().0);
        let name = format!("{}{}{}", span.stage, work.letter(), span.micro_batch);
        let arguments = json!({"stage": span.stage, "micro_batch": span.micro_batch, "overlapped": inside});
        events.add(&complete(
            span.kind.category(),
            name,
            tid,
            start,
            seconds,
            arguments,
        ));
        if inside {
            continue;
        }
        let stage = &simulation.detail.pipelines[lane.pipeline].stages[span.stage as usize];
        let communication = match work {
            Work::Forward => stage.forward_communication,
            Work::Backward | Work::InputGrad => stage.backward_communication,
            Work::WeightGrad => Communication::default(),
        };
        // Collectives inside an action are spread over it; they are drawn together at its end.
        let mut end = start + seconds;
        for (category, part) in [
            ("dp", communication.zero),
            ("ep", communication.ep),
            ("cp", communication.cp),
            ("tp", communication.tp),
        ] {
            if part.0 > 0.0 && end - part.0 >= start {
                end -= part.0;
                let name = format!("{category} collectives");
                events.add(&complete(
                    category,
                    name,
                    tid,
                    end,
                    part.0,
                    json!({"sum_over_atoms": true}),
                ));
            }
        }
    }
    for span in &lane.reductions {
        let name = match span.kind {
            SpanKind::ReduceTied => "reduce tied embedding".to_owned(),
            _ => format!("reduce gradients of stage {}", span.stage),
        };
        let arguments = json!({"bytes": span.bytes.0});
        events.add(&complete(
            "dp",
            name,
            dp,
            span.start.0,
            span.seconds().0,
            arguments,
        ));
    }
    let o = &lane.optimizer;
    if o.seconds().0 > 0.0 {
        events.add(&complete(
            "opt",
            "optimizer".to_owned(),
            tid,
            o.start.0,
            o.seconds().0,
            json!({}),
        ));
    }
    for (time, bytes) in lane.memory(device) {
        events.add(
            &json!({"ph": "C", "name": format!("memory rank {rank} (GiB)"), "pid": pid, "ts": time.0 * MICRO,
            "args": {"GiB": bytes.gib()}}),
        );
    }
}
