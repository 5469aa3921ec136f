//! What `plan --explain` adds: why the bottleneck is one, the hardware figures used, and the space of the bound.

use std::collections::BTreeMap;

use super::answers::memory_table;
use super::inputs::Sources;
use super::plan_screen::{critical, fullest_device};
use super::words;
use crate::cluster::{DeviceFigure, DeviceType, Link, Provenance, Sourced};
use crate::model::OperatorClass;
use crate::plan::{Plan, Prediction, StagePrediction};

/// All parts, each under a title.
pub(super) fn lines(plan: &Plan, p: &Prediction) -> Vec<String> {
    let mut lines = vec![String::new(), "why the bottleneck is one".to_owned()];
    lines.extend(why(plan, p));
    if let Some(d) = fullest_device(p) {
        lines.push(String::new());
        lines.extend(memory_table(&[d]));
    }
    lines.extend(hardware(plan));
    lines.push(String::new());
    lines.push("how the numbers are defined".to_owned());
    lines.extend(words::wrap(&format!("  MFU: {}", p.mfu_formula), "    ", 4));
    for text in [
        "  step: event-order makespan of all pipelines with gradient reduction and optimizer",
        "  table: TPxDP degrees of the stage; rows = sequences of a micro-batch per replica; W = micro-batches in \
         flight at most; GiB = fullest device of the stage; busy = share of the step that the stage computes",
    ] {
        lines.extend(words::wrap(text, "    ", 3));
    }
    if let (Some(bound), Some(space)) = (&p.bound_s, &p.bound_space) {
        lines.extend(words::wrap(
            &format!("  bound: no plan of this space takes less than {bound}: {space}"),
            "    ",
            8,
        ));
    }
    if let Some(s) = &plan.search {
        let phases: Vec<String> = s
            .phases
            .iter()
            .map(|phase| format!("{} {}", phase.name, phase.wall_s))
            .collect();
        lines.extend(words::list("  search time", &phases, 4));
    }
    lines
}

/// Parts of the busiest stage's time, and what moving a layer or a micro-batch away would do.
fn why(plan: &Plan, p: &Prediction) -> Vec<String> {
    let Some(s) = critical(p) else {
        return Vec::new();
    };
    let Some(pipeline) = plan.pipelines.get(s.pipeline) else {
        return Vec::new();
    };
    let step = p.step_time_s.0;
    let m = f64::from(pipeline.micro_batches);
    let mut busy: Vec<f64> = p.stages.iter().map(|x| x.busy_fraction).collect();
    busy.sort_by(f64::total_cmp);
    let mut lines = words::wrap(
        &format!(
            "  pipeline {} stage {} is busy {} of the step, the median stage {}, the least busy {}",
            s.pipeline,
            s.stage,
            words::percent(s.busy_fraction),
            words::percent(busy[busy.len() / 2]),
            words::percent(busy[0]),
        ),
        "    ",
        2,
    );
    lines.extend(words::wrap(
        &format!(
            "  per micro-batch: forward {}, backward {} (recompute {}), communication inside {}, send {} forward and {} \
             back; per step: {} x {} = {}, gradient sync {}, optimizer {}",
            s.forward_s,
            s.backward_s,
            s.recompute_s,
            s.comm_s,
            s.send_forward_s,
            s.send_backward_s,
            pipeline.micro_batches,
            s.forward_s + s.backward_s,
            crate::units::Seconds(m * (s.forward_s + s.backward_s).0),
            s.grad_sync_s,
            s.optimizer_s,
        ),
        "    ",
        4,
    ));
    let time = |x: &StagePrediction| (x.forward_s + x.backward_s).0;
    let layers = |x: &StagePrediction| {
        plan.pipelines
            .get(x.pipeline)
            .and_then(|q| q.stages.get(x.stage))
            .map_or(1, |q| q.atoms[1].saturating_sub(q.atoms[0]))
            .max(1) as f64
    };
    let load: BTreeMap<(usize, usize), f64> = memory_shares(plan, p);
    for neighbour in p
        .stages
        .iter()
        .filter(|x| x.pipeline == s.pipeline && x.stage.abs_diff(s.stage) == 1 && layers(s) > 1.0)
    {
        let after = m * (time(neighbour) * (1.0 + 1.0 / layers(neighbour))) / step;
        lines.extend(words::wrap(
            &format!(
                "  one of its {:.0} atoms moved to stage {} (busy {}, memory {} full): about {} busy there, {} here",
                layers(s),
                neighbour.stage,
                words::percent(neighbour.busy_fraction),
                load.get(&(neighbour.pipeline, neighbour.stage))
                    .map_or_else(|| "?".into(), |share| words::percent(*share)),
                words::percent(after),
                words::percent(m * time(s) * (1.0 - 1.0 / layers(s)) / step),
            ),
            "    ",
            2,
        ));
    }
    // The least loaded other pipeline and one more micro-batch on it.
    let other = plan
        .pipelines
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != s.pipeline)
        .filter_map(|(i, q)| {
            let worst = p
                .stages
                .iter()
                .filter(|x| x.pipeline == i)
                .max_by(|a, b| time(a).total_cmp(&time(b)))?;
            Some((i, q, worst))
        })
        .min_by(|a, b| a.2.busy_fraction.total_cmp(&b.2.busy_fraction));
    if let Some((i, q, worst)) = other {
        lines.extend(words::wrap(
            &format!(
                "  {} sequences of work moved to pipeline {i} (busy {}): {} more there, {} less here",
                q.micro_batch,
                words::percent(worst.busy_fraction),
                crate::units::Seconds(time(worst)),
                crate::units::Seconds(
                    time(s) * f64::from(q.micro_batch) / f64::from(pipeline.micro_batch.max(1))
                ),
            ),
            "    ",
            2,
        ));
    }
    lines
}

