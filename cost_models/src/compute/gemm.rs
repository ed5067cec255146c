//! Matrix products.

use crate::runtime::SharedTraits;
use cluster_profiles::{Bytes, Flops, FlopsPerSecond, GemmCurve, Gpu, Precision, Seconds};

/// Largest tiles of a library, of equal area.
const LARGE_TILES: [(f64, f64); 2] = [(128.0, 256.0), (256.0, 128.0)];
/// A smaller tile, with the rate of its kernel relative to the largest ones.
const SMALL_TILE: ((f64, f64), f64) = ((128.0, 128.0), 0.93);
/// Weight of wave quantisation: the last, partly filled wave of tiles runs at a higher clock and splits its work, so
/// full quantisation (1) is much too harsh on measured products.
const WAVE_EXPONENT: f64 = 0.3;

/// Multiple of elements that a product's sizes should have.
const ALIGNED: u64 = 64;

/// `C[m, n] = A[m, k] B[k, n]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Rows of A and C: tokens in a forward.
    pub m: f64,
    /// Columns of B and C.
    pub n: f64,
    /// Inner size.
    pub k: f64,
}

/// Width of a product's inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// bf16 or fp16.
    Bits16,
    /// 8-bit floating point.
    Bits8,
    /// 4-bit floating point.
    Bits4,
}

impl Format {
    /// The format linear layers compute in under `precision`, on a GPU that may lack it.
    #[must_use]
    pub fn of(precision: Precision, gpu: &Gpu) -> Self {
        if gpu.kernels.gemm_8bit.is_none() {
            return Self::Bits16;
        }
        match precision {
            Precision::Fp8 | Precision::Mxfp8 => Self::Bits8,
            Precision::Nvfp4 if gpu.supports(Precision::Nvfp4) => Self::Bits4,
            Precision::Nvfp4 => Self::Bits8,
            Precision::Fp32 | Precision::Fp16 | Precision::Bf16 => Self::Bits16,
        }
    }

    /// Bytes per input element.
    #[must_use]
    pub const fn bytes(self) -> f64 {
        match self {
            Self::Bits16 => 2.0,
            Self::Bits8 => 1.0,
            Self::Bits4 => 0.5,
        }
    }
}

impl Product {
    /// Multiplications and additions.
    #[must_use]
    pub fn flops(self) -> Flops {
        Flops(2.0 * self.m * self.n * self.k)
    }

    /// The product of the input gradient: `dA[m, k] = dC[m, n] B^T[n, k]`.
    #[must_use]
    pub const fn input_gradient(self) -> Self {
        Self { m: self.m, n: self.k, k: self.n }
    }

    /// The product of the weight gradient: `dB^T[n, k] = dC^T[n, m] A[m, k]`.
    #[must_use]
    pub const fn weight_gradient(self) -> Self {
        Self { m: self.n, n: self.k, k: self.m }
    }

    fn traffic(self, format: Format, output_bytes: f64) -> Bytes {
        let inputs = self.m * self.k + self.k * self.n;
        Bytes(format.bytes() * inputs + output_bytes * self.m * self.n)
    }
}

/// Share of the rate that is left by the tiles of the last wave.
fn wave_efficiency(gpu: &Gpu, product: Product) -> f64 {
    let units = f64::from(gpu.multiprocessors.max(1));
    let filled = |(tile_m, tile_n): (f64, f64)| {
        let tiles = (product.m / tile_m).ceil() * (product.n / tile_n).ceil();
        let waves = (tiles / units).ceil();
        product.m * product.n / (waves * units * tile_m * tile_n)
    };
    let large = LARGE_TILES.into_iter().map(filled).fold(0.0, f64::max);
    let (tile, rate) = SMALL_TILE;
    let small = filled(tile);
    let whole = large.powf(WAVE_EXPONENT);
    if small > large { whole.max(rate * small.powf(WAVE_EXPONENT)) } else { whole }
}

/// Rate lost by sizes that are no multiple of `full`, a power of two: `per_halving` for each missing factor of two.
pub(super) fn aligned(sizes: &[f64], full: u64, per_halving: f64) -> f64 {
    let mut aligned_to = full;
    for &size in sizes {
        while aligned_to > 1 && !(size.round() as u64).is_multiple_of(aligned_to) {
            aligned_to /= 2;
        }
    }
    per_halving.powi((full / aligned_to).ilog2() as i32)
}

