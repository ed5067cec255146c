//! The physical units of the project. Each wraps an `f64` in SI units; only meaningful operators exist.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign, Div, Mul, Sub};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0.0);

            /// The bare number, in SI units.
            #[must_use]
            #[inline]
            pub const fn get(self) -> f64 {
                self.0
            }

            /// The larger of two.
            #[must_use]
            #[inline]
            pub fn max(self, other: Self) -> Self {
                Self(self.0.max(other.0))
            }

            /// The smaller of two.
            #[must_use]
            #[inline]
            pub fn min(self, other: Self) -> Self {
                Self(self.0.min(other.0))
            }
        }

        impl Add for $name {
            type Output = Self;
            #[inline]
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl AddAssign for $name {
            #[inline]
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl Sub for $name {
            type Output = Self;
            #[inline]
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl Mul<f64> for $name {
            type Output = Self;
            #[inline]
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }

        impl Div<f64> for $name {
            type Output = Self;
            #[inline]
            fn div(self, divisor: f64) -> Self {
                Self(self.0 / divisor)
            }
        }

        impl Div for $name {
            type Output = f64;
            #[inline]
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }

        impl std::iter::Sum for $name {
            #[inline]
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::ZERO, Add::add)
            }
        }
    };
}

unit!(
    /// An amount of memory or traffic, in bytes.
    Bytes
);
unit!(
    /// A duration, in seconds.
    Seconds
);
unit!(
    /// An amount of arithmetic, in floating-point operations.
    Flops
);
unit!(
    /// A transfer rate, in bytes per second.
    BytesPerSecond
);
unit!(
    /// A rate of arithmetic, in floating-point operations per second.
    FlopsPerSecond
);

impl Bytes {
    /// One KiB, MiB and GiB.
    pub const KIB: f64 = 1024.0;
    /// One MiB.
    pub const MIB: f64 = 1024.0 * 1024.0;
    /// One GiB.
    pub const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

    /// `n` GiB.
    #[must_use]
    pub fn gib(n: f64) -> Self {
        Self(n * Self::GIB)
    }

    /// This amount in GiB.
    #[must_use]
    pub fn as_gib(self) -> f64 {
        self.0 / Self::GIB
    }
}

impl Seconds {
    /// `n` microseconds.
    #[must_use]
    pub fn micros(n: f64) -> Self {
        Self(n * 1e-6)
    }
}

impl Div<BytesPerSecond> for Bytes {
    type Output = Seconds;
    #[inline]
    fn div(self, rate: BytesPerSecond) -> Seconds {
        Seconds(self.0 / rate.0)
    }
}

impl Div<FlopsPerSecond> for Flops {
    type Output = Seconds;
    #[inline]
    fn div(self, rate: FlopsPerSecond) -> Seconds {
        Seconds(self.0 / rate.0)
    }
}

impl Div<Seconds> for Bytes {
    type Output = BytesPerSecond;
    #[inline]
    fn div(self, time: Seconds) -> BytesPerSecond {
        BytesPerSecond(self.0 / time.0)
    }
}

impl Div<Seconds> for Flops {
    type Output = FlopsPerSecond;
    #[inline]
    fn div(self, time: Seconds) -> FlopsPerSecond {
        FlopsPerSecond(self.0 / time.0)
    }
}

impl Mul<Seconds> for BytesPerSecond {
    type Output = Bytes;
    #[inline]
    fn mul(self, time: Seconds) -> Bytes {
        Bytes(self.0 * time.0)
    }
}

impl Mul<Seconds> for FlopsPerSecond {
    type Output = Flops;
    #[inline]
    fn mul(self, time: Seconds) -> Flops {
        Flops(self.0 * time.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_times_a_time_is_an_amount() {
        let rate = BytesPerSecond(450e9);
        let time = Bytes(900e9) / rate;
        assert_eq!(time, Seconds(2.0));
        assert_eq!(rate * time, Bytes(900e9));
    }
}
