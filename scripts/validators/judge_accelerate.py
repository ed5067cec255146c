"""Accelerate's verdict: the loader of its configuration file, and the constructor of `ParallelismConfig`."""

import os
import tempfile

import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.parallelism_config import ParallelismConfig


def refusal(files, world_size):
    text = files["accelerate.yaml"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "accelerate.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            load_config_from_file(path)
            parallelism(yaml.safe_load(text), world_size)
        except Exception as error:
            return error
    return None


def parallelism(tree, world_size):
    prefix = "parallelism_config_"
    stated = {key.removeprefix(prefix): value for key, value in tree.get("parallelism_config", {}).items()}
    sizes = {key: value for key, value in stated.items() if key.endswith("_size")}
    config = ParallelismConfig(**sizes)
    started = tree.get("num_processes", world_size)
    if started != world_size:
        raise ValueError(f"{started} processes are started on {world_size} GPUs")
    if config.total_size != world_size:
        raise ValueError(f"the sizes multiply to {config.total_size}, there are {world_size} processes")
