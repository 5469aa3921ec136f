//! Quantities with a unit: seconds, bytes, floating-point operations and their rates.
//!
//! A float appears in a public signature only inside one of these types. Memory is printed in GiB, rates in
//! decimal units; arithmetic between quantities is defined only where the units make sense.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

use serde::{Deserialize, Serialize};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0.0);
            /// The plain number in the base unit.
            pub const fn get(self) -> f64 { self.0 }
            /// The larger of two quantities.
            #[must_use]
            pub fn max(self, other: Self) -> Self { Self(self.0.max(other.0)) }
            /// The smaller of two quantities.
            #[must_use]
            pub fn min(self, other: Self) -> Self { Self(self.0.min(other.0)) }
        }
        impl Add for $name { type Output = Self; fn add(self, o: Self) -> Self { Self(self.0 + o.0) } }
        impl AddAssign for $name { fn add_assign(&mut self, o: Self) { self.0 += o.0; } }
        impl Sub for $name { type Output = Self; fn sub(self, o: Self) -> Self { Self(self.0 - o.0) } }
        impl Mul<f64> for $name { type Output = Self; fn mul(self, k: f64) -> Self { Self(self.0 * k) } }
        impl Div<f64> for $name { type Output = Self; fn div(self, k: f64) -> Self { Self(self.0 / k) } }
        impl Div for $name { type Output = f64; fn div(self, o: Self) -> f64 { self.0 / o.0 } }
        impl Sum for $name { fn sum<I: Iterator<Item = Self>>(i: I) -> Self { Self(i.map(|q| q.0).sum()) } }
    };
}

quantity!(
    /// A time in seconds.
    Seconds
);
quantity!(
    /// An amount of memory or traffic in bytes.
    Bytes
);
quantity!(
    /// Floating-point operations; one multiply-add counts two.
    Flops
);
quantity!(
    /// Floating-point operations per second.
    FlopRate
);
quantity!(
    /// Bytes per second, per direction.
    ByteRate
);

/// Bytes of one GiB.
pub const GIB: f64 = 1_073_741_824.0;

impl Bytes {
    /// From binary gigabytes.
    pub const fn from_gib(gib: f64) -> Self {
        Self(gib * GIB)
    }
    /// In binary gigabytes.
    pub fn gib(self) -> f64 {
        self.0 / GIB
    }
}

impl Div<ByteRate> for Bytes {
    type Output = Seconds;
    fn div(self, rate: ByteRate) -> Seconds {
        Seconds(self.0 / rate.0)
    }
}

impl Div<FlopRate> for Flops {
    type Output = Seconds;
    fn div(self, rate: FlopRate) -> Seconds {
        Seconds(self.0 / rate.0)
    }
}

impl Div<Seconds> for Flops {
    type Output = FlopRate;
    fn div(self, time: Seconds) -> FlopRate {
        FlopRate(self.0 / time.0)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0;
        match s.abs() {
            a if a >= 100.0 => write!(f, "{s:.0} s"),
            a if a >= 1.0 => write!(f, "{s:.2} s"),
            a if a >= 1e-3 => write!(f, "{:.2} ms", s * 1e3),
            _ => write!(f, "{:.1} us", s * 1e6),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} GiB", self.gib())
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} GB/s", self.0 / 1e9)
    }
}

impl fmt::Display for FlopRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} TFLOP/s", self.0 / 1e12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_divide_amounts_into_times() {
        assert_eq!(Bytes(1e9) / ByteRate(2e9), Seconds(0.5));
        assert_eq!(Flops(6e12) / FlopRate(3e12), Seconds(2.0));
        assert_eq!(format!("{}", Bytes::from_gib(1.5)), "1.5 GiB");
    }
}
