//! A user's own measurements: the text that the nccl-tests print, and step times as CSV, fitted into the tables that a
//! cluster file takes.

use std::fmt::Write as _;

use super::case::{Case, Use, read_cases};
use crate::cluster::{Collective, DeviceType, LinkPoint};
use crate::error::Problems;
use crate::model::OperatorClass;
use crate::profile::calibration::Calibration;
use crate::profile::nccl;

/// What a file holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Measured {
    /// Points of a link.
    Link(Vec<LinkPoint>),
    /// Step times.
    Steps(Vec<Case>),
}

/// Reads a file of either kind. `ranks` overrides the number of ranks that the text lists.
///
/// # Errors
/// A file without a measurement, an unknown test, an unknown number of ranks, a CSV that cannot be read.
pub fn read(text: &str, name: &str, ranks: Option<u32>) -> Result<Measured, Problems> {
    if !nccl::is_output(text) {
        let mut cases = read_cases(text, name)?;
        for case in &mut cases {
            case.used_for = Use::Calibration;
        }
        return Ok(Measured::Steps(cases));
    }
    Ok(Measured::Link(nccl::read(text, name, ranks)?))
}

/// The part of a cluster file that carries the measurements: a `[devices]` table with the efficiencies under `fitted` and
/// the measured points of the link inside a node.
pub fn fragment(device: &DeviceType, fitted: Option<&Calibration>, points: &[LinkPoint]) -> String {
    let mut out = format!("[devices.\"{}\"]\n", device.name);
    if let Some(curve) = fitted.map(|f| f.curve(device)) {
        let share = |class, factor: f64| device.efficiency.get(&class).map_or(0.5, |e| e.value) * factor;
        let _ = writeln!(
            out,
            "efficiency = {{ gemm = {:.3}, expert_gemm = {:.3}, attention = {:.3}, memory = {:.3} }}",
            share(OperatorClass::Gemm, curve.gemm),
            share(OperatorClass::ExpertGemm, curve.expert),
            share(OperatorClass::Attention, curve.attention),
            share(OperatorClass::Memory, curve.memory).min(1.0),
        );
    }
    if !points.is_empty() {
        out.push_str("link_table = [\n");
        for p in points {
            let op = match p.op {
                Collective::AllReduce => "all-reduce",
                Collective::AllGather => "all-gather",
                Collective::ReduceScatter => "reduce-scatter",
                Collective::AllToAll => "all-to-all",
                Collective::PointToPoint => "point-to-point",
            };
            let _ = writeln!(
                out,
                "    {{ op = \"{op}\", ranks = {}, bytes = \"{:.0} B\", time = \"{:.2} us\" }},",
                p.ranks,
                p.bytes.0,
                p.time_s.0 * 1e6
            );
        }
        out.push_str("]\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, Seconds};

    const TEXT: &str = "# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728\n\
        # Using devices\n\
        #  Rank  0 Group  0 Pid  7 on   node device  0 [0x07] A100\n\
        #  Rank  1 Group  0 Pid  7 on   node device  1 [0x0f] A100\n\
        #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
        #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n\
            1048576        262144     float     sum      -1    25.10   41.77   41.77      0    24.90   42.11   42.11      0\n\
          134217728      33554432     float     sum      -1    850.0  157.90  157.90      0    849.0  158.09  158.09      0\n";

    #[test]
    fn nccl_tests_become_points() {
        let Measured::Link(points) = read(TEXT, "all_reduce.txt", None).unwrap() else {
            panic!("link points");
        };
        assert_eq!(points.len(), 2);
        assert_eq!(points[0].ranks, 2);
        assert_eq!(points[0].time_s, Seconds(25.10 / 1e6));
        assert_eq!(points[1].bytes, Bytes(134_217_728.0));
        assert!(read(TEXT, "unnamed.txt", None).is_err());
        assert!(read("# algbw\n", "all_reduce.txt", Some(2)).is_err());
    }

    #[test]
    fn the_fragment_is_a_cluster_file_part() {
        let device = crate::cluster::find_device("A100-SXM-80GB").unwrap().device_type;
        let Measured::Link(points) = read(TEXT, "all_reduce.txt", None).unwrap() else {
            panic!("link points");
        };
        let text = format!(
            "{}\n[[nodes]]\ncount = 1\ndevices = [{{ type = \"A100-SXM-80GB\", count = 8 }}]\n",
            fragment(&device, Some(&Calibration::default()), &points)
        );
        let parsed: Result<toml::Table, _> = toml::from_str(&text);
        assert!(parsed.is_ok(), "{text}");
        let table = &parsed.unwrap()["devices"]["A100-SXM-80GB"];
        assert_eq!(table["link_table"].as_array().unwrap().len(), 2);
        assert!(table["efficiency"]["gemm"].as_float().unwrap() > 0.5);
    }
}
