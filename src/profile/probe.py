#!/usr/bin/env python3
"""Times one model's layers and a cluster's links; needs torch alone. Written by meshwright.

On a cluster (NCCL), on every node:

    torchrun --nnodes NODES --nproc-per-node GPUS --rdzv-endpoint HOST:29500 --rdzv-backend c10d probe.py --out probe.json

On a laptop (gloo, CPU): torchrun --nproc-per-node 2 probe.py --out probe.json

Then: meshwright profile import probe probe.json --out cluster.toml

Rank 0 writes the JSON file after every measurement. Started again with the same file, it goes on where it was.
"""

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from datetime import datetime, timezone

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

# Sizes of the model and what to vary: filled in by `meshwright profile script`.
SPEC = json.loads(r"""@SPEC@""")

SCHEMA = "meshwright-probe-1"
LEAST_SAMPLES, MOST_SAMPLES = 5, 60


class Block(nn.Module):
    """One rank's part of a transformer block: `tp` splits heads and MLP, `cp` the sequence. No collectives of its own:
    `reduce` is applied to the outputs that tensor parallelism sums, `enter` to the inputs, `gather` to keys and values."""

    def __init__(self, spec, tp=1, cp=1, cp_rank=None, dtype=None, device=None):
        super().__init__()
        kwargs = {"dtype": dtype, "device": device, "bias": False}
        self.heads = max(spec["heads"] // tp, 1)
        self.kv_heads = max(spec["kv_heads"] // tp, 1)
        self.width, self.gated = spec["head_dim"], spec["gated"]
        self.cp, self.cp_rank = cp, cp - 1 if cp_rank is None else cp_rank
        hidden, ffn = spec["hidden"], spec["ffn"] // tp
        self.norm1 = nn.Parameter(torch.ones(hidden, dtype=dtype, device=device))
        self.norm2 = nn.Parameter(torch.ones(hidden, dtype=dtype, device=device))
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.width, **kwargs)
        self.out = nn.Linear(self.heads * self.width, hidden, **kwargs)
        self.up = nn.Linear(hidden, ffn * (2 if self.gated else 1), **kwargs)
        self.down = nn.Linear(ffn, hidden, **kwargs)
        self.enter = self.reduce = lambda x: x
        self.gather = lambda kv: torch.cat([kv] * self.cp, dim=2) if self.cp > 1 else kv
        self.masks = {}

    def mask(self, rows, columns, device):
        """Queries of this rank's part of the sequence against all keys."""
        key = (rows, columns)
        if key not in self.masks:
            first = self.cp_rank * rows
            positions = torch.arange(first, first + rows, device=device)[:, None]
            self.masks[key] = positions >= torch.arange(columns, device=device)[None, :]
        return self.masks[key]

    def attention(self, x):
        batch, seq, _ = x.shape
        q, k, v = self.qkv(x).split(
            [self.heads * self.width, self.kv_heads * self.width, self.kv_heads * self.width], dim=-1
        )
        q = q.view(batch, seq, self.heads, self.width).transpose(1, 2)
        k = k.view(batch, seq, self.kv_heads, self.width).transpose(1, 2)
        v = v.view(batch, seq, self.kv_heads, self.width).transpose(1, 2)
        grouped = self.heads != self.kv_heads
        if self.cp > 1:
            kv = self.gather(torch.stack([k, v]).flatten(0, 1)).unflatten(0, (2, batch))
            k, v = kv[0], kv[1]
            mask = self.mask(seq, k.shape[2], x.device)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        return self.reduce(self.out(y.transpose(1, 2).reshape(batch, seq, -1)))

    def mlp(self, x):
        x = self.up(x)
        if self.gated:
            gate, x = x.chunk(2, dim=-1)
            x = F.silu(gate) * x
        else:
            x = F.gelu(x, approximate="tanh")
        return self.reduce(self.down(x))

    def forward(self, x):
        width = x.shape[-1:]
        x = x + self.attention(self.enter(F.rms_norm(x, width, self.norm1)))
        return x + self.mlp(self.enter(F.rms_norm(x, width, self.norm2)))


class Head(nn.Module):
    """Final projection and loss over `vocab` columns."""

    def __init__(self, hidden, vocab, dtype=None, device=None):
        super().__init__()
        self.projection = nn.Linear(hidden, vocab, bias=False, dtype=dtype, device=device)

    def forward(self, x, targets):
        logits = self.projection(x).flatten(0, -2)
        return F.cross_entropy(logits.float(), targets.flatten())


class Probe:
    """The process group, the clock and the file."""

    def __init__(self, args):
        self.cuda = torch.cuda.is_available() and not args.cpu
        if "RANK" not in os.environ:
            sys.exit("start it with torchrun: torchrun --nproc-per-node 2 probe.py --out probe.json")
        local = int(os.environ.get("LOCAL_RANK", 0))
        self.device = torch.device("cuda", local) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
        else:
            torch.set_num_threads(args.threads)
        dist.init_process_group("nccl" if self.cuda else "gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        names = [None] * self.world
        dist.all_gather_object(names, socket.gethostname())
        self.hosts = names
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[args.dtype or ("bf16" if self.cuda else "fp32")]
        self.deadline = time.monotonic() + args.limit
        self.path, self.each = args.out, args.seconds
        self.planned = self.measured = 0
        self.report = self.start(args)
        done = [sorted(self.report["done"])]
        dist.broadcast_object_list(done, src=0)
        self.done = set(done[0])
        self.stopped = False

    def start(self, args):
        name = torch.cuda.get_device_name() if self.cuda else cpu_name()
        memory = torch.cuda.get_device_properties(self.device).total_memory if self.cuda else host_memory() // self.per_host()
        fresh = {
            "schema": SCHEMA,
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S"),
            "torch": torch.__version__,
            "backend": dist.get_backend(),
            "device": {
                "type": self.device.type, "name": name, "memory_bytes": memory,
                "multiprocessors": torch.cuda.get_device_properties(self.device).multi_processor_count if self.cuda else 1,
            },
            "dtype": str(self.dtype).removeprefix("torch.").replace("bfloat16", "bf16").replace("float", "fp"),
            "threads": torch.get_num_threads(),
            "hosts": self.hosts, "model": SPEC["model"],
            "gemm": [], "attention": [], "norm": [], "layers": [], "optimizer": [], "collectives": [], "pairs": [],
            "done": [], "complete": False,
        }
        if self.rank == 0 and os.path.exists(args.out):
            try:
                with open(args.out) as file:
                    old = json.load(file)
            except ValueError:
                sys.exit(f"{args.out} exists and is no JSON: move it away")
            same = ("schema", "dtype", "hosts", "model", "device", "threads")
            if any(old.get(key) != fresh[key] for key in same):
                sys.exit(f"{args.out} is of another run (model, hosts or dtype differ): move it away")
            return old
        return fresh

    def per_host(self):
        return max(self.hosts.count(host) for host in set(self.hosts))

    def sync(self):
        if self.cuda:
            torch.cuda.synchronize()

    def samples(self, run, group=None, member=True):
        """Durations of `run`, the slowest rank's of each; all ranks take part in the same number of rounds."""
        times, started, rounds = [], time.monotonic(), 0
        warmup = 2
        while True:
            dist.barrier()
            self.sync()
            begin = time.perf_counter()
            if member:
                run()
            self.sync()
            times.append(time.perf_counter() - begin)
            rounds += 1
            if rounds == warmup:
                times, started = [], time.monotonic()
            if rounds < warmup + LEAST_SAMPLES:
                continue
            over = time.monotonic() - started > self.each or rounds >= warmup + MOST_SAMPLES
            flag = torch.tensor([float(over)], device=self.device)
            dist.broadcast(flag, src=0)
            if flag.item() > 0:
                break
        slowest = torch.tensor(times if member else [0.0] * len(times), dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return sorted(slowest.tolist())

    def take(self, kind, key, make):
        """Measures `make()` -> entry, unless it is done or the time is up."""
        name = f"{kind}:{key}"
        if name in self.done or self.stopped:
            return
        late = torch.tensor([float(time.monotonic() > self.deadline)], device=self.device)
        dist.broadcast(late, src=0)
        if late.item() > 0:
            self.stopped = True
            return
        entry = make()
        self.measured += 1
        if self.rank == 0:
            if entry is not None:
                self.report[kind].append(entry)
            self.report["done"].append(name)
            self.write()
            left = self.deadline - time.monotonic()
            print(f"[{self.measured}] {name}  ({left:.0f} s left)", file=sys.stderr, flush=True)
        self.done.add(name)

    def write(self):
        folder = os.path.dirname(os.path.abspath(self.path))
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
            json.dump(self.report, file, indent=1)
        os.replace(file.name, self.path)


def summary(times):
    middle = times[len(times) // 2]
    spread = sorted(abs(t - middle) for t in times)[len(times) // 2]
    return {"seconds": middle, "spread": spread / middle if middle > 0 else 0.0, "samples": len(times)}


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return "CPU"


def host_memory():
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 8 << 30


def saved_bytes(run, parameters):
    """Bytes that autograd keeps between forward and backward, parameters left out."""
    own, seen = {p.untyped_storage().data_ptr() for p in parameters}, {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = run()
    del output
    return sum(seen.values())


def layer(probe, kind, module, x, extra, sizes):
    """Forward, input gradient and weight gradient of a layer, and the memory around them."""
    parameters = list(module.parameters())
    inputs = [x] if x.is_floating_point() else []
    for tensor in inputs:
        tensor.requires_grad_(True)
    forward = summary(probe.samples(lambda: module(x, *extra)))
    output = module(x, *extra)
    grad = torch.ones_like(output)
    whole = summary(probe.samples(
        lambda: torch.autograd.grad(output, inputs + parameters, grad, retain_graph=True)))
    into = summary(probe.samples(
        lambda: torch.autograd.grad(output, inputs, grad, retain_graph=True))) if inputs else {"seconds": 0.0, "spread": 0.0}
    entry = {
        "kind": kind, **sizes,
        "forward_seconds": forward["seconds"],
        "input_gradient_seconds": min(into["seconds"], whole["seconds"]),
        "weight_gradient_seconds": max(whole["seconds"] - into["seconds"], 0.0),
        "spread": max(forward["spread"], whole["spread"], into["spread"]),
        "saved_bytes": saved_bytes(lambda: module(x, *extra), parameters),
    }
    if probe.cuda:
        del output
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        output = module(x, *extra)
        entry["allocated_bytes"] = torch.cuda.memory_allocated() - before
        torch.autograd.grad(output, inputs + parameters, grad)
        entry["peak_allocated_bytes"] = torch.cuda.max_memory_allocated() - before
        entry["reserved_bytes"] = torch.cuda.memory_reserved()
    return entry


def layers(probe):
    model, kwargs = SPEC["model"], {"dtype": probe.dtype, "device": probe.device}
    for seq in SPEC["seq_lens"]:
        for batch in SPEC["micro_batches"]:
            for tp, cp in SPEC["splits"]:
                if seq % cp or model["heads"] % tp:
                    continue
                shape = (batch, seq // cp, model["hidden"])
                sizes = {"seq_len": seq, "micro_batch": batch, "tp": tp, "cp": cp}
                key = f"s{seq} b{batch} tp{tp} cp{cp}"

                def block():
                    module = Block(model, tp, cp, **kwargs)
                    return layer(probe, "block", module, torch.randn(shape, **kwargs), (), sizes)

                def head():
                    vocab = -(-model["vocab"] // tp)
                    targets = torch.randint(vocab, shape[:2], device=probe.device)
                    module = Head(model["hidden"], vocab, **kwargs)
                    return layer(probe, "head", module, torch.randn(shape, **kwargs), (targets,), sizes)

                def embedding():
                    tokens = torch.randint(model["vocab"], shape[:2], device=probe.device)
                    module = nn.Embedding(model["vocab"], model["hidden"], **kwargs)
                    return layer(probe, "embedding", module, tokens, (), sizes)

                probe.take("layers", "block " + key, block)
                probe.take("layers", "head " + key, head)
                probe.take("layers", "embedding " + key, embedding)


def kernels(probe):
    model, kwargs = SPEC["model"], {"dtype": probe.dtype, "device": probe.device}
    width, hidden = model["head_dim"], model["hidden"]
    tokens = {seq * batch // cp for seq in SPEC["seq_lens"] for batch in SPEC["micro_batches"] for _, cp in SPEC["splits"]}
    products = set()
    for tp in {tp for tp, _ in SPEC["splits"]}:
        qkv = (model["heads"] + 2 * model["kv_heads"]) * width // tp
        up = model["ffn"] * (2 if model["gated"] else 1) // tp
        products |= {(qkv, hidden), (hidden, model["heads"] * width // tp), (up, hidden), (hidden, model["ffn"] // tp), (model["vocab"] // tp, hidden)}
    for m in sorted(tokens):
        for n, k in sorted(products):
            def gemm(m=m, n=n, k=k):
                a, b = torch.randn(m, k, **kwargs), torch.randn(n, k, **kwargs)
                return {"m": m, "n": n, "k": k, **summary(probe.samples(lambda: F.linear(a, b)))}

            probe.take("gemm", f"{m}x{n}x{k}", gemm)

        def norm(m=m):
            x, w = torch.randn(m, hidden, **kwargs), torch.ones(hidden, **kwargs)
            return {"tokens": m, "hidden": hidden, **summary(probe.samples(lambda: F.rms_norm(x, (hidden,), w)))}

        probe.take("norm", f"{m}x{hidden}", norm)
    for seq in SPEC["seq_lens"]:
        for batch in SPEC["micro_batches"]:
            for tp in sorted({tp for tp, _ in SPEC["splits"]}):
                def attention(seq=seq, batch=batch, tp=tp):
                    heads, kv = max(model["heads"] // tp, 1), max(model["kv_heads"] // tp, 1)
                    q = torch.randn(batch, heads, seq, width, requires_grad=True, **kwargs)
                    k, v = (torch.randn(batch, kv, seq, width, requires_grad=True, **kwargs) for _ in "kv")
                    run = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv)
                    forward, out = summary(probe.samples(run)), run()
                    grad = torch.ones_like(out)
                    backward = summary(probe.samples(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)))
                    return {"seq_len": seq, "batch": batch, "heads": heads, "kv_heads": kv, "head_dim": width,
                            "backward_seconds": backward["seconds"], **forward}

                probe.take("attention", f"s{seq} b{batch} tp{tp}", attention)


def optimizer(probe):
    def adamw():
        model = SPEC["model"]
        module = Block(model, dtype=probe.dtype, device=probe.device)
        blocks = [module] + [Block(model, dtype=probe.dtype, device=probe.device) for _ in range(SPEC["optimizer_blocks"] - 1)]
        parameters = [p for block in blocks for p in block.parameters()]
        for p in parameters:
            p.grad = torch.zeros_like(p)
        step = torch.optim.AdamW(parameters, lr=1e-4, fused=probe.cuda or None).step
        return {"name": "adamw", "parameters": sum(p.numel() for p in parameters), **summary(probe.samples(step))}

    probe.take("optimizer", "adamw", adamw)


def shapes(world):
    """(ranks, stride) of every group that degrees of powers of two make, and of the whole world."""
    found, ranks = [], 2
    while ranks <= world:
        stride = 1
        while ranks * stride <= world:
            if world % (ranks * stride) == 0:
                found.append((ranks, stride))
            stride *= 2
        ranks *= 2
    if world > 1 and (world, 1) not in found:
        found.append((world, 1))
    return found


def groups_of(world, ranks, stride):
    """Every group of a shape, as lists of ranks."""
    span = ranks * stride
    return [[base + offset + i * stride for i in range(ranks)] for base in range(0, world, span) for offset in range(stride)]


def collective(op, group, members, rank, size, probe):
    """A call of `op` on a full tensor of `size` bytes, as nccl-tests counts it."""
    n, dtype = len(members), probe.dtype
    elements = max(size // dtype.itemsize // n, 1) * n
    whole = torch.ones(elements, dtype=dtype, device=probe.device)
    part = torch.ones(elements // n, dtype=dtype, device=probe.device)
    if op == "all_reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if op == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part, group=group)
    if op == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole, group=group)
    if op == "all_to_all":
        other = torch.empty_like(whole)
        return lambda: dist.all_to_all_single(other, whole, group=group)
    index = members.index(rank)
    following, previous = members[(index + 1) % n], members[(index - 1) % n]
    other = torch.empty_like(whole)

    def ring():
        ops = [dist.P2POp(dist.isend, whole, following, group), dist.P2POp(dist.irecv, other, previous, group)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    return ring


def collectives(probe):
    most = SPEC["largest_message"] if probe.cuda else min(SPEC["largest_message"], 32 << 20)
    sizes = [1 << power for power in range(10, 40) if 1 << power <= most]
    for ranks, stride in shapes(probe.world):
        lists = groups_of(probe.world, ranks, stride)
        group, members = None, None
        for ids in lists:
            made = dist.new_group(ids)
            if probe.rank in ids:
                group, members = made, ids
        first = lists[0]
        per_host = max(sum(probe.hosts[r] == host for r in first) for host in set(probe.hosts))
        for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"):
            if op == "send_recv" and ranks != 2:
                continue
            for at_once in ([True, False] if len(lists) > 1 else [True]):
                def curve():
                    member = at_once or probe.rank in first
                    points = []
                    for size in sizes:
                        run = collective(op, group, members, probe.rank, size, probe)
                        if op == "reduce_scatter" and not supported(run):
                            return None
                        points.append({"bytes": size, **summary(probe.samples(run, member=member))})
                    return {"op": op, "ranks": ranks, "stride": stride, "per_host": per_host,
                            "all_groups": at_once, "points": points}

                probe.take("collectives", f"{op} {ranks} stride {stride} {'all' if at_once else 'one'}", curve)


def supported(run):
    """Whether the backend has this operation at all; asked of every rank alike."""
    try:
        run()
        return True
    except (RuntimeError, NotImplementedError):
        return False


def pairs(probe):
    """Rates between hosts, rail by rail (local rank i to local rank i), every host in one pair at a time."""
    hosts = list(dict.fromkeys(probe.hosts))
    ranks = {host: [r for r, name in enumerate(probe.hosts) if name == host] for host in hosts}
    if len(hosts) < 2:
        return
    size = (64 << 20) if probe.cuda else (4 << 20)
    order = hosts + ([None] if len(hosts) % 2 else [])
    for turn in range(len(order) - 1):
        matches = [(order[i], order[-1 - i]) for i in range(len(order) // 2)]
        order = [order[0], order[-1]] + order[1:-1]

        def round_of(matches=matches):
            peer, sends = None, False
            for a, b in matches:
                if a is None or b is None:
                    continue
                for left, right in zip(ranks[a], ranks[b]):
                    if probe.rank in (left, right):
                        peer, sends = (right, True) if probe.rank == left else (left, False)
            entries = []
            for forward in (True, False):
                buffer = torch.ones(size // probe.dtype.itemsize, dtype=probe.dtype, device=probe.device)
                times = []
                for _ in range(2 + LEAST_SAMPLES):
                    dist.barrier()
                    probe.sync()
                    begin = time.perf_counter()
                    if peer is not None:
                        (dist.send if sends == forward else dist.recv)(buffer, peer)
                    probe.sync()
                    times.append(time.perf_counter() - begin)
                mine = summary(sorted(times[2:])) | {"peer": peer, "sends": sends == forward}
                all_of = [None] * probe.world
                dist.all_gather_object(all_of, mine)
                for rank, other in enumerate(all_of):
                    if other["peer"] is not None and not other["sends"]:
                        entries.append({"from": probe.hosts[other["peer"]], "to": probe.hosts[rank],
                                        "rail": ranks[probe.hosts[rank]].index(rank), "bytes": size,
                                        "seconds": other["seconds"], "spread": other["spread"]})
            return {"round": turn, "rates": entries}

        probe.take("pairs", f"round {turn}", round_of)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="JSON file to write, or to go on with")
    parser.add_argument("--limit", type=float, default=900, help="seconds after which it stops (default 900)")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds of samples per measurement (default 0.3)")
    parser.add_argument("--dtype", choices=["bf16", "fp16", "fp32"], help="default: bf16 on GPUs, fp32 on CPUs")
    parser.add_argument("--cpu", action="store_true", help="use gloo and the CPU though there are GPUs")
    parser.add_argument("--threads", type=int, default=1, help="threads of a process on a CPU (default 1)")
    probe = Probe(parser.parse_args())
    for stage in (layers, optimizer, collectives, pairs, kernels):
        stage(probe)
    if probe.rank == 0:
        probe.report["complete"] = not probe.stopped
        probe.write()
        state = "time is up: start it again to go on" if probe.stopped else "complete"
        print(f"{probe.path}: {state}", file=sys.stderr)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
