//! Kubernetes: an indexed Job with one pod per shard, each tried again by itself, and a Job that merges. Both see the volume
//! claim `studies` at the folder of the results.

use super::Sharded;
use crate::launch::LaunchFile;

/// Both jobs and the script that applies them.
pub fn files(sharded: &Sharded) -> Vec<LaunchFile> {
    let (name, shards) = (label(&sharded.name), sharded.shards);
    let shard = sharded.shard_command("\"$((JOB_COMPLETION_INDEX + 1))\"");
    let job = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\nspec:\n  completionMode: Indexed\n  completions: {shards}\n  \
         parallelism: {shards}\n  backoffLimitPerIndex: 5\n{}",
        template(sharded, &shard)
    );
    let merge = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}-merge\nspec:\n  backoffLimit: 2\n{}",
        template(sharded, &sharded.merge_command())
    );
    let submit = format!(
        "#!/usr/bin/env bash\nset -euo pipefail\ncd \"$(dirname \"${{BASH_SOURCE[0]}}\")\"\nkubectl apply -f shards.yaml\n\
         kubectl wait --for=condition=complete --timeout=-1s job/{name}\nkubectl apply -f merge.yaml\n"
    );
    vec![
        LaunchFile::data("shards.yaml", job),
        LaunchFile::data("merge.yaml", merge),
        LaunchFile::script("submit.sh", submit),
    ]
}

/// A pod that runs a command. The command stands in a block of its own, so that no quoting of YAML touches it.
fn template(sharded: &Sharded, command: &str) -> String {
    let out = serde_json::Value::String(sharded.out.clone());
    format!(
        "  template:\n    spec:\n      restartPolicy: Never\n      containers:\n        - name: meshwright\n          \
         image: IMAGE  # with meshwright and the study file\n          command:\n            - bash\n            - -c\n            \
         - |\n              set -euo pipefail\n              {command}\n          resources:\n            requests:\n              \
         cpu: 2\n              memory: 2Gi\n          volumeMounts:\n            - name: studies\n              mountPath: {out}\n      \
         volumes:\n        - name: studies\n          persistentVolumeClaim:\n            claimName: studies\n"
    )
}

/// A name that Kubernetes takes: lower case letters, digits and hyphens, at most 50.
fn label(name: &str) -> String {
    let text: String = name
        .chars()
        .take(50)
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let text = text.trim_matches('-');
    if text.is_empty() { "study".to_owned() } else { text.to_owned() }
}
