//! The keys a study can set, in its base or along an axis.

use super::draft::{Draft, Edit};
use super::value::{Kind, Value};
use crate::cli::inputs::parse_gradient_dtype;
use crate::report::number::{long_time, written};
use clap::ValueEnum;
use cluster_profiles::{Bytes, BytesPerSecond, Cluster, Seconds};

/// What a key does to a point that is being put together.
type Apply = fn(&mut Draft, &Value) -> Result<(), String>;

/// A key.
pub struct Key {
    /// Its name in a study file.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it means, for people.
    pub meaning: &'static str,
    apply: Apply,
}

const fn key(name: &'static str, kind: Kind, meaning: &'static str, apply: Apply) -> Key {
    Key { name, kind, meaning, apply }
}

/// Every key but those of a model file, which are `model.KEY`.
pub static KEYS: &[Key] = &[
    key("model", Kind::Text, "catalogue name or path", |d, v| text(&mut d.model, v)),
    key("cluster", Kind::Text, "catalogue name or path", |d, v| text(&mut d.cluster, v)),
    key("gpu", Kind::Text, "GPU kind in place of the cluster's", |d, v| some_text(&mut d.gpu, v)),
    key("gpus", Kind::Count, "GPUs in use", |d, v| count(&mut d.gpus, v, 1 << 20)),
    key(
        "dollars_per_hour",
        Kind::Number,
        "as many GPUs as this pays for, in whole nodes (domains) whose number has no factor above 3",
        |d, v| number(&mut d.dollars_per_hour, v),
    ),
    key("seq_len", Kind::Count, "tokens of a sequence", |d, v| count(&mut d.seq_len, v, 1 << 30)),
    key("global_batch", Kind::Count, "sequences of a step", |d, v| count(&mut d.global_batch, v, 1 << 30)),
    key(
        "batch_tokens",
        Kind::Count,
        "tokens of a step, in place of global_batch; at least one sequence",
        |d, v| count(&mut d.batch_tokens, v, 1 << 40),
    ),
    key("precision", Kind::Text, "bf16, fp16, fp8, mxfp8, nvfp4, fp32", |d, v| parsed(&mut d.precision, v)),
    key("optimizer", Kind::Text, "adamw, adamw-bf16, sgd, muon", |d, v| parsed(&mut d.optimizer, v)),
    key("gradient_dtype", Kind::Text, "format gradients are accumulated in: fp32, bf16", |d, v| {
        d.gradient_dtype = Some(parse_gradient_dtype(&v.to_string())?);
        Ok(())
    }),
    key("expert_imbalance", Kind::Number, "tokens of the busiest expert rank over the mean", |d, v| {
        match v.number() {
            Some(ratio) if (1.0..=1024.0).contains(&ratio) => d.expert_imbalance = ratio,
            _ => return Err(format!("is {v}, expected 1 to 1024")),
        }
        Ok(())
    }),
    key("runtime", Kind::Text, "engine; see `catalog runtimes`", |d, v| some_text(&mut d.runtime, v)),
    key("launcher", Kind::Text, "launcher; see `catalog launchers`", |d, v| some_text(&mut d.launcher, v)),
    key("memory_limit", Kind::Bytes, "memory a GPU may use", |d, v| number(&mut d.memory_limit, v)),
    key(
        "offload",
        Kind::Text,
        "never, optimizer, activations or any, as --offload (default: where nothing fits without)",
        |d, v| choice(&mut d.offload, v),
    ),
    key("require", Kind::Text, "measured or validated, as --require", |d, v| choice(&mut d.require, v)),
    key("gap", Kind::Share, "how much better another layout may be, as --gap, such as \"1%\"", |d, v| {
        d.gap = v.number().unwrap_or(0.0);
        Ok(())
    }),
    key("schedules", Kind::Text, "schedules allowed, such as \"1f1b|interleaved-1f1b\"", |d, v| {
        d.fix.push(format!("schedule={v}"));
        Ok(())
    }),
    key("fix", Kind::Text, "as --fix, such as \"tp=8,pp=4\"; \"\" for nothing", |d, v| {
        d.fix.push(v.to_string());
        Ok(())
    }),
    key("forbid", Kind::Text, "as --forbid, such as \"cross-node-tp\"", |d, v| {
        d.forbid.push(v.to_string());
        Ok(())
    }),
    key("cluster.domain", Kind::Count, "GPUs of an NVLink domain; nodes become domains", |d, v| {
        count(&mut d.domain, v, 1 << 16)
    }),
    key("cluster.nics", Kind::Count, "network interfaces of a node", |d, v| count(&mut d.nics, v, 1024)),
    key("cluster.oversubscription", Kind::Number, "downlinks over uplinks of a leaf switch", |d, v| {
        edit(d, v, |c, x| c.oversubscription = x.max(1.0))
    }),
    key("cluster.nodes_per_leaf", Kind::Count, "nodes below a leaf switch", |d, v| {
        edit(d, v, |c, x| c.nodes_per_leaf = Some(x as u32))
    }),
    key("cluster.inter.bandwidth", Kind::Rate, "network, per GPU and direction", |d, v| {
        edit(d, v, |c, x| c.groups.iter_mut().for_each(|g| g.node.inter.bandwidth = BytesPerSecond(x)))
    }),
    key("cluster.inter.latency", Kind::Time, "latency of the network", |d, v| {
        edit(d, v, |c, x| c.groups.iter_mut().for_each(|g| g.node.inter.latency = Seconds(x)))
    }),
    key("cluster.intra.bandwidth", Kind::Rate, "NVLink, per GPU and direction", |d, v| {
        edit(d, v, set_intra_bandwidth)
    }),
    key("cluster.intra.latency", Kind::Time, "latency of NVLink", |d, v| {
        edit(d, v, |c, x| c.groups.iter_mut().for_each(|g| g.node.intra.latency = Seconds(x)))
    }),
    key("cluster.host.bandwidth", Kind::Rate, "link of a GPU to its host", |d, v| {
        edit(d, v, |c, x| c.groups.iter_mut().for_each(|g| g.node.host.bandwidth = BytesPerSecond(x)))
    }),
    key("cluster.dollars_per_gpu_hour", Kind::Number, "price of a GPU for an hour", |d, v| {
        edit(d, v, |c, x| c.groups.iter_mut().for_each(|g| g.dollars_per_gpu_hour = Some(x)))
    }),
    key("gpu.memory", Kind::Bytes, "memory of a GPU", |d, v| {
        edit(d, v, |c, x| c.groups.iter_mut().for_each(|g| g.gpu.memory = Bytes(x)))
    }),
    key(
        "gpu.memory_bandwidth",
        Kind::Rate,
        "peak memory bandwidth; what kernels reach moves along",
        |d, v| edit(d, v, set_memory_bandwidth),
    ),
    key("gpu.speed", Kind::Number, "factor on every matrix and attention rate", |d, v| {
        edit(d, v, |c, x| c.groups.iter_mut().for_each(|g| super::hardware::speed_up(&mut g.gpu, x)))
    }),
    key("gpu.power_watts", Kind::Number, "board power", |d, v| {
        edit(d, v, |c, x| c.groups.iter_mut().for_each(|g| g.gpu.power_watts = x))
    }),
    key("tokens", Kind::Number, "tokens to train on", |d, v| number(&mut d.tokens, v)),
    key("failures.mtbf_gpu", Kind::Time, "mean time between failures of one GPU", |d, v| {
        number(&mut d.failures.mtbf_gpu, v)
    }),
    key("failures.storage_bandwidth", Kind::Rate, "writing of checkpoints, whole job", |d, v| {
        number(&mut d.failures.storage_bandwidth, v)
    }),
    key(
        "failures.bytes_per_parameter",
        Kind::Number,
        "of a checkpoint (default: weights and optimizer)",
        |d, v| number(&mut d.failures.bytes_per_parameter, v),
    ),
    key("failures.asynchronous", Kind::Flag, "training goes on while a snapshot is written", |d, v| {
        flag(&mut d.failures.asynchronous, v)
    }),
    key("failures.interval", Kind::Time, "between checkpoints (default: the best)", |d, v| {
        number(&mut d.failures.interval, v)
    }),
    key(
        "failures.restart",
        Kind::Time,
        "from a failure until training goes on, with a spare at hand",
        |d, v| number(&mut d.failures.restart, v),
    ),
    key("failures.replacement", Kind::Time, "until a failed node is replaced, without a spare", |d, v| {
        number(&mut d.failures.replacement, v)
    }),
    key("failures.elastic", Kind::Flag, "go on with the other nodes until it is replaced", |d, v| {
        flag(&mut d.failures.elastic, v)
    }),
];

