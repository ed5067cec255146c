//! Modules in host memory as Megatron-LM flags, written and read (`docs/user-guide/features/fine_grained_activation_offloading.md`).

use super::Flag;
use crate::launch::flags::FlagSet;
use cost_models::ModelSpec;
use cost_models::modules::{Module, ModuleChoice, ModuleSet};

/// The switch.
pub const SWITCH: &str = "--fine-grained-activation-offloading";
/// Its modules.
pub const MODULES: &str = "--offload-modules";
/// Copies of a module's name under way before the computation waits.
pub const UNDER_WAY: &str = "--fine-grained-offloading-max-inflight-offloads";
/// The share of a stage's modules that are moved.
pub const FRACTION: &str = "--activation-offload-fraction";
/// Bytes that every pipeline rank moves less than the one before, in its first microbatches.
const DELTA: &str = "--delta-offload-bytes-across-pp-ranks";

/// The variable without which Transformer Engine would move weights too.
pub const VARIABLE: (&str, &str) = ("NVTE_CPU_OFFLOAD_V1", "1");

/// The flags of a choice of modules.
pub fn flags(choice: ModuleChoice) -> Vec<Flag> {
    let list = |name, set: ModuleSet| Flag { name, values: set.names().map(str::to_owned).collect() };
    let mut flags = Vec::new();
    if !choice.repeated.is_empty() {
        flags.push(Flag::value("--recompute-granularity", "selective"));
        flags.push(list("--recompute-modules", choice.repeated));
    }
    if !choice.moved.is_empty() {
        flags.extend([Flag::switch(SWITCH), list(MODULES, choice.moved), Flag::value(UNDER_WAY, 1)]);
        if choice.percent < 100 {
            flags.push(Flag::value(FRACTION, f64::from(choice.percent) / 100.0));
        }
    }
    flags
}

/// The modules that flags move and repeat, if they move any: with full recompute none are told apart, those that the model does not
/// have change nothing, and a part of them counts as none.
pub fn read(flags: &FlagSet, model: &ModelSpec) -> Option<ModuleChoice> {
    let selective = match flags.text("--recompute-granularity") {
        None => flags.has("--recompute-activations"),
        Some("selective") => true,
        Some(_) => return None,
    };
    let percent = percent(flags).ok().filter(|_| flags.has(SWITCH))?;
    let named =
        |flag: &str| -> Vec<Module> { flags.words(flag).into_iter().filter_map(Module::named).collect() };
    let mut repeated = named("--recompute-modules");
    if selective && repeated.is_empty() {
        repeated.push(Module::CoreAttn);
    }
    let routed = [Module::MlpNorm, Module::ExpertFc1, Module::MoeAct, Module::Moe, Module::SharedExperts];
    let has = |module: &Module| model.is_moe() || !routed.contains(module);
    let repeated: ModuleSet = repeated
        .into_iter()
        .filter(|module| selective && Module::REPEATABLE.contains(module) && has(module))
        .collect();
    let idle = |module: Module| module == Module::CoreAttn && repeated.has(module);
    let moved: Vec<Module> = named(MODULES)
        .into_iter()
        .filter(|module| Module::MOVABLE.contains(module) && has(module) && !idle(*module))
        .collect();
    let core = moved.contains(&Module::CoreAttn);
    let moved: ModuleSet = moved.into_iter().filter(|module| core || *module != Module::AttnProj).collect();
    (!moved.is_empty()).then_some(ModuleChoice { repeated, moved, percent })
}

/// Per cent of the modules that are moved.
///
/// # Errors
/// The flag that moves a part which no prediction knows.
fn percent(flags: &FlagSet) -> Result<u8, &'static str> {
    if flags.real(DELTA).is_some_and(|bytes| bytes != 0.0) {
        return Err(DELTA);
    }
    let fraction = flags.real(FRACTION).unwrap_or(1.0);
    let percent = (fraction * 100.0).round();
    let whole = (1.0..=100.0).contains(&percent) && percent / 100.0 == fraction;
    if whole { Ok(percent as u8) } else { Err(FRACTION) }
}

/// What is taken of these flags that they do not say.
pub fn assumed(flags: &FlagSet, choice: Option<ModuleChoice>) -> Vec<String> {
    if !flags.has(SWITCH) {
        return Vec::new();
    }
    let mut assumed = Vec::new();
    let (name, value) = VARIABLE;
    if flags.variable(name).is_none() {
        assumed.push(format!("{name}={value} in the environment, which the flags do not show: set it"));
    }
    if idles(flags) {
        assumed.push("core_attn and attn_proj not in host memory: core_attn is recomputed".to_owned());
    }
    match (choice, percent(flags)) {
        (_, Err(flag)) => {
            assumed.push(format!("no activations in host memory: {flag} moves a part that is not predicted"))
        }
        (None, Ok(_)) => {
            assumed.push(format!("no activations in host memory: nothing of {MODULES} is predicted"));
        }
        (Some(_), Ok(_)) if flags.text(UNDER_WAY) != Some("1") => {
            assumed.push(format!("{UNDER_WAY} 1: without it slow copies pile up in GPU memory"));
        }
        _ => {}
    }
    assumed
}

/// Whether the core attention is to be moved and is repeated, so that nothing of it is kept.
fn idles(flags: &FlagSet) -> bool {
    let selective = match flags.text("--recompute-granularity") {
        None => flags.has("--recompute-activations"),
        Some(granularity) => granularity == "selective",
    };
    let repeated = flags.words("--recompute-modules");
    let core = Module::CoreAttn.name();
    selective && (repeated.is_empty() || repeated.contains(&core)) && flags.words(MODULES).contains(&core)
}