fn curve(gpu: &Gpu, format: Format) -> &GemmCurve {
    let kernels = &gpu.kernels;
    match format {
        Format::Bits16 => &kernels.gemm_16bit,
        Format::Bits8 | Format::Bits4 => kernels.gemm_8bit.as_ref().unwrap_or(&kernels.gemm_16bit),
    }
}

/// Duration that a curve's rate belongs to: short products run at a higher clock where `rate_decay` is not 0.
const RATED_DURATION: f64 = 1e-3;
/// Products shorter than this gain nothing more.
const SHORTEST_DURATION: f64 = 1e-5;

/// A product as an inference benchmark measures it:
/// `launch + max(2mnk / (rate wave^0.3 k/(k + k_half)), bytes/bandwidth) + cast_bytes m k / bandwidth`, the arithmetic
/// scaled by `(its time / 1 ms)^rate_decay`; the decay is the chip's clock under load, measured on its 16-bit products.
#[must_use]
pub fn gemm_burst(gpu: &Gpu, format: Format, product: Product) -> Seconds {
    if product.flops().get() <= 0.0 {
        return Seconds::ZERO;
    }
    let curve = curve(gpu, format);
    let rate = curve.rate * wave_efficiency(gpu, product) * (product.k / (product.k + curve.k_half));
    let arithmetic = product.flops() / rate;
    let clock =
        (arithmetic.get().max(SHORTEST_DURATION) / RATED_DURATION).powf(gpu.kernels.gemm_16bit.rate_decay);
    let bandwidth = gpu.kernels.stream_bandwidth;
    let quantise = Bytes(curve.cast_bytes * product.m * product.k) / bandwidth;
    curve.launch + (arithmetic * clock).max(product.traffic(format, 2.0) / bandwidth) + quantise
}

/// Rate of a large product under load.
#[must_use]
pub fn sustained_rate(gpu: &Gpu, shared: &SharedTraits, format: Format) -> FlopsPerSecond {
    let kernels = &gpu.kernels;
    let rate = curve(gpu, format).rate;
    match format {
        Format::Bits16 => rate * kernels.sustained_16bit,
        Format::Bits8 => rate * kernels.sustained_8bit,
        Format::Bits4 => rate * (kernels.sustained_8bit * shared.rate_4bit),
    }
}

/// A product in training, its output at `output_bytes` per element (2 where it is written, 8 where it is accumulated
/// into an fp32 gradient). The cast of its inputs is counted by [`cast`].
#[must_use]
pub fn gemm(
    gpu: &Gpu,
    shared: &SharedTraits,
    format: Format,
    product: Product,
    output_bytes: f64,
) -> Seconds {
    if product.flops().get() <= 0.0 {
        return Seconds::ZERO;
    }
    let curve = curve(gpu, format);
    let rate = sustained_rate(gpu, shared, format)
        * (wave_efficiency(gpu, product) * product.k / (product.k + curve.k_half))
        * aligned(&[product.n, product.k], ALIGNED, shared.alignment);
    let traffic = product.traffic(format, output_bytes) / gpu.kernels.stream_bandwidth;
    gpu.kernels.gemm_16bit.launch + (product.flops() / rate).max(traffic)
}

/// Quantising `elements` activations for a low-precision product; `relative` is the recipe's cost.
#[must_use]
pub fn cast(gpu: &Gpu, shared: &SharedTraits, format: Format, elements: f64, relative: f64) -> Seconds {
    let factor = match format {
        Format::Bits16 => return Seconds::ZERO,
        Format::Bits8 => relative,
        Format::Bits4 => shared.cast_4bit,
    };
    gpu.kernels.gemm_16bit.launch
        + Bytes(factor * shared.cast_bytes * elements) / gpu.kernels.stream_bandwidth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_sizes_lose_a_factor_per_halving() {
        assert!((aligned(&[1024.0, 4096.0], ALIGNED, 0.85) - 1.0).abs() < 1e-12);
        assert!((aligned(&[1024.0, 4096.0 + 32.0], ALIGNED, 0.85) - 0.85).abs() < 1e-12);
        assert!((aligned(&[1800.0, 4096.0], ALIGNED, 0.85) - 0.85_f64.powi(3)).abs() < 1e-12);
        assert!((aligned(&[1801.0], ALIGNED, 0.85) - 0.85_f64.powi(6)).abs() < 1e-12);
    }
}
