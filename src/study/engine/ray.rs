//! Ray: a driver with one task per shard, each tried again when its node dies, that merges at the end.

use super::Sharded;
use crate::launch::LaunchFile;

/// The driver.
pub fn files(sharded: &Sharded) -> Vec<LaunchFile> {
    // A JSON string is a Python string.
    let text = |text: &str| serde_json::Value::String(text.to_owned()).to_string();
    let driver = format!(
        "\"\"\"Runs the shards of a study as Ray tasks and merges them. The folder is on storage that all nodes share.\"\"\"\n\
         import subprocess\n\nimport ray\n\n\
         STUDY = {}\nOUT = {}\nSHARDS = {}\nFOLDER = {}\n\n\n\
         @ray.remote(num_cpus=2, max_retries=5, retry_exceptions=True)\n\
         def run_shard(number):\n    \
             subprocess.run(\n        \
                 [\"meshwright\", \"study\", STUDY, \"--out\", f\"{{OUT}}/shard-{{number}}\", \"--shard\", f\"{{number}}/{{SHARDS}}\"],\n        \
                 check=True,\n        \
                 cwd=FOLDER,\n    \
             )\n    \
             return f\"{{OUT}}/shard-{{number}}\"\n\n\n\
         if __name__ == \"__main__\":\n    \
             ray.init()\n    \
             folders = ray.get([run_shard.remote(number) for number in range(1, SHARDS + 1)])\n    \
             subprocess.run([\"meshwright\", \"study\", \"merge\", *folders, \"--out\", OUT], check=True, cwd=FOLDER)\n",
        text(&sharded.study),
        text(&sharded.out),
        sharded.shards,
        if sharded.files.is_empty() { "None".to_owned() } else { text(&sharded.folder) }
    );
    vec![LaunchFile::data("study.py", driver)]
}
