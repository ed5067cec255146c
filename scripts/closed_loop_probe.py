"""Runs a probe again and again, in turns: torchrun --nproc-per-node N closed_loop_probe.py --probe probe.py --seconds S."""

import argparse

import closed_loop_turns as turns
import torch
import torch.distributed as dist

# Less often each time than the probe alone: there is a next turn.
LEAST_SAMPLES = 3


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probe", required=True)
    parser.add_argument("--seconds", required=True)
    parser.add_argument("--largest-message", type=int, required=True)
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    priority = turns.isolate(cuda)
    probe = turns.load(args.probe)
    probe.LEAST_SAMPLES = LEAST_SAMPLES
    probe.SPEC["largest_message"] = args.largest_message
    device = probe.connect(cuda, 1)

    def turn(message):
        # What the first turn found of single kernels, and of collectives that are part of no layer and no plan here, stands for
        # all; layers, optimizer, gradients and hops are measured every time.
        if not message["whole"]:
            probe.OPERATIONS = ("all_reduce", "send_recv")
        stages = [stage for stage in probe.STAGES if message["whole"] or stage is not probe.kernels]
        probe.measure(probe.Probe(probe.arguments(["--out", message["out"], "--seconds", args.seconds])), stages)
        return {"priority": priority}

    turns.serve(turn, turns.Reference(torch, device), dist.barrier)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
