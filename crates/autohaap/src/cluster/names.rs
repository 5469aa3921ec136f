//! Finding a device by a forgiving name.

use std::sync::OnceLock;

use crate::cluster::catalogue::{CatalogueEntry, catalogue};
use crate::cluster::{DeviceType, Fabric};
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

/// Words that are also written without a gap before the family.
const GLUED: &[&str] = &["nvidia", "ascend", "geforce", "tesla", "instinct", "kunlun"];

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
        let word = GLUED
            .iter()
            .find_map(|g| word.strip_prefix(g))
            .filter(|w| !w.is_empty())
            .unwrap_or(word);
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

/// An entry with its name and aliases taken apart.
struct Known {
    entry: &'static CatalogueEntry,
    /// Letters and digits of the name, lower case.
    compact: String,
    own: Parts,
    aliases: Vec<Parts>,
}

fn known() -> &'static [Known] {
    static KNOWN: OnceLock<Vec<Known>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        catalogue()
            .iter()
            .map(|entry| Known {
                entry,
                compact: compact(&entry.device.name),
                own: take_apart(&entry.device.name),
                aliases: entry.aliases.iter().map(|a| take_apart(a)).collect(),
            })
            .collect()
    })
}

fn compact(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

impl Known {
    fn is_sxm(&self) -> bool {
        self.own.form == Some("sxm")
    }

    fn fits(&self, wanted: &Parts) -> bool {
        let same =
            |family: &str| family == wanted.family || bare_family(family) == bare_family(&wanted.family);
        let form = match (wanted.form, self.own.form) {
            (Some(w), Some(o)) => w == o,
            (Some("sxm"), None) | (None, _) => true,
            (Some(_), None) => self.entry.device.intra.fabric != Fabric::Switched,
        };
        let memory = wanted
            .memory_gb
            .is_none_or(|gb| gb == self.entry.memory_sold_gb || self.entry.memory_gb_aliases.contains(&gb));
        form && memory && (same(&self.own.family) || self.aliases.iter().any(|a| same(&a.family)))
    }
}

/// Finds a device of the catalogue by a forgiving name.
///
/// `A100-80G`, `a100-sxm-80gb`, `NVIDIA A100-SXM4-80GB` and `A100_80` are one device. Where several fit, the SXM form wins,
/// then the largest memory (or the common variant of the family), and [`Match::assumed`] says so.
#[allow(
    clippy::result_large_err,
    reason = "a problem is made once, at the end of an input"
)]
pub fn find_device(name: &str) -> Result<Match, Problem> {
    let found = |entry: &'static CatalogueEntry, assumed| Match {
        device_type: entry.device.clone(),
        assumed,
        entry,
    };
    let trimmed = name.trim();
    // Longer names than any product has are refused before they are compared with every name.
    let short = if trimmed.len() <= 100 { trimmed } else { "" };
    let (wanted, exact) = (take_apart(short), compact(short));
    if let Some(k) = known().iter().find(|k| k.compact == exact) {
        return Ok(found(k.entry, None));
    }
    let mut fitting: Vec<&Known> = if wanted.family.is_empty() {
        Vec::new()
    } else {
        known().iter().filter(|k| k.fits(&wanted)).collect()
    };
    fitting.sort_by(|a, b| {
        (b.is_sxm(), b.entry.preferred)
            .cmp(&(a.is_sxm(), a.entry.preferred))
            .then(b.entry.memory_sold_gb.total_cmp(&a.entry.memory_sold_gb))
    });
    match fitting.as_slice() {
        [] => Err(unknown(trimmed)),
        [only] => Ok(found(only.entry, None)),
        [first, others @ ..] => {
            let others: Vec<&str> = others.iter().map(|k| k.entry.device.name.as_str()).collect();
            let note = format!(
                "`{trimmed}` is taken as `{}` (also fits: {})",
                first.entry.device.name,
                others.join(", ")
            );
            Ok(found(first.entry, Some(note)))
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
    let mut scored: Vec<(bool, usize, &'static str)> = known()
        .iter()
        .map(|k| {
            let name = k.entry.device.name.as_str();
            let family = strsim::damerau_levenshtein(&key, bare_family(&k.own.family));
            let full = strsim::damerau_levenshtein(&short.to_lowercase(), &name.to_lowercase());
            (family != 0 || key.is_empty(), family * 100 + full, name)
        })
        .collect();
    scored.sort_unstable();
    scored.into_iter().take(count).map(|(_, _, name)| name).collect()
}
