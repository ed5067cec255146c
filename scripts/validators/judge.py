"""Hands every drawn configuration to the launcher's own code and prints the verdicts, a JSON object per line.

    python judge.py SAMPLES.jsonl > verdicts.jsonl

The first line holds the versions. In the others `refused` is what the launcher says, or null where it accepts.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import sys
import warnings

PACKAGES = {"megatron": "megatron-core", "torchtitan": "torchtitan", "deepspeed": "deepspeed", "accelerate": "accelerate"}


def short(error):
    """One line of an error: its last that says something, without machine paths."""
    text = str(error) or type(error).__name__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:160]


def judge(judges, sample):
    launcher = sample["record"]["launcher"]
    if launcher not in judges:
        judges[launcher] = importlib.import_module("judge_" + launcher)
    kept = dict(os.environ)
    os.environ.update(sample["variables"])
    try:
        return judges[launcher].refusal(sample["files"], sample["world_size"])
    finally:
        os.environ.clear()
        os.environ.update(kept)


def main():
    warnings.simplefilter("ignore")
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    verdicts, judges = [], {}
    # The launchers print while they parse: all of that goes to stderr.
    with contextlib.redirect_stdout(sys.stderr), open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            sample = json.loads(line)
            refused = judge(judges, sample)
            verdicts.append(dict(sample["record"], refused=None if refused is None else short(refused)))
    versions = {name: importlib.metadata.version(name) for name in ["torch", *PACKAGES.values()]}
    for line in [{"versions": versions}, *verdicts]:
        print(json.dumps(line, separators=(",", ":"), ensure_ascii=False))


if __name__ == "__main__":
    main()
