//! What a plan says of the links between its hosts: those that are broken, and hosts that hold all others up.

use cluster_profiles::Cluster;
use cluster_profiles::fit::median;
use cost_models::sites::Network;
use std::collections::BTreeSet;

/// Broken links, and slow hosts, that are named.
const MOST_NAMED: usize = 8;
/// A host whose best way to another has less than this share of the usual rate is slow.
const SLOW: f64 = 0.5;
/// Hosts up to which the ways between all of them are looked at.
const MOST_HOSTS: usize = 1024;

/// The warnings about a plan on all of a cluster's hosts.
#[must_use]
pub fn of(cluster: &Cluster) -> Vec<String> {
    [broken_links(cluster), slow_hosts(cluster)].into_iter().flatten().collect()
}

fn broken_links(cluster: &Cluster) -> Option<String> {
    if !cluster.links.iter().any(|link| link.broken) {
        return None;
    }
    let hosts: BTreeSet<String> = cluster.host_names().into_iter().collect();
    let under = |leaf: &str| cluster.leaves.iter().any(|set| set.name == leaf && any_of(&set.hosts, &hosts));
    let broken = cluster.links.iter().filter(|link| link.broken);
    let texts = broken.filter_map(|link| {
        let [from, to] = &link.between;
        let ends = [hosts.contains(from), hosts.contains(to)];
        let rail = link.rail.map(|rail| format!(" (NIC {rail})")).unwrap_or_default();
        match ends {
            [true, true] => Some(format!("{from} to {to}")),
            [true, false] => Some(format!("{from}{rail}")),
            [false, true] => Some(format!("{to}{rail}")),
            [false, false] => (under(from) || under(to)).then(|| format!("{from} to {to}{rail}")),
        }
    });
    // A pair is often stated in both directions.
    let texts: Vec<String> = texts.collect::<BTreeSet<_>>().into_iter().collect();
    let more = texts.len().saturating_sub(MOST_NAMED);
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!texts.is_empty()).then(|| {
        format!(
            "links are broken between hosts of this plan: {}{tail}; fewer --gpus leave such hosts out, --lost names them",
            texts[..texts.len() - more].join(", ")
        )
    })
}

fn any_of(some: &[String], of: &BTreeSet<String>) -> bool {
    some.iter().any(|one| of.contains(one))
}

/// Hosts whose links are far slower than those of the others.
fn slow_hosts(cluster: &Cluster) -> Option<String> {
    if cluster.is_even() || !cluster.is_homogeneous() {
        return None;
    }
    let network = Network::new(cluster).ok()?;
    let hosts = network.topology().hosts();
    if !(3..=MOST_HOSTS).contains(&hosts.len()) {
        return None;
    }
    let best = |host: usize| {
        let others = (0..hosts.len()).filter(|other| hosts[*other].domain != hosts[host].domain);
        others.map(|other| network.path(host, other).bandwidth.get()).reduce(f64::max)
    };
    let rates: Vec<f64> = (0..hosts.len()).map(best).collect::<Option<_>>()?;
    let usual = median(&rates)?;
    let slow: Vec<usize> = (0..hosts.len()).filter(|host| rates[*host] < SLOW * usual).collect();
    let fastest = slow.iter().map(|host| rates[*host]).reduce(f64::max)?;
    let names: Vec<&str> = slow.iter().take(MOST_NAMED).map(|host| hosts[*host].name.as_str()).collect();
    let more = slow.len() - names.len();
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!(
        "{}{tail}: no link to another host is faster than {:.1} GB/s, where the usual is {:.1}; --lost {} plans without",
        names.join(", "),
        fastest / 1e9,
        usual / 1e9,
        names.join(","),
    ))
}
