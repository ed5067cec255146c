//! Modules of a block of which each may be kept, repeated or moved to the host by itself.
//!
//! Megatron-core's `--recompute-modules` and `--offload-modules`, chosen together and for all layers alike
//! (`megatron/core/transformer/transformer_config.py`, `megatron/core/pipeline_parallel/fine_grained_activation_offload.py`). A module
//! that is moved copies what it saves for its backward out after its forward, and has it back before.

use std::fmt;
use std::str::FromStr;

/// A module, by the name that Megatron-core gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Module {
    /// The norm in front of the attention, where it is a module of its own (latent attention).
    AttnNorm,
    /// The projections to queries, keys and values, with the norm that is fused with them.
    QkvLinear,
    /// The core attention.
    CoreAttn,
    /// The projection after it.
    AttnProj,
    /// The norm in front of the channel mixer, where it is a module of its own (routed experts).
    MlpNorm,
    /// The experts' first product.
    ExpertFc1,
    /// The experts' activation.
    MoeAct,
    /// Both norms, where they are modules of their own.
    Layernorm,
    /// The up projections of latent attention.
    MlaUpProj,
    /// The whole dense MLP.
    Mlp,
    /// The whole MoE layer.
    Moe,
    /// The shared experts.
    SharedExperts,
}

impl Module {
    /// Every module, in the order in which a set names them.
    pub const ALL: [Self; 12] = [
        Self::AttnNorm,
        Self::QkvLinear,
        Self::CoreAttn,
        Self::AttnProj,
        Self::MlpNorm,
        Self::ExpertFc1,
        Self::MoeAct,
        Self::Layernorm,
        Self::MlaUpProj,
        Self::Mlp,
        Self::Moe,
        Self::SharedExperts,
    ];
    /// Those that can wait in host memory.
    pub const MOVABLE: [Self; 7] = [
        Self::AttnNorm,
        Self::QkvLinear,
        Self::CoreAttn,
        Self::AttnProj,
        Self::MlpNorm,
        Self::ExpertFc1,
        Self::MoeAct,
    ];
    /// Those that can be repeated.
    pub const REPEATABLE: [Self; 7] = [
        Self::CoreAttn,
        Self::MoeAct,
        Self::Layernorm,
        Self::MlaUpProj,
        Self::Mlp,
        Self::Moe,
        Self::SharedExperts,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttnNorm => "attn_norm",
            Self::QkvLinear => "qkv_linear",
            Self::CoreAttn => "core_attn",
            Self::AttnProj => "attn_proj",
            Self::MlpNorm => "mlp_norm",
            Self::ExpertFc1 => "expert_fc1",
            Self::MoeAct => "moe_act",
            Self::Layernorm => "layernorm",
            Self::MlaUpProj => "mla_up_proj",
            Self::Mlp => "mlp",
            Self::Moe => "moe",
            Self::SharedExperts => "shared_experts",
        }
    }

    /// The module of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|module| module.name() == name)
    }
}

/// A set of modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ModuleSet(u16);

impl ModuleSet {
    /// No module.
    pub const EMPTY: Self = Self(0);

    /// Whether the set has the module.
    #[must_use]
    pub const fn has(self, module: Module) -> bool {
        self.0 & (1 << module as u16) != 0
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The modules in order.
    pub fn iter(self) -> impl Iterator<Item = Module> {
        Module::ALL.into_iter().filter(move |module| self.has(*module))
    }

    /// The names in order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.iter().map(Module::name)
    }
}

impl FromIterator<Module> for ModuleSet {
    fn from_iter<I: IntoIterator<Item = Module>>(modules: I) -> Self {
        Self(modules.into_iter().fold(0, |set, module| set | 1 << module as u16))
    }
}

/// What is repeated and what is moved; all else is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleChoice {
    /// Modules whose forward is repeated before their backward.
    pub repeated: ModuleSet,
    /// Modules whose saved tensors wait in host memory.
    pub moved: ModuleSet,
    /// Per cent of the moved modules of every stage that are, those of its first layers: 1 to 100.
    pub percent: u8,
}

