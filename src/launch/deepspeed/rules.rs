//! What DeepSpeed demands of the `zero_optimization` section: its keys, and the kind of value each takes
//! (`DeepSpeedZeroConfig` of 0.19.8, which refuses any other key).

use crate::launch::flags::FlagSet;
use crate::launch::violation;
use cost_models::rules::Violation;

/// What a key takes.
enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number from this one.
    From(u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// Judged elsewhere, or anything.
    Any,
}

const DEVICES: Kind = Kind::Word(&["none", "cpu", "nvme"]);

const KEYS: &[(&str, Kind)] = &[
    ("stage", Kind::Any),
    ("contiguous_gradients", Kind::Switch),
    ("reduce_scatter", Kind::Switch),
    ("reduce_bucket_size", Kind::From(1)),
    ("use_multi_rank_bucket_allreduce", Kind::Switch),
    ("allgather_partitions", Kind::Switch),
    ("allgather_bucket_size", Kind::From(0)),
    ("overlap_comm", Kind::Switch),
    ("compute_grad_norm", Kind::Switch),
    ("load_from_fp32_weights", Kind::Switch),
    ("elastic_checkpoint", Kind::Switch),
    ("offload_param", Kind::Any),
    ("offload_param.device", DEVICES),
    ("offload_param.nvme_path", Kind::Any),
    ("offload_param.buffer_count", Kind::From(0)),
    ("offload_param.buffer_size", Kind::From(0)),
    ("offload_param.max_in_cpu", Kind::From(0)),
    ("offload_param.pin_memory", Kind::Switch),
    ("offload_optimizer", Kind::Any),
    ("offload_optimizer.device", DEVICES),
    ("offload_optimizer.nvme_path", Kind::Any),
    ("offload_optimizer.buffer_count", Kind::From(0)),
    ("offload_optimizer.pin_memory", Kind::Switch),
    ("offload_optimizer.pipeline_read", Kind::Switch),
    ("offload_optimizer.pipeline_write", Kind::Switch),
    ("offload_optimizer.fast_init", Kind::Switch),
    ("offload_optimizer.ratio", Kind::Any),
    ("offload_optimizer.super_offload", Kind::Switch),
    ("offload_optimizer.cpuadam_cores_perc", Kind::Any),
    ("sub_group_size", Kind::From(0)),
    ("cpu_offload_param", Kind::Switch),
    ("cpu_offload_use_pin_memory", Kind::Switch),
    ("cpu_offload", Kind::Switch),
    ("stage3_prefetch_bucket_size", Kind::From(0)),
    ("stage3_param_persistence_threshold", Kind::From(0)),
    ("stage3_model_persistence_threshold", Kind::From(0)),
    ("stage3_max_live_parameters", Kind::From(0)),
    ("stage3_max_reuse_distance", Kind::From(0)),
    ("stage3_gather_16bit_weights_on_model_save", Kind::Switch),
    ("stage3_module_granularity_threshold", Kind::From(0)),
    ("stage3_use_all_reduce_for_fetch_params", Kind::Switch),
    ("stage3_allgather_sequential", Kind::Switch),
    ("stage3_gather_fp16_weights_on_model_save", Kind::Switch),
    ("ignore_unused_parameters", Kind::Switch),
    ("legacy_stage1", Kind::Switch),
    ("round_robin_gradients", Kind::Switch),
    ("parameter_alignment", Kind::Switch),
    ("zero_hpz_partition_size", Kind::From(0)),
    ("zero_quantized_weights", Kind::Switch),
    ("zero_quantized_nontrainable_weights", Kind::Switch),
    ("zero_quantized_gradients", Kind::Switch),
    ("memory_efficient_linear", Kind::Switch),
    ("pipeline_loading_checkpoint", Kind::Switch),
    ("override_module_apply", Kind::Switch),
    ("log_trace_cache_warnings", Kind::Switch),
    ("enable_sanity_checks", Kind::Switch),
    ("save_muon_momentum_buffer_in_memory", Kind::Switch),
];

/// Sections whose keys are not listed here.
const OPEN: &[&str] = &["zenflow", "leaf_module"];

/// Every key of the section that DeepSpeed does not have, and every value that it does not take. `auto` is filled in by
/// the trainer that calls DeepSpeed.
pub fn section(flags: &FlagSet) -> Vec<Violation> {
    let own = flags.iter().filter_map(|(key, value)| Some((key.strip_prefix("zero_optimization.")?, value)));
    own.filter(|(_, value)| *value != "auto").filter_map(|(key, value)| fault(key, value)).collect()
}

fn fault(key: &str, value: &str) -> Option<Violation> {
    if OPEN
        .iter()
        .any(|open| key == *open || key.strip_prefix(open).is_some_and(|rest| rest.starts_with('.')))
    {
        return None;
    }
    let shown = |text: &str| text.chars().take(60).collect::<String>();
    let Some((_, kind)) = KEYS.iter().find(|(name, _)| *name == key) else {
        let near = KEYS.iter().map(|(name, _)| *name).min_by_key(|name| strsim::levenshtein(name, key));
        let message = format!("zero_optimization has no key `{}`: DeepSpeed refuses it", shown(key));
        return Some(violation("D2b", message, near.map(|near| format!("`{near}` is the nearest"))));
    };
    let (taken, wanted) = match kind {
        Kind::Any => (true, String::new()),
        Kind::Switch => (matches!(value, "true" | "false" | "null"), "true or false".to_owned()),
        Kind::Word(words) => (words.contains(&value), words.join(", ")),
        Kind::From(least) => {
            let number =
                value.parse::<f64>().is_ok_and(|number| number.fract() == 0.0 && number >= *least as f64);
            (number, format!("a whole number from {least}"))
        }
    };
    let message = format!("zero_optimization.{key} is `{}`", shown(value));
    (!taken).then(|| violation("D2c", message, format!("it takes {wanted}")))
}
