"""torchtitan's verdict: its configuration manager, the mesh, the model's own checks, and the pipeline's stages.

What is written in Python and what is written as overrides are both judged, where both are there.
"""

import copy
import importlib
import os
import shlex
import sys
import tempfile

from torch.distributed.pipelining.schedules import get_schedule_class
from torchtitan.config import ConfigManager
from torchtitan.distributed import ParallelDims
from torchtitan.distributed import pipeline_parallel as pipeline

MODULE = "meshwright_plan"


def refusal(files, world_size):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        here = os.getcwd()
        os.chdir(folder)
        sys.path.insert(0, folder)
        try:
            commands = [shlex.split(files["overrides.args"])] if "overrides.args" in files else []
            if MODULE + ".py" in files:
                sys.modules.pop(MODULE, None)
                importlib.invalidate_caches()
                commands.append(["--module", MODULE, "--config", "plan"])
            for command in commands:
                judge(command, world_size)
        except SystemExit as error:
            return f"the command line is refused ({error.code})"
        except Exception as error:
            return error
        finally:
            sys.path.remove(folder)
            os.chdir(here)
    return None


def judge(command, world_size):
    config = ConfigManager().parse_args(command)
    dims = ParallelDims.from_config(config.parallelism, world_size)
    batch(config.training, dims)
    model = copy.deepcopy(config.model_spec.model)
    model.update_from_config(config=config)
    if dims.pp_enabled:
        stages(config, dims, model)


def batch(training, dims):
    """The trainer's own check, which it makes once it has a process group."""
    round_size = training.local_batch_size * dims.dp_replicate * dims.dp_shard
    wanted = training.global_batch_size if training.global_batch_size >= 0 else round_size
    assert wanted > 0 and wanted % round_size == 0, f"global batch size {wanted} is no multiple of {round_size}"


def stages(config, dims, model):
    parallelism = config.parallelism
    if not parallelism.pipeline_parallel_schedule_csv:
        get_schedule_class(parallelism.pipeline_parallel_schedule)
    count, layers, first, last = pipeline._get_pipeline_metadata(dims, parallelism, model)
    names = parallelism.module_fqns_per_model_part
    if names is None:
        names = pipeline._generate_llm_fqn_per_model_part(count, layers, first, last)
    assert len(names) % dims.pp == 0, f"{len(names)} stages on {dims.pp} ranks"