/// The key called `name`.
#[must_use]
pub fn named(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// What the key takes; none if there is no such key.
#[must_use]
pub fn kind_of(name: &str) -> Option<Kind> {
    match named(name) {
        Some(key) => Some(key.kind),
        None => name.strip_prefix("model.").filter(|rest| !rest.is_empty()).map(|_| Kind::Free),
    }
}

/// A value of a key for people: quantities in a fitting unit, names in short.
#[must_use]
pub fn shown(name: &str, value: &str) -> String {
    let Ok(number) = value.parse::<f64>() else {
        return if value.is_empty() { "none".to_owned() } else { value.chars().take(60).collect() };
    };
    let scaled = |units: [(f64, &str); 3]| {
        let (scale, unit) = units.into_iter().find(|(scale, _)| number >= *scale).unwrap_or(units[2]);
        format!("{} {unit}", written(number / scale))
    };
    match kind_of(name).unwrap_or(Kind::Free) {
        Kind::Bytes => scaled([(Bytes::GIB, "GiB"), (1048576.0, "MiB"), (1.0, "B")]),
        Kind::Rate => scaled([(1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")]),
        Kind::Power => scaled([(1e6, "MW"), (1e3, "kW"), (1.0, "W")]),
        Kind::Time => long_time(number),
        Kind::Share => format!("{} %", written(number * 100.0)),
        _ => written(number),
    }
}

/// A key and its value for people.
#[must_use]
pub fn setting(name: &str, value: &str) -> String {
    if value.is_empty() { format!("no {name}") } else { format!("{name} {}", shown(name, value)) }
}

/// The keys whose names are nearest to one that does not exist.
#[must_use]
pub fn nearest(name: &str) -> String {
    let ranked = KEYS.iter().map(|key| (strsim::levenshtein(name, key.name), key.name)).min();
    match ranked {
        Some((distance, name)) if distance <= 4 => format!("did you mean `{name}`?"),
        _ => {
            let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
            format!("keys are {}, and model.KEY for every key of a model file", names.join(", "))
        }
    }
}

/// Sets one key of a point.
///
/// # Errors
/// A value that makes no sense for it.
pub fn apply(draft: &mut Draft, name: &str, value: &Value) -> Result<(), String> {
    match named(name) {
        Some(key) => (key.apply)(draft, value),
        None => {
            let rest = name.strip_prefix("model.").unwrap_or(name);
            draft.model_keys.insert(rest.to_owned(), value.clone());
            Ok(())
        }
    }
}

fn text(field: &mut String, value: &Value) -> Result<(), String> {
    *field = value.to_string();
    Ok(())
}

fn some_text(field: &mut Option<String>, value: &Value) -> Result<(), String> {
    *field = Some(value.to_string());
    Ok(())
}

fn count(field: &mut Option<u64>, value: &Value, most: u64) -> Result<(), String> {
    match value {
        Value::Integer(count) if (1..=most as i64).contains(count) => {
            *field = Some(*count as u64);
            Ok(())
        }
        other => Err(format!("is {other}, expected 1 to {most}")),
    }
}

fn number(field: &mut Option<f64>, value: &Value) -> Result<(), String> {
    *field = Some(positive(value)?);
    Ok(())
}

fn flag(field: &mut bool, value: &Value) -> Result<(), String> {
    *field = *value == Value::Flag(true);
    Ok(())
}

fn parsed<T: std::str::FromStr>(field: &mut T, value: &Value) -> Result<(), String>
where
    T::Err: std::fmt::Display,
{
    *field = value.to_string().parse::<T>().map_err(|error| error.to_string())?;
    Ok(())
}

/// One of the words that a flag takes.
fn choice<T: ValueEnum>(field: &mut Option<T>, value: &Value) -> Result<(), String> {
    let word = value.to_string();
    *field = Some(T::from_str(&word, false).map_err(|_| {
        let words = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let words: Vec<String> = words.map(|word| word.get_name().to_owned()).collect();
        format!("is {word}, expected {}", words.join(" or "))
    })?);
    Ok(())
}

fn edit(draft: &mut Draft, value: &Value, change: Edit) -> Result<(), String> {
    draft.edits.push((change, positive(value)?));
    Ok(())
}

fn positive(value: &Value) -> Result<f64, String> {
    match value.number() {
        Some(number) if number > 0.0 && number <= 1e21 => Ok(number),
        _ => Err(format!("is {value}, expected a number above 0")),
    }
}

/// What collectives reach inside the domain keeps its share of the nominal rate.
fn set_intra_bandwidth(cluster: &mut Cluster, rate: f64) {
    for group in &mut cluster.groups {
        let factor = rate / group.node.intra.bandwidth.get();
        super::hardware::scale_links_inside(group, factor);
    }
}

fn set_memory_bandwidth(cluster: &mut Cluster, rate: f64) {
    for group in &mut cluster.groups {
        let factor = rate / group.gpu.memory_bandwidth.get();
        super::hardware::scale_memory_bandwidth(&mut group.gpu, factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_their_units() {
        for (key, value, text) in [
            ("cluster.inter.bandwidth", "12500000000", "12.5 GB/s"),
            ("cluster.inter.bandwidth", "49999999999.99999", "50 GB/s"),
            ("gpu.memory", "85899345920", "80 GiB"),
            ("cluster.inter.latency", "0.000005", "5.00 us"),
            ("failures.replacement", "21600", "6.00 h"),
            ("gap", "0.01", "1 %"),
            ("cluster.dollars_per_gpu_hour", "0.0004", "0.0004"),
            ("tokens", "1500000000000", "1,500,000,000,000"),
            ("model", "llama-3.1-8b", "llama-3.1-8b"),
            ("fix", "", "none"),
        ] {
            assert_eq!(shown(key, value), text, "{key}");
        }
        assert_eq!(setting("fix", ""), "no fix");
        assert_eq!(setting("gpus", "64"), "gpus 64");
    }
}
