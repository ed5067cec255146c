//! The flags of megatron-core 0.19.2, as `scripts/validators/megatron_flags.py` reads them from its sources.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A flag of Megatron-LM.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct KnownFlag {
    /// How many words follow it: `0` for a switch, `1`, a number, `?`, `*` or `+`.
    pub words: String,
    /// The values it takes; empty where they are not listed.
    #[serde(default)]
    pub choices: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct List {
    flags: BTreeMap<String, KnownFlag>,
}

static LIST: LazyLock<List> =
    LazyLock::new(|| serde_json::from_str(include_str!("flags.json")).unwrap_or_default());

/// Flags of examples and older releases that Megatron-LM reads in its own scripts, or that change nothing now.
const OLDER: &[&str] =
    &["--use-custom-fsdp", "--export-te-mcore-model", "--export-kd-teacher-load", "--export-kd-cfg"];

/// What Megatron-LM says of a flag.
#[must_use]
pub fn known(flag: &str) -> Option<&'static KnownFlag> {
    LIST.flags.get(flag)
}

/// Whether Megatron-LM has the flag.
#[must_use]
pub fn is_known(flag: &str) -> bool {
    known(flag).is_some() || OLDER.contains(&flag)
}

/// Every flag, in order.
pub fn all() -> impl Iterator<Item = &'static str> {
    LIST.flags.keys().map(String::as_str)
}

/// The known flag that is spelt most like this one, if any is close.
#[must_use]
pub fn nearest(flag: &str) -> Option<&'static str> {
    let distance = |name: &&str| strsim::levenshtein(name, flag);
    all()
        .filter(|name| name.len().abs_diff(flag.len()) <= 3)
        .min_by_key(distance)
        .filter(|name| distance(name) <= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_that_of_the_release() {
        assert!(all().count() > 800);
        assert_eq!(known("--sequence-parallel").map(|flag| flag.words.as_str()), Some("0"));
        assert_eq!(known("--recompute-granularity").map(|f| f.choices.len()), Some(2));
        assert!(!is_known("--tensor-parallel-size"));
        assert_eq!(nearest("--num-layer"), Some("--num-layers"));
    }
}
