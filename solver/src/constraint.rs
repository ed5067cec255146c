//! What the caller fixes and forbids: `tp=8,pp=4,schedule=1f1b`, `ep>8`, `cross-node-tp`.

use crate::term::{Field, Term, Test};
use cluster_profiles::Cluster;
use cost_models::ParallelConfig;
use cost_models::rules::Axis;
use thiserror::Error;

/// A term, and whether layouts must or must not satisfy it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    /// The condition.
    pub term: Term,
    /// True for a fixed term, false for a forbidden one.
    pub wanted: bool,
    /// As it was written.
    pub text: String,
}

/// All that was fixed and forbidden.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Constraints(Vec<Constraint>);

/// Constraints that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .faults.join("; "))]
pub struct ConstraintError {
    /// Every fault, each naming the text it stands in.
    pub faults: Vec<String>,
}

impl ConstraintError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        format!(
            "write terms such as tp=8, pp=2|4, ep>8, schedule=1f1b, recompute=none, rank_order=tp-cp-ep-pp-dp or cross-node-tp, separated by commas; axes are {}",
            Field::names().join(", ")
        )
    }
}

impl Constraint {
    /// Whether a layout keeps it.
    #[must_use]
    pub fn allows(&self, parallel: &ParallelConfig, cluster: &Cluster) -> bool {
        if let Term::Number(Field::Axis(Axis::MicroBatch), test) = &self.term {
            return parallel.micro_batch_sizes().all(|size| test.holds(size) == self.wanted);
        }
        self.term.holds(parallel, cluster) == self.wanted
    }

    /// The constraint as the caller would write it.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("--{} {}", if self.wanted { "fix" } else { "forbid" }, self.text)
    }

    /// Whether a number on the axis keeps it; true if it is about something else.
    fn allows_number(&self, field: Field, value: u64) -> bool {
        match &self.term {
            Term::Number(own, test) if *own == field => test.holds(value) == self.wanted,
            _ => true,
        }
    }

    fn is_about(&self, field: Field) -> bool {
        matches!(&self.term, Term::Number(own, _) | Term::Name(own, _) if *own == field)
    }
}

impl Constraints {
    /// Reads what was fixed and forbidden; every string may hold several terms, separated by commas.
    ///
    /// # Errors
    /// Every term that cannot be read.
    pub fn parse<S: AsRef<str>>(fix: &[S], forbid: &[S]) -> Result<Self, ConstraintError> {
        let (mut terms, mut faults) = (Vec::new(), Vec::new());
        for (texts, wanted) in [(fix, true), (forbid, false)] {
            for text in texts.iter().flat_map(|text| text.as_ref().split(',')).map(str::trim) {
                match Term::parse(text) {
                    Ok(term) => terms.push(Constraint { term, wanted, text: text.to_owned() }),
                    Err(fault) => faults.push(fault),
                }
            }
        }
        if faults.is_empty() { Ok(Self(terms)) } else { Err(ConstraintError { faults }) }
    }

    /// Adds a constraint.
    #[must_use]
    pub fn and(mut self, constraint: Constraint) -> Self {
        self.0.push(constraint);
        self
    }

    /// All but one.
    #[must_use]
    pub fn without(&self, index: usize) -> Self {
        let others = self.0.iter().enumerate().filter(|(own, _)| *own != index);
        Self(others.map(|(_, constraint)| constraint.clone()).collect())
    }

    /// The constraints, fixed ones first.
    #[must_use]
    pub fn as_slice(&self) -> &[Constraint] {
        &self.0
    }

    /// The first constraint a layout breaks.
    #[must_use]
    pub fn first_broken(&self, parallel: &ParallelConfig, cluster: &Cluster) -> Option<&Constraint> {
        self.0.iter().find(|constraint| !constraint.allows(parallel, cluster))
    }

    /// Whether a layout with this number on this axis can keep all constraints on the axis alone.
    #[must_use]
    pub fn allows_number(&self, field: Field, value: u64) -> bool {
        self.0.iter().all(|constraint| constraint.allows_number(field, value))
    }

    /// Whether a layout with this name on this axis can keep all constraints on the axis alone.
    #[must_use]
    pub fn allows_name(&self, field: Field, name: &str) -> bool {
        self.0.iter().all(|constraint| match &constraint.term {
            Term::Name(own, names) if *own == field => {
                names.iter().any(|own| own == name) == constraint.wanted
            }
            _ => true,
        })
    }

    /// The names a fixed term asks for on this axis, if any.
    #[must_use]
    pub fn fixed_names(&self, field: Field) -> Vec<&str> {
        let fixed = self.0.iter().filter(|constraint| constraint.wanted);
        let names = fixed.filter_map(|constraint| match &constraint.term {
            Term::Name(own, names) if *own == field => Some(names),
            _ => None,
        });
        names.flatten().map(String::as_str).collect()
    }

    /// The numbers that terms on this axis name: beyond the usual values, these are worth trying.
    #[must_use]
    pub fn named_numbers(&self, field: Field) -> Vec<u64> {
        let tests = self.0.iter().filter_map(|constraint| match &constraint.term {
            Term::Number(own, test) if *own == field => Some(test),
            _ => None,
        });
        tests.flat_map(|test| test.numbers().iter().copied()).collect()
    }

