//! What the launchers' own parsers say of configurations, against what `check` says.
//!
//! `tests/data/launch/verdicts.jsonl` records the verdicts of Megatron-LM, torchtitan, DeepSpeed and Accelerate on what
//! `export` writes for random plans that fit, and on the same with one or two changes. `make validators` records anew.

mod changes;
#[path = "../launching/mod.rs"]
mod launching;
mod samples;

use meshwright::check::check_given;
use meshwright::launch::{self, Question, document};
use meshwright::plan::Plan;
use samples::{DEEPSPEED, FSDP, Kind, MEGATRON, Random, Recipe};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Rules that are stricter than the parsers on purpose: they break a run later, or silently.
const STRICTER: &[(&str, &str, &str)] = &[
    ("megatron", "S8", "the optimizer's own configuration refuses it when training starts"),
    (
        "megatron",
        "unreadable",
        "a pattern with another number of entries than layers fails when the model is built",
    ),
    ("megatron", "P2", "with chunks the parser does not divide the layers: building the model does"),
    ("megatron", "P6", "the schedule refuses such groups when it starts"),
    ("megatron", "M7c", "a list of another length than the layers fails when they are built"),
    ("megatron", "M22", "heads that their groups do not divide fail when the model is built"),
    ("accelerate", "A5", "`accelerate launch` refuses it, the constructor alone does not"),
    ("torchtitan", "T5", "the schedule refuses its stages when it is made"),
    ("torchtitan", "T2", "0.3.0 makes a mesh of size 0; later releases refuse it"),
    ("torchtitan", "M9", "experts that do not divide fail when they are sharded"),
    ("torchtitan", "S12", "the mesh of the experts cannot be made"),
    ("torchtitan", "T3", "sequence parallelism fails in the first step"),
    ("torchtitan", "M7", "context parallelism fails in the first step"),
];

/// The launcher's own files: what its parser reads.
fn files(plan: &Plan, launcher: &str) -> Option<BTreeMap<&'static str, String>> {
    let files = launch::folder(plan, launch::named(launcher)?, &[]).ok()?;
    let read = [
        "megatron.args",
        "overrides.args",
        "meshwright_plan.py",
        "ds_config.json",
        "pipeline.py",
        "accelerate.yaml",
    ];
    Some(
        files
            .into_iter()
            .filter_map(|file| Some((*read.iter().find(|name| **name == file.name)?, file.text)))
            .collect(),
    )
}

/// The file that `check` reads as well.
fn main_file(launcher: &str) -> &'static str {
    match launcher {
        "megatron" => "megatron.args",
        "torchtitan" => "overrides.args",
        "deepspeed" => "ds_config.json",
        _ => "accelerate.yaml",
    }
}

