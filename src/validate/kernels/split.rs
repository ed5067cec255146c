//! Splits that depend on nothing but the data: no order, no seed.

/// Share of the points that is held out of a fit.
pub const HELD_OUT_SHARE: u64 = 30;

/// 64-bit FNV-1a.
#[must_use]
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Whether a record is held out, by a hash of its fields.
#[must_use]
pub fn held_out(record: &csv::StringRecord) -> bool {
    let text: Vec<&str> = record.iter().collect();
    hash(&text.join(",")) % 100 < HELD_OUT_SHARE
}
