//! Codes E56x: profiles and their import.

use super::Code;

/// A manifest that cannot be read.
pub static MANIFEST: Code = Code {
    id: "E560",
    title: "a profile is a folder with a manifest.json",
    page: "`--profile DIR` names a folder with `manifest.json` and a CSV file per table: `layers.csv` (times of layers), \
`comm.csv` (times of collectives). The manifest's `schema` is `autohaap/profile@1`; `dtype`, `model_hash` and \
`includes_communication` must be there, and no key may be unknown. `autohaap import` writes such folders; the guide's page \
about profiles lists every key and column.",
};
/// A table that cannot be read.
pub static TABLE: Code = Code {
    id: "E561",
    title: "a table of a profile has the columns of its kind and no others",
    page: "Every column name says its unit, so a column that is not known could be a known quantity in another unit: it is \
refused and not skipped. `layers.csv` needs `device`, `layer_class`, `tp`, `micro_batch`, `seq_len`, `phase` and \
`time_s_median`; `comm.csv` needs `device`, `op`, `bytes`, `n_ranks` and `time_s_median`. A setting stands in a table once per \
phase.",
};
/// A time or setting that cannot be.
pub static BAD_TIME: Code = Code {
    id: "E562",
    title: "measured times and settings are above zero",
    page: "A time of zero would make a layer free of charge, and planners that charge missing entries zero choose exactly \
those layers. Leave a row out if it was not measured: its time is then interpolated, scaled, transferred or taken from the \
device's figures, and the plan says which.",
};
/// A profile that does not belong to the question.
pub static OTHER: Code = Code {
    id: "E563",
    title: "a profile belongs to a model and a precision",
    page: "Layer times hold for the shapes and the number format they were measured with. `model_hash` of the manifest is \
printed by `autohaap model NAME --format json`; `dtype` must be the training's precision. A profile of other devices is used \
by the ratio of the devices' figures and labelled `transferred`; a profile that has nothing for any layer is refused.",
};
/// A file of another tool that cannot be imported.
pub static IMPORT: Code = Code {
    id: "E564",
    title: "an imported file must have the format of its kind",
    page: "`autohaap import KIND FILE... --model M -o DIR` reads measurements that other tools publish and writes a profile. \
Kinds: `sailor-profile`, `sailor-links`, `metis-profile`, `amp-npy`, `fasop-npy`, `nccl-tests`. The number of layers in a file \
must be that of the model (blocks, embedding and head), since a file of another model would be believed otherwise.",
};

/// All codes of this area.
pub static ALL: &[&Code] = &[&MANIFEST, &TABLE, &BAD_TIME, &OTHER, &IMPORT];
