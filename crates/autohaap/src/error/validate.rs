//! Codes E55x: files of published or own measurements.

use super::Code;

/// A file of measurements that cannot be read.
pub static CASE_FILE: Code = Code {
    id: "E550",
    title: "a file of measurements is CSV with the columns of data/published",
    page: "`autohaap validate --cases FILE.csv` reads rows of published measurements. The header names the columns; the \
needed ones are `id`, `model`, `device`, `gpus`, `metric` and `value`, and a row can be expressed as a plan only with its \
model shape, degrees and batch. `data/published/*/cases.csv` are examples.",
};
/// Nothing to fit.
pub static NOTHING_TO_FIT: Code = Code {
    id: "E551",
    title: "a calibration needs measurements that can be read",
    page: "`autohaap calibrate FILE...` reads the text that the nccl-tests print (columns size, count, type, ..., time, algbw, \
busbw) or a CSV of own step times with the columns of `data/published/*/cases.csv`. At least one line must be a \
measurement.\n\nFor example:\n\n    autohaap calibrate all_reduce.txt --device H100 --ranks 8 -o measured.toml",
};
/// A file of fitted figures that cannot be read.
pub static CALIBRATION_FILE: Code = Code {
    id: "E552",
    title: "a file of fitted figures is TOML with devices, networks and engines",
    page: "Fitted figures are written by `autohaap calibrate -o FILE.toml`: tables `[devices.NAME]` with factors on the \
catalogue's efficiencies, `[networks.NAME]` with `efficiency` and `latency_s`, `[engines.NAME]` with `elementwise`, \
`host_s` and `step_s`. `data/calibration/fitted.toml` is an example.",
};

/// All codes of this area.
pub static ALL: &[&Code] = &[&CASE_FILE, &NOTHING_TO_FIT, &CALIBRATION_FILE];
