//! Rules for degrees and cuts that people type by hand: products first, then equal cuts and legal degrees.

use crate::error::{Problem, Problems, plan as codes};

/// Degrees of a uniform plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UniformDegrees {
    /// Tensor parallelism.
    pub tp: u64,
    /// Context parallelism.
    pub cp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Copies of the whole pipeline.
    pub dp: u64,
}

impl UniformDegrees {
    /// Devices that the degrees use: tp x cp x pp x dp.
    pub fn devices(self) -> u128 {
        [self.tp, self.cp, self.pp, self.dp]
            .into_iter()
            .fold(1_u128, |product, degree| {
                product.saturating_mul(u128::from(degree))
            })
    }
}

/// Multiplies the degrees and compares with the devices at hand; names the DP that fits.
pub fn world_size(degrees: UniformDegrees, devices: u64, path: &str) -> Option<Problem> {
    let product = degrees.devices();
    if product == u128::from(devices) {
        return None;
    }
    let UniformDegrees { tp, cp, pp, dp } = degrees;
    let devices_wide = u128::from(devices);
    let fitting =
        |degree: u64| devices_wide.checked_div(product.checked_div(u128::from(degree)).unwrap_or(0));
    let hint = match fitting(dp) {
        None => "every degree is at least 1".to_owned(),
        Some(0) => {
            let mut ways = Vec::new();
            for (name, degree) in [("pp", pp), ("tp", tp)] {
                let fits = fitting(degree.saturating_mul(dp)).unwrap_or(0);
                if fits > 0 {
                    ways.push(format!("{name} {fits} with dp 1 fits"));
                }
            }
            ways.push(format!(
                "{} devices are missing",
                product.saturating_sub(devices_wide)
            ));
            ways.join(", ")
        }
        Some(copies) => {
            let left = devices_wide - copies * (product / u128::from(dp));
            if left == 0 {
                format!("dp {copies} fits")
            } else {
                format!("dp {copies} fits and leaves {left} devices idle")
            }
        }
    };
    let message = format!("tp {tp} x cp {cp} x pp {pp} x dp {dp} is {product} devices, not {devices}");
    Some(Problem::new(&codes::WORLD_SIZE, path, message).hint(hint))
}

/// Layers per stage of a cut into `parts` that is as even as possible; earlier stages take the odd layers, because the
/// head adds work to the last one.
pub fn even_cut(layers: usize, parts: usize) -> Vec<usize> {
    if parts == 0 {
        return Vec::new();
    }
    let (each, odd) = (layers / parts, layers % parts);
    (0..parts).map(|i| each + usize::from(i < odd)).collect()
}

/// A cut in words: `8/8/7/7`, longer ones as `16x3 + 16x2`.
pub fn cut_in_words(cut: &[usize]) -> String {
    if cut.len() <= 8 {
        let words: Vec<String> = cut.iter().map(usize::to_string).collect();
        return words.join("/");
    }
    let mut words = Vec::new();
    for run in cut.chunk_by(|a, b| a == b) {
        words.push(format!("{}x{}", run.len(), run[0]));
    }
    words.truncate(8);
    words.join(" + ")
}

/// The cut that an engine without uneven stages makes: `blocks / (stages * chunks)` for each virtual stage. An indivisible
/// count is an error that names how many blocks would be built.
pub fn equal_cut(blocks: usize, stages: usize, chunks: usize, path: &str) -> Result<Vec<usize>, Problems> {
    let parts = stages.saturating_mul(chunks);
    if parts == 0 || parts > blocks {
        let message = format!("{blocks} blocks cannot fill {stages} stages of {chunks} chunks");
        let hint = format!("use at most {blocks} virtual stages, each with at least one block");
        return Err(Problem::new(&codes::ATOM_COVERAGE, path, message)
            .hint(hint)
            .into());
    }
    let each = blocks / parts;
    let built = each * parts;
    if built == blocks {
        return Ok(vec![each; parts]);
    }
    let shape = if chunks == 1 {
        format!("{stages} equal stages of {each}")
    } else {
        format!("{stages} stages with {chunks} equal chunks of {each}")
    };
    let message = format!("{shape} build {built} of {blocks} blocks: {built} != {blocks}");
    let hint = format!(
        "cut unevenly, for example {} blocks",
        cut_in_words(&even_cut(blocks, parts))
    );
    Err(Problem::new(&codes::ATOM_COVERAGE, path, message)
        .hint(hint)
        .into())
}

