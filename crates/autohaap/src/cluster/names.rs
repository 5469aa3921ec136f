//! Finding a device by a forgiving name.

use crate::cluster::DeviceType;
use crate::cluster::catalogue::{CatalogueEntry, catalogue};
use crate::error::{Problem, cluster as codes};

/// A device found by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// The device.
    pub device_type: DeviceType,
    /// What was assumed where the name left a choice, as a sentence for printing.
    pub assumed: Option<String>,
    /// The catalogue entry it comes from.
    pub entry: &'static CatalogueEntry,
}

/// Words that carry no information: vendors, product lines, memory kinds, power limits.
const NOISE: &[&str] = &[
    "nvidia",
    "amd",
    "intel",
    "huawei",
    "habana",
    "google",
    "aws",
    "amazon",
    "baidu",
    "kunlunxin",
    "kunlun",
    "cambricon",
    "hygon",
    "metax",
    "iluvatar",
    "moore",
    "threads",
    "biren",
    "tesla",
    "geforce",
    "instinct",
    "quadro",
    "ascend",
    "dcu",
    "radeon",
    "data",
    "center",
    "graphics",
    "gpu",
    "tensor",
    "core",
    "accelerator",
    "generation",
    "hbm2",
    "hbm2e",
    "hbm3",
    "hbm3e",
    "500w",
    "corex",
    "npu",
    "superchip",
];

/// A name taken apart: family, form factor and memory size.
#[derive(Debug, Clone, PartialEq, Default)]
struct Parts {
    family: String,
    form: Option<&'static str>,
    memory_gb: Option<f64>,
}

fn form_of(word: &str) -> Option<&'static str> {
    match word {
        "sxm" | "sxm2" | "sxm3" | "sxm4" | "sxm5" | "sxm6" | "nvlink" | "nvswitch" | "hgx" | "dgx" => {
            Some("sxm")
        }
        "pcie" | "pci" | "pciex" => Some("pcie"),
        "nvl" => Some("nvl"),
        "oam" => Some("oam"),
        _ => None,
    }
}

/// `80gb`, `80g`, `80gib`, and bare `80` after the family.
fn memory_of(word: &str, bare: bool) -> Option<f64> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &word[digits.len()..];
    let number: f64 = digits.parse().ok()?;
    let named = matches!(unit, "g" | "gb" | "gib");
    let plain = unit.is_empty()
        && (bare && (4.0..=512.0).contains(&number) || [64.0, 80.0, 96.0, 144.0].contains(&number));
    (named || plain).then_some(number)
}

fn take_apart(name: &str) -> Parts {
    let lower = name.to_lowercase();
    let mut parts = Parts::default();
    for word in lower
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
    {
        if NOISE.contains(&word) {
            continue;
        }
        if parts.memory_gb.is_some() && matches!(word, "g" | "gb" | "gib") {
            continue;
        }
        if let Some(form) = form_of(word) {
            parts.form = Some(form);
        } else if let Some(gb) = memory_of(word, parts.family.chars().any(|c| c.is_ascii_digit())) {
            parts.memory_gb = Some(gb);
        } else {
            parts.family.push_str(word);
        }
    }
    if let Some(short) = parts.family.strip_suffix("sxm") {
        parts.form = Some("sxm");
        parts.family = short.to_owned();
    }
    parts
}

/// The family without the product line, so that `4090` finds `RTX 4090`.
fn bare_family(family: &str) -> &str {
    family
        .strip_prefix("rtx")
        .or_else(|| family.strip_prefix("gtx"))
        .unwrap_or(family)
}

fn fits(entry: &CatalogueEntry, wanted: &Parts) -> bool {
    let own = take_apart(&entry.device.name);
    let same_family =
        |family: &str| family == wanted.family || bare_family(family) == bare_family(&wanted.family);
    let family = same_family(&own.family) || entry.aliases.iter().any(|a| same_family(&take_apart(a).family));
    let form = match (wanted.form, own.form) {
        (Some(w), Some(o)) => w == o,
        (Some("sxm"), None) | (None, _) => true,
        (Some(_), None) => {
            own.form.is_none() && entry.device.intra.fabric != crate::cluster::Fabric::Switched
        }
    };
    let memory = wanted
        .memory_gb
        .is_none_or(|gb| gb == entry.memory_sold_gb || entry.memory_gb_aliases.contains(&gb));
    family && form && memory
}

/// Finds a device of the catalogue by a forgiving name.
///
/// `A100-80G`, `a100-sxm-80gb`, `NVIDIA A100-SXM4-80GB` and `A100_80` are one device. Where several fit, the SXM form wins,
/// then the largest memory (or the common variant of the family), and [`Match::assumed`] says so.
pub fn find_device(name: &str) -> Result<Match, Problem> {
    let found = |entry: &'static CatalogueEntry, assumed| Match {
        device_type: entry.device.clone(),
        assumed,
        entry,
    };
    let trimmed = name.trim();
    if let Some(entry) = catalogue()
        .iter()
        .find(|e| e.device.name.eq_ignore_ascii_case(trimmed))
    {
        return Ok(found(entry, None));
    }
    // Longer names than any product has are refused before the distance to every name is computed.
    let wanted = if trimmed.len() <= 100 {
        take_apart(trimmed)
    } else {
        Parts::default()
    };
    let mut fitting: Vec<&'static CatalogueEntry> = if wanted.family.is_empty() {
        Vec::new()
    } else {
        catalogue().iter().filter(|e| fits(e, &wanted)).collect()
    };
    let is_sxm = |e: &CatalogueEntry| take_apart(&e.device.name).form == Some("sxm");
    fitting.sort_by(|a, b| {
        (is_sxm(b), b.preferred)
            .cmp(&(is_sxm(a), a.preferred))
            .then(b.memory_sold_gb.total_cmp(&a.memory_sold_gb))
    });
    match fitting.as_slice() {
        [] => Err(unknown(trimmed)),
        [only] => Ok(found(only, None)),
        [first, others @ ..] => {
            let others: Vec<&str> = others.iter().map(|e| e.device.name.as_str()).collect();
            let note = format!(
                "`{trimmed}` is taken as `{}` (also fits: {})",
                first.device.name,
                others.join(", ")
            );
            Ok(found(first, Some(note)))
        }
    }
}

fn unknown(name: &str) -> Problem {
    let shown: String = name.chars().take(60).collect();
    let near = nearest_devices(&shown, 3);
    let near: Vec<String> = near.iter().map(|n| format!("`{n}`")).collect();
    Problem::new(&codes::UNKNOWN_DEVICE, "", format!("unknown device `{shown}`")).hint(format!(
        "use {}, or run `autohaap devices` for the list",
        near.join(" or ")
    ))
}

/// The names in the catalogue nearest to `name`: the same family first, then by edit distance.
pub fn nearest_devices(name: &str, count: usize) -> Vec<&'static str> {
    let short: String = name.chars().take(60).collect();
    let wanted = take_apart(&short);
    let key = bare_family(&wanted.family).to_owned();
    let mut scored: Vec<(bool, usize, &'static str)> = catalogue()
        .iter()
        .map(|entry| {
            let own = take_apart(&entry.device.name);
            let family = strsim::damerau_levenshtein(&key, bare_family(&own.family));
            let full = strsim::damerau_levenshtein(&short.to_lowercase(), &entry.device.name.to_lowercase());
            (
                family != 0 || key.is_empty(),
                family * 4 + full,
                entry.device.name.as_str(),
            )
        })
        .collect();
    scored.sort();
    scored.into_iter().take(count).map(|(_, _, name)| name).collect()
}
