//! What is minimised.

use cluster_profiles::{Cluster, Seconds};
use serde::{Deserialize, Serialize};

/// What a plan is to be best at.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The shortest step on all GPUs.
    #[default]
    StepTime,
    /// The most tokens for a dollar, on all GPUs or fewer nodes.
    TokensPerDollar,
    /// The fewest GPUs whose step takes at most this long.
    Gpus {
        /// The longest step.
        within: Seconds,
    },
    /// The least energy for a step, on all GPUs or fewer nodes.
    Energy,
}

/// Power of a GPU that waits, relative to its board power. Assumed: between the idle draw (0.15) and that of a GPU that
/// spins on communication (0.6).
pub const WAITING_POWER: f64 = 0.4;

impl Objective {
    /// The name on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::StepTime => "step-time",
            Self::TokensPerDollar => "tokens-per-dollar",
            Self::Gpus { .. } => "gpus",
            Self::Energy => "energy",
        }
    }

    /// The objective called `name`; `within` is the longest step for `gpus`.
    ///
    /// # Errors
    /// An unknown name, or a missing or needless `within`.
    pub fn parse(name: &str, within: Option<Seconds>) -> Result<Self, String> {
        match (name, within) {
            ("step-time", None) => Ok(Self::StepTime),
            ("tokens-per-dollar", None) => Ok(Self::TokensPerDollar),
            ("energy", None) => Ok(Self::Energy),
            ("gpus", Some(within)) if within.get() > 0.0 => Ok(Self::Gpus { within }),
            ("gpus", _) => Err("objective gpus needs --within, the longest step, such as 4s".to_owned()),
            ("step-time" | "tokens-per-dollar" | "energy", Some(_)) => {
                Err(format!("--within belongs to objective gpus, not to {name}"))
            }
            _ => Err(format!(
                "unknown objective `{name}`: use step-time, tokens-per-dollar, gpus (with --within) or energy"
            )),
        }
    }

    /// Whether fewer GPUs than there are may be better.
    #[must_use]
    pub const fn may_leave_gpus_idle(&self) -> bool {
        !matches!(self, Self::StepTime)
    }

    /// Why the objective means nothing on `cluster`; none if it does.
    #[must_use]
    pub fn fault(&self, cluster: &Cluster) -> Option<String> {
        match self {
            Self::TokensPerDollar => unpriced(cluster),
            _ => None,
        }
    }

    /// What a plan that is as fast has more of.
    #[must_use]
    pub const fn resource(&self) -> &'static str {
        match self {
            Self::StepTime => "time",
            Self::TokensPerDollar => "dollars",
            Self::Gpus { .. } => "GPUs",
            Self::Energy => "energy",
        }
    }

    /// The unit of what a step takes, where that is neither time nor a number of GPUs.
    #[must_use]
    pub const fn unit(&self) -> Option<&'static str> {
        match self {
            Self::StepTime | Self::Gpus { .. } => None,
            Self::TokensPerDollar => Some("dollars"),
            Self::Energy => Some("joules"),
        }
    }

    /// What a step of `step` costs on `cluster`, of which GPUs work for `busy`: seconds, dollars, GPUs (of as many, the
    /// shorter step is less) or joules.
    #[must_use]
    pub fn value(&self, cluster: &Cluster, step: Seconds, busy: Seconds) -> f64 {
        match self {
            Self::StepTime => step.get(),
            Self::TokensPerDollar => step.get() / 3600.0 * dollars_per_hour(cluster),
            Self::Gpus { within } if step > *within => f64::INFINITY,
            Self::Gpus { within } => cluster.gpu_count() as f64 + 0.5 * (step / *within),
            Self::Energy => watts(cluster) * (busy.get() + WAITING_POWER * (step.get() - busy.get())),
        }
    }

    /// What no step of at least `step` costs less than.
    #[must_use]
    pub fn bound(&self, cluster: &Cluster, step: Seconds, busy: Seconds) -> f64 {
        self.value(cluster, step.max(busy), busy)
    }
}

/// The fields of a cluster that prices need and that are missing; none if none is.
#[must_use]
pub fn unpriced(cluster: &Cluster) -> Option<String> {
    let missing = cluster.groups.iter().enumerate().filter(|(_, group)| group.dollars_per_gpu_hour.is_none());
    let fields: Vec<String> =
        missing.map(|(index, _)| format!("groups[{index}].dollars_per_gpu_hour")).collect();
    let text = || {
        format!(
            "cluster {} has no price: {} is missing; set it in a profile of your own, such as \
             `dollars_per_gpu_hour = 2.5`",
            cluster.name,
            fields.join(", ")
        )
    };
    (!fields.is_empty()).then(text)
}

/// Price of all GPUs for an hour, of a cluster with prices.
fn dollars_per_hour(cluster: &Cluster) -> f64 {
    let groups = cluster.groups.iter();
    groups
        .map(|group| {
            f64::from(group.nodes) * f64::from(group.node.gpus) * group.dollars_per_gpu_hour.unwrap_or(0.0)
        })
        .sum()
}

fn watts(cluster: &Cluster) -> f64 {
    let groups = cluster.groups.iter();
    groups.map(|group| f64::from(group.nodes) * f64::from(group.node.gpus) * group.gpu.power_watts).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_belongs_to_gpus() {
        assert_eq!(
            Objective::parse("gpus", Some(Seconds(4.0))),
            Ok(Objective::Gpus { within: Seconds(4.0) })
        );
        assert!(Objective::parse("gpus", None).is_err());
        assert!(Objective::parse("energy", Some(Seconds(4.0))).is_err());
        assert!(Objective::parse("speed", None).is_err());
    }

    #[test]
    fn waiting_costs_less_energy_than_working() -> Result<(), cluster_profiles::ProfileError> {
        let cluster = cluster_profiles::catalog::cluster("dgx-h100")?;
        let joules = |busy| Objective::Energy.value(&cluster, Seconds(2.0), Seconds(busy));
        assert!(joules(1.0) < joules(2.0));
        assert_eq!(joules(2.0), 64.0 * 700.0 * 2.0);
        Ok(())
    }
}