impl Default for ModuleChoice {
    /// Keeps all.
    fn default() -> Self {
        Self { repeated: ModuleSet::EMPTY, moved: ModuleSet::EMPTY, percent: 100 }
    }
}

impl ModuleChoice {
    /// How many of so many modules of a stage are moved (Megatron-core's `activation_offload_fraction`, which rounds what stays down).
    #[must_use]
    pub fn moved_of(self, modules: u32) -> u32 {
        let stay = f64::from(modules) * (1.0 - f64::from(self.percent) / 100.0);
        modules - (stay as u32).min(modules)
    }
}

impl fmt::Display for ModuleChoice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let parts = [("selective", self.repeated), ("offload", self.moved)];
        let named = parts.into_iter().filter(|(_, set)| !set.is_empty());
        let mut texts: Vec<String> = named
            .map(|(word, set)| format!("{word}:{}", set.names().collect::<Vec<_>>().join("+")))
            .collect();
        if let Some(last) = texts.last_mut().filter(|_| self.percent < 100 && !self.moved.is_empty()) {
            last.push_str(&format!("@{}%", self.percent));
        }
        f.write_str(&texts.join("/"))
    }
}

impl FromStr for ModuleChoice {
    type Err = String;

    /// Reads `selective:mlp/offload:core_attn+attn_proj`, or one part of it, with `@50%` behind what is moved for half of it.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut choice = Self::default();
        let (text, percent) = text.split_once('@').map_or((text, None), |(text, share)| (text, Some(share)));
        if let Some(share) = percent {
            let number = share.strip_suffix('%').and_then(|number| number.parse().ok());
            choice.percent = number
                .filter(|percent| (1..=100).contains(percent))
                .ok_or_else(|| format!("`{share}` is no share of 1% to 100%"))?;
        }
        for part in text.split('/') {
            let (set, able, names) = match part.split_once(':') {
                Some(("selective", names)) => (&mut choice.repeated, Module::REPEATABLE, names),
                Some(("offload", names)) => (&mut choice.moved, Module::MOVABLE, names),
                _ => return Err(format!("`{part}` is neither selective:MODULES nor offload:MODULES")),
            };
            if !set.is_empty() {
                return Err(format!("`{text}` has the same word twice"));
            }
            let module = |name: &str| {
                let known = Module::named(name).filter(|module| able.contains(module));
                let names = able.map(Module::name).join(", ");
                known.ok_or_else(|| format!("unknown module `{name}`: use {names}"))
            };
            *set = names.split('+').map(module).collect::<Result<ModuleSet, String>>()?;
        }
        if choice.percent < 100 && choice.moved.is_empty() {
            return Err(format!("`{text}` moves nothing that a share could be of"));
        }
        Ok(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_reads_what_it_writes() {
        let sets = |modules: &[Module]| -> Vec<ModuleSet> {
            (0..1usize << modules.len())
                .map(|bits| {
                    let chosen = modules.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
                    chosen.map(|(_, module)| *module).collect()
                })
                .collect()
        };
        let mut choices = 0;
        for repeated in sets(&Module::REPEATABLE) {
            for moved in sets(&Module::MOVABLE) {
                let percent = if moved.is_empty() { 100 } else { 1 + (choices % 100) as u8 };
                let choice = ModuleChoice { repeated, moved, percent };
                if choice != ModuleChoice::default() {
                    assert_eq!(choice.to_string().parse(), Ok(choice));
                    choices += 1;
                }
            }
        }
        assert_eq!(choices, (1 << 14) - 1);
        for wrong in [
            "",
            "offload:",
            "offload:mlp",
            "selective:attn_norm",
            "offload:core_attn/offload:attn_proj",
            "selective:mlp@50%",
            "offload:core_attn@0%",
            "offload:core_attn@half",
        ] {
            assert!(wrong.parse::<ModuleChoice>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_stays_is_rounded_down() {
        let moved = |percent, modules| ModuleChoice { percent, ..ModuleChoice::default() }.moved_of(modules);
        assert_eq!([moved(50, 5), moved(50, 4), moved(100, 7), moved(1, 3), moved(34, 3)], [3, 2, 7, 1, 2]);
        // 10 x (1 - 0.9) is a little less than one.
        assert_eq!(moved(90, 10), 10);
    }
}