/// Used share of the limit of each stage's fullest device.
fn memory_shares(plan: &Plan, p: &Prediction) -> BTreeMap<(usize, usize), f64> {
    let devices: BTreeMap<&str, f64> = p
        .devices
        .iter()
        .map(|d| (d.device.as_str(), d.memory_bytes.total / d.memory_bytes.limit))
        .collect();
    let mut shares = BTreeMap::new();
    for (i, pipeline) in plan.pipelines.iter().enumerate() {
        for (j, stage) in pipeline.stages.iter().enumerate() {
            let most = stage
                .replicas
                .iter()
                .flat_map(|r| &r.devices)
                .filter_map(|d| devices.get(d.as_str()))
                .fold(0.0, |a: f64, b| a.max(*b));
            shares.insert((i, j), most);
        }
    }
    shares
}

/// Figures of every device type and link, each with its provenance and source.
fn hardware(plan: &Plan) -> Vec<String> {
    let cluster = &plan.cluster.cluster;
    let mut sources = Sources::default();
    let mut lines = Vec::new();
    for device in cluster.device_types.values() {
        lines.push(String::new());
        lines.push(format!(
            "{} (confidence {})",
            words::elide(&device.name, 60),
            words::elide(&device.confidence, 8)
        ));
        lines.extend(speeds(device, plan));
        lines.extend(sources.rows(&device.figures()));
    }
    lines.push(String::new());
    lines.push("network".to_owned());
    let mut figures = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for node in &cluster.nodes {
        let key = format!(
            "{:?} {:?} {:?} {:?}",
            node.nic_count.value, node.nic, node.cross, node.speed_factor.value
        );
        if seen.len() < 8 && !seen.contains(&key) {
            seen.push(key);
            let name = words::elide(&node.name, 20);
            figures.push(figure(
                format!("{name}: cards"),
                node.nic_count.value.to_string(),
                &node.nic_count,
            ));
            link(&mut figures, &format!("{name}: card"), &node.nic);
            if let Some(cross) = &node.cross {
                link(&mut figures, &format!("{name}: between types"), cross);
            }
            if (node.speed_factor.value - 1.0).abs() > 1e-9 {
                figures.push(figure(
                    format!("{name}: speed factor"),
                    format!("{:.2}", node.speed_factor.value),
                    &node.speed_factor,
                ));
            }
        }
    }
    for tier in cluster.tiers.iter().take(8) {
        let name = words::elide(&tier.name, 20);
        figures.push(figure(
            format!("{name}: uplink"),
            tier.uplink.value.to_string(),
            &tier.uplink,
        ));
        figures.push(figure(
            format!("{name}: latency"),
            tier.latency.value.to_string(),
            &tier.latency,
        ));
    }
    for bridge in cluster.bridges.iter().take(8) {
        let name = words::elide(&bridge.between.join("-"), 20);
        figures.push(figure(
            format!("{name}: bridge"),
            bridge.bandwidth.value.to_string(),
            &bridge.bandwidth,
        ));
        figures.push(figure(
            format!("{name}: latency"),
            bridge.latency.value.to_string(),
            &bridge.latency,
        ));
    }
    figures.push(figure(
        "reserved memory".into(),
        cluster.reserved_memory.value.to_string(),
        &cluster.reserved_memory,
    ));
    lines.extend(sources.rows(&figures));
    if seen.len() < cluster.nodes.len() {
        lines.push("  nodes that are not listed equal one of those above (all in the plan file)".to_owned());
    }
    lines.extend(sources.lines());
    lines
}

/// Speed of each operator class at the precision of training: peak in use times efficiency.
fn speeds(device: &DeviceType, plan: &Plan) -> Vec<String> {
    let precision = plan.training.precision;
    let Some(peak) = device.peak(precision) else {
        return Vec::new();
    };
    let speeds: Vec<String> = device
        .efficiency
        .iter()
        .map(|(class, share)| match class {
            OperatorClass::Memory => format!(
                "memory {:.0} GB/s",
                device.memory_bandwidth.value.0 * share.value / 1e9
            ),
            OperatorClass::Gemm => format!("products {:.0} TFLOP/s", peak.value.0 * share.value / 1e12),
            OperatorClass::ExpertGemm => {
                format!("expert products {:.0} TFLOP/s", peak.value.0 * share.value / 1e12)
            }
            OperatorClass::Attention => format!("attention {:.0} TFLOP/s", peak.value.0 * share.value / 1e12),
        })
        .collect();
    words::wrap(
        &format!(
            "  used at {}, large operators: {}",
            format!("{precision:?}").to_lowercase(),
            speeds.join(", ")
        ),
        "    ",
        2,
    )
}

fn figure<T>(key: String, text: String, of: &Sourced<T>) -> DeviceFigure {
    DeviceFigure {
        key,
        text,
        value: None,
        from: of.from,
        source: of.source.clone().unwrap_or_default(),
    }
}

fn link(figures: &mut Vec<DeviceFigure>, name: &str, link: &Link) {
    figures.push(figure(
        format!("{name} bandwidth"),
        link.bandwidth.value.to_string(),
        &link.bandwidth,
    ));
    figures.push(figure(
        format!("{name} latency"),
        link.latency.value.to_string(),
        &link.latency,
    ));
    figures.push(figure(
        format!("{name} efficiency"),
        format!("{:.2}", link.efficiency.value),
        &link.efficiency,
    ));
    if !link.table.is_empty() {
        figures.push(DeviceFigure {
            key: format!("{name} table"),
            text: words::plural(link.table.len(), "point"),
            value: None,
            from: Provenance::Measured,
            source: String::new(),
        });
    }
}