/// What a degree must satisfy in one stage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DegreeRules {
    /// Numbers that the degree must divide, with their names.
    pub divides: Vec<(&'static str, u64)>,
    /// Numbers that the degree must divide or be a multiple of.
    pub divides_or_multiple: Vec<(&'static str, u64)>,
}

impl DegreeRules {
    /// Adds a number that the degree must divide, once.
    pub fn divide(&mut self, name: &'static str, number: u64) {
        if number > 0 && !self.divides.contains(&(name, number)) {
            self.divides.push((name, number));
        }
    }
    /// Adds a number that the degree must divide or be a multiple of, once.
    pub fn divide_or_multiple(&mut self, name: &'static str, number: u64) {
        if number > 0 && !self.divides_or_multiple.contains(&(name, number)) {
            self.divides_or_multiple.push((name, number));
        }
    }
    /// The rules that a degree breaks, in words.
    pub fn broken(&self, degree: u64) -> Vec<String> {
        if degree == 0 {
            return vec!["is zero".to_owned()];
        }
        let mut words = Vec::new();
        for (name, number) in &self.divides {
            if !number.is_multiple_of(degree) {
                words.push(format!("does not divide {number} {name}"));
            }
        }
        for (name, number) in &self.divides_or_multiple {
            if !number.is_multiple_of(degree) && !degree.is_multiple_of(*number) {
                words.push(format!("neither divides {number} {name} nor is a multiple"));
            }
        }
        words
    }
    /// Whether a degree obeys every rule.
    pub fn allows(&self, degree: u64) -> bool {
        degree > 0
            && self.divides.iter().all(|(_, n)| n.is_multiple_of(degree))
            && self
                .divides_or_multiple
                .iter()
                .all(|(_, n)| n.is_multiple_of(degree) || degree.is_multiple_of(*n))
    }
    /// Legal degrees up to `limit` (1,024 at most).
    pub fn legal(&self, limit: u64) -> Vec<u64> {
        (1..=limit.clamp(1, 1024)).filter(|d| self.allows(*d)).collect()
    }
    /// Legal degrees and the nearest ones, for a hint.
    pub fn hint(&self, name: &str, degree: u64, limit: u64) -> String {
        let legal = self.legal(limit.max(degree.min(64)));
        let below = legal.iter().rev().find(|d| **d < degree);
        let above = legal.iter().find(|d| **d > degree);
        let nearest: Vec<String> = below.into_iter().chain(above).map(u64::to_string).collect();
        format!(
            "legal {name}: {}; nearest: {}",
            number_list(&legal),
            nearest.join(" or ")
        )
    }
}

fn number_list(numbers: &[u64]) -> String {
    let mut words: Vec<String> = numbers.iter().take(16).map(u64::to_string).collect();
    if numbers.len() > 16 {
        words.push("...".to_owned());
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indivisible_layer_counts_name_what_would_be_built() {
        let odd = equal_cut(30, 4, 1, "pp").unwrap_err().0.remove(0);
        assert_eq!(odd.code.id, "E411");
        assert!(odd.message.contains("28 != 30"), "{}", odd.message);
        assert!(odd.hint.contains("8/8/7/7"), "{}", odd.hint);
        let chunks = equal_cut(80, 16, 2, "pp").unwrap_err().0.remove(0);
        assert!(chunks.message.contains("64 != 80"), "{}", chunks.message);
        assert!(chunks.hint.contains("16x3 + 16x2"), "{}", chunks.hint);
        let forty = equal_cut(40, 16, 1, "pp").unwrap_err().0.remove(0);
        assert!(forty.hint.contains("8x3 + 8x2"), "{}", forty.hint);
        assert!(
            equal_cut(7, 2, 1, "pp").unwrap_err().0[0]
                .message
                .contains("6 of 7 blocks")
        );
        assert_eq!(equal_cut(32, 4, 1, "pp").unwrap(), vec![8; 4]);
    }

    #[test]
    fn products_name_the_dp_that_fits() {
        let degrees = UniformDegrees {
            tp: 8,
            cp: 16,
            pp: 16,
            dp: 4,
        };
        let problem = world_size(degrees, 16384, "dp").unwrap();
        assert!(problem.message.contains("is 8192 devices"), "{}", problem.message);
        assert_eq!(problem.hint, "dp 8 fits");
        let few = world_size(
            UniformDegrees {
                tp: 8,
                cp: 1,
                pp: 2,
                dp: 1,
            },
            8,
            "dp",
        )
        .unwrap();
        assert!(
            few.hint.contains("pp 1 with dp 1 fits") && few.hint.contains("8 devices are missing"),
            "{}",
            few.hint
        );
        assert!(world_size(UniformDegrees { dp: 8, ..degrees }, 16384, "dp").is_none());
        assert!(world_size(UniformDegrees { tp: 0, ..degrees }, 8, "dp").is_some());
    }

    #[test]
    fn heads_decide_the_legal_degrees() {
        let mut rules = DegreeRules::default();
        rules.divide("heads", 40);
        rules.divide_or_multiple("key/value heads", 8);
        assert_eq!(rules.legal(8), vec![1, 2, 4, 8]);
        assert!(rules.hint("tp", 6, 8).contains("1, 2, 4, 8; nearest: 4 or 8"));
        let mut odd = DegreeRules::default();
        odd.divide("heads", 71);
        assert_eq!(odd.legal(8), vec![1]);
    }
}