fn variables(plan: &Plan, launcher: &str) -> Map<String, Value> {
    if launcher != "megatron" {
        return Map::new();
    }
    let set = launch::megatron::environment(plan)
        .into_iter()
        .filter(|(name, _)| *name == "CUDA_DEVICE_MAX_CONNECTIONS");
    set.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// The configuration with a patch laid over it: flags line by line, or a tree (JSON, which is YAML as well).
fn patched(name: &str, text: &str, patch: &Value) -> String {
    if name.ends_with(".args") {
        let mut flags: Map<String, Value> = text
            .lines()
            .map(|line| line.split_once(' ').unwrap_or((line, "")))
            .map(|(flag, value)| (flag.to_owned(), value.into()))
            .collect();
        for (flag, value) in patch.as_object().unwrap() {
            if value.is_null() {
                flags.shift_remove(flag);
            } else {
                let words = value.as_str().unwrap();
                let plain = flag != "--pipeline-model-parallel-layout";
                let quoted = if plain { words.to_owned() } else { launch::shell::quote(words) };
                flags.insert(flag.clone(), quoted.into());
            }
        }
        // The choice of activation checkpointing is a word of its own, and the last.
        let (last, flags): (Vec<_>, Vec<_>) = flags.into_iter().partition(|(flag, _)| !flag.starts_with('-'));
        let line = |(flag, value): (String, Value)| {
            format!("{flag} {}", value.as_str().unwrap()).trim_end().to_owned() + "\n"
        };
        return flags.into_iter().chain(last).map(line).collect();
    }
    let document::Document::Tree(mut tree) = document::parse(name, text).unwrap() else {
        panic!("{name} is a tree")
    };
    changes::merge(&mut tree, patch);
    drop_nulls(&mut tree);
    serde_json::to_string_pretty(&tree).unwrap()
}

fn drop_nulls(tree: &mut Value) {
    if let Value::Object(map) = tree {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}

/// Ids of the rules that `check` finds broken; `unreadable` where a value makes no sense.
fn ours(
    plan: &Plan,
    launcher: &str,
    text: &str,
    world_size: u64,
    variables: &Map<String, Value>,
) -> Vec<String> {
    let launcher = launch::named(launcher).unwrap();
    let set =
        variables.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect();
    let flags =
        launcher.flags(&document::parse(main_file(launcher.name()), text).unwrap()).with_variables(set);
    let mut cluster = plan.inputs.cluster.clone();
    let group = &mut cluster.groups[0];
    let gpus = (1..=group.node.gpus).rev().find(|&gpus| world_size.is_multiple_of(gpus.into())).unwrap();
    (group.node.gpus, group.node.domain, group.nodes) = (gpus, group.node.domain.min(gpus), 1);
    let cluster = cluster.resized(world_size).unwrap();
    let question = Question {
        flags: &flags,
        world_size,
        cluster: &cluster,
        model: (launcher.name() != "megatron").then_some(&plan.inputs.model),
        seq_len: Some(plan.inputs.workload.seq_len),
        global_batch: None,
        micro_batch: Some(plan.parallel.micro_batch_size),
    };
    match launcher.read(&question).unwrap() {
        Ok(given) => {
            let check = check_given(&given, &cluster, cluster.gpu().memory, None);
            check.broken_rules.into_iter().map(|rule| rule.id).collect()
        }
        Err(error) => {
            assert!(error.missing.is_empty() && error.not_planned.is_none(), "{error:?}\n{text}");
            vec!["unreadable".to_owned()]
        }
    }
}

fn digest(files: &BTreeMap<&str, String>) -> String {
    let mut hash = Sha256::new();
    files.iter().for_each(|(name, text)| hash.update(format!("{name}\n{text}\n")));
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn recorded() -> Vec<Value> {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/launch/verdicts.jsonl"))
            .unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text<'a>(line: &'a Value, key: &str) -> &'a str {
    line[key].as_str().unwrap_or_else(|| panic!("{key} of {line}"))
}

/// What the parsers saw is what `export` writes, they accepted all of it, and so does `check`.
#[test]
fn exported_configurations_are_accepted() {
    let (mut count, mut faults) = (BTreeMap::<String, u32>::new(), Vec::new());
    for line in recorded().iter().filter(|line| line["recipe"].is_object()) {
        let (id, launcher) = (text(line, "id"), text(line, "launcher"));
        if !line["refused"].is_null() {
            faults.push(format!("{id}: {launcher} refuses it: {}", line["refused"]));
        }
        let recipe: Recipe = serde_json::from_value(line["recipe"].clone()).unwrap();
        let Some(plan) = recipe.plan() else {
            faults.push(format!(
                "{id}: the rules of {} refuse a layout that {launcher} accepts",
                recipe.runtime
            ));
            continue;
        };
        let Some(files) = files(&plan, launcher) else {
            faults.push(format!("{id}: no longer exported to {launcher}"));
            continue;
        };
        if digest(&files) != text(line, "digest") {
            faults.push(format!(
                "{id}: {launcher}'s files are not those its parser saw; run `make validators`"
            ));
        }
        let world_size = plan.parallel.world_size();
        let text = files.get(main_file(launcher));
        let broken = text
            .map(|text| ours(&plan, launcher, text, world_size, &variables(&plan, launcher)))
            .unwrap_or_default();
        if !broken.is_empty() {
            faults.push(format!("{id}: `check` finds {broken:?} in what {launcher} accepts"));
        }
        *count.entry(launcher.to_owned()).or_default() += 1;
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
    // Few of the drawn plans keep the whole sequence on tensor-parallel ranks, as Accelerate does.
    for (launcher, least) in [("megatron", 100), ("torchtitan", 80), ("deepspeed", 40), ("accelerate", 5)] {
        assert!(count[launcher] >= least, "{count:?}");
    }
}

/// `check` and the parsers agree on changed configurations, except where a rule is stricter on purpose.
#[test]
fn broken_configurations_are_refused_alike() {
    let lines = recorded();
    let plans: BTreeMap<&str, Plan> = lines
        .iter()
        .filter(|line| line["recipe"].is_object())
        .filter_map(|line| {
            Some((text(line, "id"), serde_json::from_value::<Recipe>(line["recipe"].clone()).ok()?.plan()?))
        })
        .collect();
    let (mut faults, mut alike, mut stricter) = (Vec::new(), 0, BTreeMap::<String, u32>::new());
    for line in lines.iter().filter(|line| line["change"].is_object()) {
        let (id, launcher) = (text(line, "id"), text(line, "launcher"));
        let Some(plan) = plans.get(text(line, "of")) else { continue };
        let files = files(plan, launcher).unwrap();
        let changed = patched(main_file(launcher), &files[main_file(launcher)], &line["change"]);
        let mut set = variables(plan, launcher);
        set.extend(line["variables"].as_object().cloned().unwrap_or_default());
        // The parsers' environment is whole: what it lacks is not set, which reads as 0.
        set.entry("NVTE_CPU_OFFLOAD_V1").or_insert_with(|| "0".into());
        let world_size = line["world_size"].as_u64().unwrap_or(plan.parallel.world_size());
        let broken = ours(plan, launcher, &changed, world_size, &set);
        let on_purpose = |rule: &String| STRICTER.iter().any(|(name, id, _)| *name == launcher && id == rule);
        let told = format!("{id} {launcher} on {world_size} GPUs, {}", line["change"]);
        match (line["refused"].as_str(), broken.is_empty()) {
            (Some(why), true) => faults.push(format!("{told}: refused, `check` accepts it: {why}")),
            (None, false) if broken.iter().all(on_purpose) => {
                broken
                    .into_iter()
                    .for_each(|rule| *stricter.entry(format!("{launcher} {rule}")).or_default() += 1);
            }
            (None, false) => faults.push(format!("{told}: accepted, `check` finds {broken:?}")),
            _ => alike += 1,
        }
    }
    println!("{alike} alike, stricter on purpose: {stricter:?}");
    assert!(faults.is_empty(), "{} faults, {alike} alike\n{}", faults.len(), faults.join("\n"));
    assert!(alike >= 250, "{alike}");
}

/// Draws 300 plans and 300 changes and writes them to the file that SAMPLES names, for `make validators`.
#[test]
#[ignore = "SAMPLES=FILE cargo test --test launch_verdicts -- --ignored write_samples"]
fn write_samples() {
    let path = std::env::var("SAMPLES").expect("SAMPLES names a file");
    let mut random = Random::new(20_260_822);
    let (mut lines, mut drawn) = (Vec::new(), Vec::<(String, Plan, Vec<&str>)>::new());
    let kinds: [(&Kind, u32); 3] = [(&MEGATRON, 150), (&FSDP, 100), (&DEEPSPEED, 50)];
    for (kind, count) in kinds {
        for _ in 0..count {
            let id = format!("p{:03}", drawn.len());
            let (recipe, plan) = kind.draw(&mut random);
            let mut launchers = Vec::new();
            for launcher in kind.launchers {
                let Some(files) = files(&plan, launcher) else { continue };
                let record =
                    json!({ "id": id, "launcher": launcher, "recipe": recipe, "digest": digest(&files) });
                lines.push(
                    json!({ "record": record, "world_size": plan.parallel.world_size(), "files": files,
                    "variables": variables(&plan, launcher) }),
                );
                if files.contains_key(main_file(launcher)) {
                    launchers.push(*launcher);
                }
            }
            drawn.push((id, plan, launchers));
        }
    }
    let changeable: Vec<_> = drawn.iter().filter(|(.., launchers)| !launchers.is_empty()).collect();
    for number in 0..300 {
        let (id, plan, launchers) = &changeable[random.below(changeable.len() as u64) as usize];
        let launcher = random.pick(launchers);
        let change = changes::draw(&mut random, launcher, plan);
        let mut files = files(plan, launcher).unwrap();
        let changed = patched(main_file(launcher), &files[main_file(launcher)], &change.patch);
        files.retain(|name, _| *name != "meshwright_plan.py");
        files.insert(main_file(launcher), changed);
        let mut record =
            json!({ "id": format!("b{number:03}"), "of": id, "launcher": launcher, "change": change.patch });
        if let Some(world_size) = change.world_size {
            record["world_size"] = world_size.into();
        }
        let mut set = variables(plan, launcher);
        if !change.variables.is_empty() {
            record["variables"] = change.variables.clone().into();
            set.extend(change.variables);
        }
        let world_size = change.world_size.unwrap_or(plan.parallel.world_size());
        lines.push(json!({ "record": record, "world_size": world_size, "files": files, "variables": set }));
    }
    let text: String = lines.iter().map(|line| line.to_string() + "\n").collect();
    std::fs::write(path, text).unwrap();
}
