"""DeepSpeed's verdict: its configuration model, on a stated number of data-parallel ranks."""

import json
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed.comm  # noqa: E402
from deepspeed.runtime import config as runtime_config  # noqa: E402


def ranks(files, world_size):
    """Data-parallel ranks: the pipeline's script says how many stages there are, the file how wide tensors are split."""
    pipeline = files.get("pipeline.py", "")
    stages = next((int(line.split("=")[1]) for line in pipeline.splitlines() if line.startswith("NUM_STAGES")), 1)
    tensor = json.loads(files["ds_config.json"]).get("tensor_parallel", {}).get("autotp_size", 1)
    return world_size / (stages * max(tensor, 1))


def refusal(files, world_size):
    dp = ranks(files, world_size)
    if dp != int(dp):
        return f"{world_size} GPUs are no multiple of the model-parallel ranks"
    deepspeed.comm.get_world_size = lambda group=None: int(dp)
    deepspeed.comm.get_rank = lambda group=None: 0
    deepspeed.comm.is_initialized = lambda: True
    try:
        runtime_config.DeepSpeedConfig(json.loads(files["ds_config.json"]))
    except Exception as error:
        return error
    return None
