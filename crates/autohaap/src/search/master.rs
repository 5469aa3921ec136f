//! The master: packs templates into the class counts. The LP's dual gives the prices; integers by bounded search.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, OptimizationDirection, Problem};

/// A column: what a template finishes within the time, and the devices it takes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    /// Index of the template in its pool.
    pub(super) template: usize,
    /// Sequences finished within the time.
    pub(super) value: f64,
    /// Devices per class.
    pub(super) counts: Vec<u32>,
}

/// Prices per class and the LP value `sum price * count`, by the dual: least total price such that every column's
/// devices cost at least its value.
pub(super) fn prices(columns: &[Column], counts: &[u32]) -> Option<(Vec<f64>, f64)> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    // A floor keeps worthless devices from becoming free in pricing.
    let best = columns
        .iter()
        .map(|c| c.value / f64::from(c.counts.iter().sum::<u32>().max(1)))
        .fold(0.0, f64::max);
    let floor = best * 1e-3;
    let variables: Vec<_> = counts
        .iter()
        .map(|&n| problem.add_var(f64::from(n).max(1e-3), (floor, f64::INFINITY)))
        .collect();
    for column in columns {
        let terms: Vec<_> = column
            .counts
            .iter()
            .zip(&variables)
            .filter(|(n, _)| **n > 0)
            .map(|(n, v)| (*v, f64::from(*n)))
            .collect();
        problem.add_constraint(terms.as_slice(), ComparisonOp::Ge, column.value);
    }
    let solution = problem.solve().ok()?.into_solution().ok()?;
    let prices: Vec<f64> = variables.iter().map(|v| solution[*v]).collect();
    let value = prices.iter().zip(counts).map(|(p, n)| p * f64::from(*n)).sum();
    Some((prices, value))
}

/// For every count vector up to `counts` the most that items within it add up to, each as often as it fits; an item is a
/// count vector with a value.
pub(super) fn knapsack(items: &BTreeMap<Vec<u32>, u64>, counts: &[u32]) -> BTreeMap<Vec<u32>, u64> {
    let mut room = BTreeMap::new();
    let mut vector = vec![0; counts.len()];
    loop {
        let mut most = 0;
        for (taken, value) in items {
            if taken.iter().zip(&vector).all(|(n, v)| n <= v) {
                let rest: Vec<u32> = vector.iter().zip(taken).map(|(v, n)| v - n).collect();
                most = most.max(value + room.get(&rest).copied().unwrap_or(0));
            }
        }
        room.insert(vector.clone(), most);
        // Next vector, first class fastest: every smaller vector came before.
        let Some(at) = (0..vector.len()).find(|&i| vector[i] < counts[i]) else {
            return room;
        };
        vector[at] += 1;
        vector[..at].fill(0);
    }
}

/// How often to use each column so that the counts suffice and at least `target` sequences are finished; the result is
/// a list of (column, times). Depth-first, best value per price first, at most `nodes` steps; `None` if none was found.
pub(super) fn pack(
    columns: &[Column],
    counts: &[u32],
    prices: &[f64],
    target: f64,
    nodes: usize,
) -> Option<Vec<(usize, u32)>> {
    let cost = |c: &Column| {
        c.counts
            .iter()
            .zip(prices)
            .map(|(n, p)| f64::from(*n) * p)
            .sum::<f64>()
            .max(1e-12)
    };
    let mut order: Vec<usize> = (0..columns.len()).filter(|&i| columns[i].value > 0.0).collect();
    order.sort_by(|&a, &b| {
        let (x, y) = (&columns[a], &columns[b]);
        (y.value / cost(y))
            .total_cmp(&(x.value / cost(x)))
            .then(y.value.total_cmp(&x.value))
            .then(x.template.cmp(&y.template))
    });
    // Best ratio among the columns from a position on: bounds what is still to come.
    let mut state = Packing {
        columns,
        order: &order,
        ratios: {
            let mut ratios = vec![0.0; order.len() + 1];
            for i in (0..order.len()).rev() {
                let c = &columns[order[i]];
                ratios[i] = f64::max(ratios[i + 1], c.value / cost(c));
            }
            ratios
        },
        prices,
        target,
        left: nodes,
        chosen: Vec::new(),
    };
    let mut free: Vec<u32> = counts.to_vec();
    state.descend(0, 0.0, &mut free).then_some(state.chosen)
}

struct Packing<'a> {
    columns: &'a [Column],
    order: &'a [usize],
    ratios: Vec<f64>,
    prices: &'a [f64],
    target: f64,
    left: usize,
    chosen: Vec<(usize, u32)>,
}

impl Packing<'_> {
    fn descend(&mut self, at: usize, value: f64, free: &mut [u32]) -> bool {
        if value >= self.target {
            return true;
        }
        if at == self.order.len() || self.left == 0 {
            return false;
        }
        self.left -= 1;
        let worth: f64 = free.iter().zip(self.prices).map(|(n, p)| f64::from(*n) * p).sum();
        if value + worth * self.ratios[at] < self.target {
            return false;
        }
        let column = &self.columns[self.order[at]];
        let most = column
            .counts
            .iter()
            .zip(free.iter())
            .filter(|(n, _)| **n > 0)
            .map(|(n, f)| f / n)
            .min()
            .unwrap_or(0)
            .min(((self.target - value) / column.value).ceil() as u32);
        for times in (0..=most).rev() {
            for (f, n) in free.iter_mut().zip(&column.counts) {
                *f -= times * n;
            }
            if times > 0 {
                self.chosen.push((self.order[at], times));
            }
            if self.descend(at + 1, value + f64::from(times) * column.value, free) {
                return true;
            }
            if times > 0 {
                self.chosen.pop();
            }
            for (f, n) in free.iter_mut().zip(&column.counts) {
                *f += times * n;
            }
            if self.left == 0 {
                return false;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(template: usize, value: f64, counts: &[u32]) -> Column {
        Column {
            template,
            value,
            counts: counts.to_vec(),
        }
    }

    #[test]
    fn dual_prices_pack_two_classes() {
        // One column of 2 fast devices worth 10, one of 4 slow worth 8: 4 fast and 4 slow make 28.
        let columns = [column(0, 10.0, &[2, 0]), column(1, 8.0, &[0, 4])];
        let (prices, value) = prices(&columns, &[4, 4]).unwrap();
        assert!((prices[0] - 5.0).abs() < 1e-9 && (prices[1] - 2.0).abs() < 1e-9);
        assert!((value - 28.0).abs() < 1e-9);
        let packed = pack(&columns, &[4, 4], &prices, 28.0, 1000).unwrap();
        assert_eq!(packed, vec![(0, 2), (1, 1)]);
        assert!(pack(&columns, &[4, 4], &prices, 28.5, 1000).is_none());
    }
}
