//! The memory of single ranks under Megatron-LM's fake process group.

use crate::launch::verify::{self, Verify};
use crate::plan::Plan;

/// The script.
#[must_use]
pub fn script(plan: &Plan) -> String {
    let connections = if plan.parallel.zero_stage >= 2 { 8 } else { 1 };
    verify::script(
        plan,
        &Verify {
            needs: "Megatron-LM at MEGATRON_PATH",
            command: COMMAND.to_owned(),
            environment: format!(r#"environment.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "{connections}")"#),
            pattern: "max allocated: ([0-9.]+)",
            planned: |memory| memory.allocated_bytes,
            unit: "2**20",
        },
    )
}

/// The flex dispatcher does not run without other ranks.
const COMMAND: &str = r#"INSTEAD = {"--moe-token-dispatcher-type": "alltoall", "--train-iters": "2"}
DROPPED = ("--moe-flex-dispatcher-backend",)


def command(rank):
    with open(os.path.join(FOLDER, "megatron.args"), encoding="utf-8") as file:
        lines = [shlex.split(line) for line in file]
    lines = [line for line in lines if line and line[0] not in DROPPED]
    words = [word for line in lines for word in ([line[0], INSTEAD[line[0]]] if line[0] in INSTEAD else line)]
    script = os.path.join(os.environ.get("MEGATRON_PATH", "."), "pretrain_gpt.py")
    return [sys.executable, script, *words, "--fake-process-group"]

"#;
