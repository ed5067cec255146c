//! Files that run the shards of a study on an engine the user has, and merge them.

mod kubernetes;
mod ray;
mod slurm;

use crate::launch::LaunchFile;
use crate::launch::shell::quote;

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Sharded {
    /// Name of the study.
    pub name: String,
    /// Path of the study file, as the shards see it.
    pub study: String,
    /// The study file.
    pub text: String,
    /// Files that the study names by relative paths, and the folder these start from.
    pub files: Vec<String>,
    /// See `files`.
    pub folder: String,
    /// Folder of the shards and of the merged results, on storage that all shards share.
    pub out: String,
    /// Number of shards.
    pub shards: u64,
}

/// An engine.
pub struct Engine {
    /// Its name on the command line.
    pub name: &'static str,
    /// What to run afterwards.
    pub start: &'static str,
    /// The files.
    pub files: fn(&Sharded) -> Vec<LaunchFile>,
}

/// Every engine.
pub static ENGINES: &[Engine] = &[
    Engine { name: "slurm", start: "bash submit.sh", files: slurm::files },
    Engine { name: "kubernetes", start: "bash submit.sh", files: kubernetes::files },
    Engine { name: "ray", start: "ray job submit --working-dir . -- python study.py", files: ray::files },
];

impl Sharded {
    /// A line that enters the folder which the study's own paths start from; none where it has none.
    fn enter(&self) -> String {
        if self.files.is_empty() { String::new() } else { format!("cd {}\n", quote(&self.folder)) }
    }

    /// The command of one shard of the study at a path; its number is the shell's word `number`.
    fn shard_command(&self, study: &str, number: &str) -> String {
        let (study, out, shards) = (quote(study), quote(&self.out), self.shards);
        format!("meshwright study {study} --out {out}/shard-{number} --shard {number}/{shards}")
    }

    /// The command that merges all.
    fn merge_command(&self) -> String {
        let (out, shards) = (quote(&self.out), self.shards);
        format!(
            "folders=(); for ((i = 1; i <= {shards}; i++)); do folders+=({out}/shard-$i); done; \
             meshwright study merge \"${{folders[@]}}\" --out {out}"
        )
    }
}
