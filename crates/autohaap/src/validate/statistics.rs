//! Errors of a group of rows: mean, worst, bias, rank correlation, regret.

/// Ranks from 1, ties sharing their mean.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut at = 0;
    while at < order.len() {
        let mut end = at + 1;
        while end < order.len() && values[order[end]] == values[order[at]] {
            end += 1;
        }
        for &i in &order[at..end] {
            ranks[i] = (at + end + 1) as f64 / 2.0;
        }
        at = end;
    }
    ranks
}

/// Spearman's rank correlation; `None` for fewer than three rows or without spread.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() < 3 || a.len() != b.len() {
        return None;
    }
    let (x, y) = (ranks(a), ranks(b));
    let mean = f64::midpoint(a.len() as f64, 1.0);
    let sum = |u: &[f64], v: &[f64]| u.iter().zip(v).map(|(p, q)| (p - mean) * (q - mean)).sum::<f64>();
    let spread = (sum(&x, &x) * sum(&y, &y)).sqrt();
    (spread > 0.0).then(|| sum(&x, &y) / spread)
}

/// What choosing the plan predicted best costs over the best plan measured, relative.
pub fn regret(measured: &[f64], predicted: &[f64]) -> Option<f64> {
    let least = |v: &[f64]| (0..v.len()).min_by(|&a, &b| v[a].total_cmp(&v[b]));
    let chosen = least(predicted)?;
    let best = measured[least(measured)?];
    (best > 0.0).then(|| measured[chosen] / best - 1.0)
}

/// Mean of absolute values.
pub fn mean_absolute(errors: &[f64]) -> f64 {
    if errors.is_empty() {
        return 0.0;
    }
    errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_correlation_of_known_orders() {
        let up = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(spearman(&up, &[10.0, 20.0, 30.0, 40.0]), Some(1.0));
        assert_eq!(spearman(&up, &[4.0, 3.0, 2.0, 1.0]), Some(-1.0));
        // One neighbouring swap of four: 1 - 6 * 2 / (4 * 15).
        let swapped = spearman(&up, &[2.0, 1.0, 3.0, 4.0]).unwrap();
        assert!((swapped - 0.8).abs() < 1e-12);
        assert_eq!(spearman(&up[..2], &up[..2]), None);
        assert_eq!(spearman(&up, &[1.0; 4]), None);
    }

    #[test]
    fn regret_is_measured_on_the_chosen_plan() {
        assert_eq!(regret(&[2.0, 3.0], &[5.0, 4.0]), Some(0.5));
        assert_eq!(regret(&[2.0, 3.0], &[4.0, 5.0]), Some(0.0));
        assert_eq!(regret(&[], &[]), None);
    }
}