    /// Axes that are left without a value, each with the constraints that exclude each other.
    fn empty_axes(&self) -> Vec<String> {
        let numbers = Field::NUMBERS.iter().filter(|&&field| {
            self.0.iter().any(|constraint| constraint.is_about(field)) && !self.has_number(field)
        });
        let names = Field::NAMES.iter().filter(|&&field| {
            let fixed = self.fixed_names(field);
            !fixed.is_empty() && !fixed.iter().any(|name| self.allows_name(field, name))
        });
        numbers
            .chain(names)
            .map(|&field| self.contradiction(field.name(), |constraint| constraint.is_about(field)))
            .collect()
    }

    fn has_number(&self, field: Field) -> bool {
        let named = self.named_numbers(field);
        let near = named.iter().flat_map(|&value| [value.saturating_sub(1), value, value.saturating_add(1)]);
        near.chain([field.smallest(), 1 << 40])
            .filter(|&value| value >= field.smallest())
            .any(|value| self.allows_number(field, value))
    }

    fn contradiction(&self, what: &str, involved: impl Fn(&Constraint) -> bool) -> String {
        let texts: Vec<String> =
            self.0.iter().filter(|constraint| involved(constraint)).map(Constraint::describe).collect();
        format!("{} leave no value for {what}", texts.join(" and "))
    }

    /// Constraints that exclude each other: those on one axis that leave it no value, and on this cluster an axis that may
    /// not leave a node, fixed to more than fit.
    #[must_use]
    pub fn contradictions(&self, cluster: &Cluster) -> Vec<String> {
        let empty = self.empty_axes();
        if !empty.is_empty() {
            return empty;
        }
        let domain = u64::from(cluster.main().node.domain);
        let crossing = self.0.iter().filter_map(|constraint| match constraint.term {
            Term::CrossNode(field) if !constraint.wanted => Some(field),
            _ => None,
        });
        crossing
            .filter(|&field| !(1..=domain).any(|value| self.allows_number(field, value)))
            .map(|field| {
                let involved = |constraint: &Constraint| {
                    constraint.is_about(field)
                        || matches!(constraint.term, Term::CrossNode(own) if own == field)
                };
                let name = format!("{} on nodes of {domain} GPUs", field.name());
                self.contradiction(&name, involved)
            })
            .collect()
    }
}

/// A constraint that keeps one axis at one value.
#[must_use]
pub fn fixed_number(field: Field, value: u64) -> Constraint {
    Constraint {
        term: Term::Number(field, Test::OneOf(vec![value])),
        wanted: true,
        text: format!("{}={value}", field.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Result<Cluster, cluster_profiles::ProfileError> {
        cluster_profiles::catalog::cluster("dgx-h100")?.resized(64)
    }

    fn allowed(
        fix: &[&str],
        forbid: &[&str],
        parallel: &ParallelConfig,
    ) -> Result<bool, Box<dyn std::error::Error>> {
        Ok(Constraints::parse(fix, forbid)?.first_broken(parallel, &cluster()?).is_none())
    }

    #[test]
    fn fixed_terms_must_hold_and_forbidden_ones_must_not() -> Result<(), Box<dyn std::error::Error>> {
        let parallel = ParallelConfig { tp: 16, pp: 4, ep: 4, ..ParallelConfig::default() };
        assert!(allowed(&["tp=16,pp=2|4", "schedule=1f1b"], &["ep>8"], &parallel)?);
        assert!(!allowed(&["tp=16,pp=2"], &[], &parallel)?);
        assert!(!allowed(&[], &["cross-node-tp"], &parallel)?);
        assert!(!allowed(&[], &["ep>=4"], &parallel)?);
        assert!(!allowed(&["recompute=full"], &[], &parallel)?);
        assert!(!allowed(&["sp=true"], &[], &parallel)?);
        assert!(allowed(&["dp<2", "mbs!=2"], &[], &parallel)?);
        Ok(())
    }

    #[test]
    fn every_fault_is_named_at_once() {
        let Err(error) = Constraints::parse(&["tq=8,tp=x", "schedule>1f1b"], &["pp=0", ""]) else {
            unreachable!("faults were accepted")
        };
        assert_eq!(error.faults.len(), 5, "{error}");
        for text in ["tq", "tp=x", "schedule>1f1b", "pp=0"] {
            assert!(error.to_string().contains(text), "{text} is missing in {error}");
        }
    }

    #[test]
    fn contradictions_name_both_sides() -> Result<(), Box<dyn std::error::Error>> {
        for (fix, forbid) in
            [(&["tp=8,tp=4"][..], &[][..]), (&["pp=4"], &["pp>=4"]), (&["schedule=1f1b"], &["schedule=1f1b"])]
        {
            let found = Constraints::parse(fix, forbid)?.contradictions(&cluster()?);
            assert_eq!(found.len(), 1, "{fix:?} {forbid:?}");
            assert!(
                found[0].contains("leave no value")
                    && found[0].contains(fix[0].split(',').next().unwrap_or(""))
            );
        }
        let constraints = Constraints::parse(&["tp=16"], &["cross-node-tp"])?;
        let found = constraints.contradictions(&cluster()?);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("--fix tp=16") && found[0].contains("--forbid cross-node-tp"), "{found:?}");
        assert!(Constraints::parse(&["tp=8"], &["cross-node-tp"])?.contradictions(&cluster()?).is_empty());
        Ok(())
    }
}
