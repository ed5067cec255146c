//! Kubernetes: an indexed Job with one pod per shard, each tried again by itself, and a Job that merges. The study is a
//! `ConfigMap`; both jobs see the volume claim `studies` at the folder of the results.

use super::Sharded;
use crate::launch::LaunchFile;

/// Where a pod finds the study.
const STUDY: &str = "/study/study.toml";

/// The study, both jobs and the script that applies them.
pub fn files(sharded: &Sharded) -> Vec<LaunchFile> {
    let (name, shards) = (label(&sharded.name), sharded.shards);
    let study = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  study.toml: {}\n",
        quoted(&sharded.text)
    );
    let shard = sharded.shard_command(STUDY, "\"$((JOB_COMPLETION_INDEX + 1))\"");
    let job = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\nspec:\n  completionMode: Indexed\n  completions: {shards}\n  \
         parallelism: {shards}\n  backoffLimitPerIndex: 5\n{}",
        template(sharded, &name, &shard)
    );
    let merge = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}-merge\nspec:\n  backoffLimit: 2\n{}",
        template(sharded, &name, &sharded.merge_command())
    );
    vec![
        LaunchFile::data("study.yaml", study),
        LaunchFile::data("shards.yaml", job),
        LaunchFile::data("merge.yaml", merge),
        LaunchFile::script("submit.sh", submit(&name)),
    ]
}

/// Applies all, the merge when every shard is done.
fn submit(name: &str) -> String {
    format!(
        "#!/usr/bin/env bash\nset -euo pipefail\ncd \"$(dirname \"${{BASH_SOURCE[0]}}\")\"\n\
         kubectl apply -f study.yaml -f shards.yaml\n\
         until kubectl wait --for=condition=complete --timeout=60s job/{name} 2>/dev/null; do\n  \
         if kubectl wait --for=condition=failed --timeout=1s job/{name} 2>/dev/null; then\n    \
         echo \"error: shards failed: kubectl describe job {name}\" >&2\n    exit 1\n  fi\ndone\n\
         kubectl apply -f merge.yaml\n"
    )
}

/// A JSON string is a YAML string.
fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

/// A pod that runs a command. The command stands in a block of its own, so that no quoting of YAML touches it.
fn template(sharded: &Sharded, name: &str, command: &str) -> String {
    let out = quoted(&sharded.out);
    let needs = match sharded.files.as_slice() {
        [] => "with meshwright".to_owned(),
        files => {
            let names: Vec<String> = files.iter().map(|name| quoted(name)).collect();
            format!("with meshwright and, in its working folder, {}", names.join(", "))
        }
    };
    format!(
        "  template:\n    spec:\n      restartPolicy: Never\n      containers:\n        - name: meshwright\n          \
         image: IMAGE  # {needs}\n          command:\n            - bash\n            - -c\n            \
         - |\n              set -euo pipefail\n              {command}\n          resources:\n            requests:\n              \
         cpu: 2\n              memory: 2Gi\n          volumeMounts:\n            - name: study\n              mountPath: /study\n            \
         - name: studies\n              mountPath: {out}\n      \
         volumes:\n        - name: study\n          configMap:\n            name: {name}\n        \
         - name: studies\n          persistentVolumeClaim:\n            claimName: studies\n"
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
