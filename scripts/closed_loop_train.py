"""Runs a plan of a small GPT for real, with torch's own DDP, DTensor and pipelining, in turns: some steps and how long they took;
at last how many bytes its tensors had at most.

    torchrun --nproc-per-node N closed_loop_train.py --plan plan.json --probe probe.py

The blocks are those of the probe, so that what was measured is what runs.
"""

import argparse
import contextlib
import gc
import inspect
import json
import os
import resource
import time
import weakref

import closed_loop_turns as turns
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Steps before those of a turn that count, and of a whole run.
WARM_UP, FIRST_WARM_UP = 1, 3


class Gpt(nn.Module):
    """Embedding, some blocks, head; a pipeline stage leaves out what is not its own."""

    def __init__(self, probe, spec, blocks, first=True, last=True, **kwargs):
        super().__init__()
        hidden, vocab = spec["hidden"], spec["vocab"]
        self.embedding = nn.Embedding(vocab, hidden, dtype=kwargs["dtype"], device=kwargs["device"]) if first else None
        self.blocks = nn.ModuleList(probe.Block(spec, **kwargs) for _ in range(blocks))
        own = {"dtype": kwargs["dtype"], "device": kwargs["device"]}
        self.norm = nn.Parameter(torch.ones(hidden, **own)) if last else None
        self.projection = nn.Linear(hidden, vocab, bias=False, **own) if last else None

    def forward(self, x):
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        if self.projection is not None:
            x = self.projection(F.rms_norm(x, x.shape[-1:], self.norm))
        return x


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())


class Run:
    """One step of a plan."""

    def __init__(self, plan, probe, device, dtype):
        self.parallel, self.spec = plan["parallel"], probe.SPEC["model"]
        workload = plan["inputs"]["workload"] if "inputs" in plan else plan["workload"]
        self.seq, self.batch = workload["seq_len"], workload["global_batch"]
        p = self.parallel
        self.tp, self.pp, self.cp = p["tp"], p["pp"], p["cp"]
        self.replicas = p["dp_replicate"] * p["dp_shard"]
        self.micro, self.microbatches = p["micro_batch_size"], p["num_microbatches"]
        self.device, self.rank = device, dist.get_rank()
        kwargs = {"dtype": dtype, "device": device}
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        if self.pp > 1:
            self.pipeline(probe, plan, kwargs)
        else:
            place = {"cp": self.cp, "cp_rank": self.rank} if self.cp > 1 else {}
            model = Gpt(probe, self.spec, self.spec["layers"], **place, **kwargs)
            for block in model.blocks:
                if self.tp > 1:
                    probe.tensor_parallel(block, mesh)
                if self.cp > 1:
                    probe.context_parallel(block, mesh)
            if self.tp > 1:
                probe.vocabulary_parallel(model, mesh, "embedding")
                probe.vocabulary_parallel(model, mesh, "projection")
            self.model = model if self.tp > 1 else DistributedDataParallel(model, gradient_as_bucket_view=True)
        module = self.stage_module if self.pp > 1 else self.model
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=device.type == "cuda" or None)

    def pipeline(self, probe, plan, kwargs):
        stages = plan["stages"]
        first, last = stages[self.rank]["layers"]
        layers = self.spec["layers"]
        # Layer 0 is the embedding, the last two are norm and head.
        blocks = sum(1 for index in range(first, last + 1) if 1 <= index <= layers)
        ends = {"first": self.rank == 0, "last": self.rank == self.pp - 1}
        self.stage_module = Gpt(probe, self.spec, blocks, **ends, **kwargs)
        stage = PipelineStage(self.stage_module, self.rank, self.pp, self.device)
        self.schedule = Schedule1F1B(stage, n_microbatches=self.microbatches, loss_fn=loss_of)
        # Training has no use for all logits; releases before this argument keep them.
        known = "return_outputs" in inspect.signature(self.schedule.step).parameters
        self.without_outputs = {"return_outputs": False} if known else {}

    def data(self):
        rows = self.micro * self.microbatches
        columns = self.seq // self.cp
        tokens = torch.randint(self.spec["vocab"], (rows, columns), device=self.device)
        return tokens, torch.randint(self.spec["vocab"], (rows, columns), device=self.device)

    def step(self, tokens, targets):
        if self.pp > 1:
            if self.rank == 0:
                self.schedule.step(tokens)
            elif self.rank == self.pp - 1:
                self.schedule.step(target=targets, **self.without_outputs)
            else:
                self.schedule.step()
        else:
            self.accumulate(tokens, targets)
        self.optimizer.step()
        # Set to none, gradients would leave DDP's buckets and have a copy there.
        self.optimizer.zero_grad(set_to_none=False)

    def accumulate(self, tokens, targets):
        pairs = list(zip(tokens.split(self.micro), targets.split(self.micro)))
        for index, (x, y) in enumerate(pairs):
            later = self.tp == 1 and index < len(pairs) - 1
            if self.tp > 1:
                with loss_parallel():
                    F.cross_entropy(self.model(x).flatten(0, -2), y.flatten()).backward()
            elif later:
                with self.model.no_sync():
                    loss_of(self.model(x), y).backward()
            else:
                loss_of(self.model(x), y).backward()


def resident():
    """Bytes of memory that this process has in use, and had at most."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Allocated(TorchDispatchMode):
    """Bytes of the tensors that are alive, and at most were: what `torch.cuda.max_memory_allocated` says of a GPU, but for
    the insides of kernels. A tensor counts from the operation that made it until its storage goes, in whatever thread."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0
        self.known = weakref.WeakSet()

    def free(self, size):
        self.now -= size

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # Its local tensors come by.
        result = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and not isinstance(tensor, DTensor):
                storage = tensor.untyped_storage()
                if storage not in self.known:
                    self.known.add(storage)
                    self.now += storage.nbytes()
                    weakref.finalize(storage, self.free, storage.nbytes())
        self.most = max(self.most, self.now)
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", required=True)
    parser.add_argument("--probe", required=True)
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    turns.isolate(cuda)
    probe = turns.load(args.probe)
    with open(args.plan) as file:
        plan = json.load(file)
    device = probe.connect(cuda, 1)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if cuda else torch.float32
    before = 0 if cuda else resident()[0]
    runs = [Run(plan, probe, device, dtype)]
    for _ in range(FIRST_WARM_UP - WARM_UP):
        runs[0].step(*runs[0].data())

    def timed():
        tokens, targets = runs[0].data()
        dist.barrier()
        begin = time.perf_counter()
        runs[0].step(tokens, targets)
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    def memory():
        """Of a run from its start: what it allocates at most, and what the process has reserved so far."""
        held = torch.cuda.max_memory_reserved() if cuda else resident()[1] - before
        runs.clear()
        gc.collect()
        allocated = Allocated()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        with contextlib.nullcontext() if cuda else allocated:
            whole = Run(plan, probe, device, dtype)
            for _ in range(2):
                whole.step(*whole.data())
        return {"allocated_bytes": torch.cuda.max_memory_allocated() if cuda else allocated.most, "resident_bytes": held}

    def turn(message):
        if message["steps"] == 0:
            return memory()
        return {"seconds": [timed() for _ in range(WARM_UP + message["steps"])][WARM_UP:]}

    turns.serve(turn, turns.Reference(torch, device), dist.barrier)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
