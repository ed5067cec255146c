#!/usr/bin/env python3
"""Times one model's layers and a cluster's links; needs torch alone. Written by meshwright.

On a cluster (NCCL), on every node:

    torchrun --nnodes NODES --nproc-per-node GPUS --rdzv-endpoint HOST:29500 --rdzv-backend c10d probe.py --out probe.json

On a laptop (gloo, CPU): torchrun --nproc-per-node 2 probe.py --out probe.json

Then: meshwright profile import probe probe.json --out cluster.toml

Rank 0 writes the JSON file after every measurement. Started again with the same file, it goes on where it was.
"""

import argparse
import contextlib
import json
import os
import socket
import sys
import time
from datetime import datetime, timezone

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module

# Sizes of the model and what to vary: filled in by `meshwright profile script`.
SPEC = json.loads(r"""@SPEC@""")

SCHEMA = "meshwright-probe-1"
LEAST_SAMPLES, MOST_SAMPLES = 5, 60
# Collectives in a row, so that the start of a round weighs little.
SMALL_BYTES, SMALL_CALLS, LARGE_CALLS = 1 << 20, 16, 4


class Experts(nn.Module):
    """One rank's part of the routed experts, which `ep` splits: router, permutation, products, combination. Every expert gets
    the same number of rows; `dispatch` and `combine` stand for the way to the experts' ranks and back."""

    def __init__(self, spec, ep=1, dtype=None, device=None):
        super().__init__()
        kwargs = {"dtype": dtype, "device": device}
        hidden, width = spec["hidden"], spec["ffn"] * (2 if spec["gated"] else 1)
        self.count, self.topk, self.ep, self.gated = spec["experts"], spec["topk"], ep, spec["gated"]
        self.local = self.count // ep
        self.router = nn.Linear(hidden, self.count, bias=False, **kwargs)
        self.up = nn.Parameter(torch.randn(self.local, hidden, width, **kwargs) * 0.02)
        self.down = nn.Parameter(torch.randn(self.local, spec["ffn"], hidden, **kwargs) * 0.02)
        self.dispatch = self.combine = lambda rows: rows

    def forward(self, x):
        tokens = x.flatten(0, -2)
        each = max(len(tokens) * self.topk // self.count, 1)
        copies = torch.arange(self.count * each, device=x.device)
        # Copies in the order of their experts, as a permutation of the tokens leaves them.
        order = (copies % self.count).argsort(stable=True)
        source, expert = (order // self.topk) % len(tokens), order % self.count
        scores = F.softmax(self.router(tokens).float(), dim=-1).to(x.dtype)[source, expert]
        rows = self.dispatch(tokens[source])
        rows = rows.view(self.ep, self.local, each, -1).transpose(0, 1).reshape(self.local, self.ep * each, -1)
        rows = torch.bmm(activated(torch.bmm(rows, self.up), self.gated), self.down)
        rows = rows.view(self.local, self.ep, each, -1).transpose(0, 1).reshape(self.count * each, -1)
        rows = self.combine(rows) * scores[:, None]
        return torch.zeros_like(tokens).index_add(0, source, rows).view_as(x)


def activated(x, gated):
    if not gated:
        return F.gelu(x, approximate="tanh")
    gate, x = x.chunk(2, dim=-1)
    return F.silu(gate) * x


class Block(nn.Module):
    """One rank's part of a transformer block: `tp` splits heads and MLP, `cp` the sequence, `ep` the experts. No collectives
    of its own: `tensor_parallel`, `context_parallel` and `expert_parallel` add them."""

    def __init__(self, spec, tp=1, cp=1, cp_rank=None, ep=1, dtype=None, device=None):
        super().__init__()
        kwargs = {"dtype": dtype, "device": device, "bias": False}
        self.heads = max(spec["heads"] // tp, 1)
        self.kv_heads = max(spec["kv_heads"] // tp, 1)
        self.width, self.gated = spec["head_dim"], spec["gated"]
        self.cp, self.cp_rank = cp, cp - 1 if cp_rank is None else cp_rank
        hidden, ffn = spec["hidden"], spec["shared_ffn" if spec["experts"] else "ffn"] // tp
        self.norm1 = nn.Parameter(torch.ones(hidden, dtype=dtype, device=device))
        self.norm2 = nn.Parameter(torch.ones(hidden, dtype=dtype, device=device))
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.width, **kwargs)
        self.out = nn.Linear(self.heads * self.width, hidden, **kwargs)
        self.up = nn.Linear(hidden, ffn * (2 if self.gated else 1), **kwargs) if ffn else None
        self.down = nn.Linear(ffn, hidden, **kwargs) if ffn else None
        self.experts = Experts(spec, ep, dtype, device) if spec["experts"] else None
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
        return self.out(y.transpose(1, 2).reshape(batch, seq, -1))

    def mlp(self, x):
        routed = self.experts(x) if self.experts else 0
        return self.down(activated(self.up(x), self.gated)) + routed if self.up else routed

    def forward(self, x):
        width = x.shape[-1:]
        x = x + self.attention(F.rms_norm(x, width, self.norm1))
        return x + self.mlp(F.rms_norm(x, width, self.norm2))


class Head(nn.Module):
    """Final projection and loss over `vocab` columns."""

    def __init__(self, hidden, vocab, dtype=None, device=None):
        super().__init__()
        self.projection = nn.Linear(hidden, vocab, bias=False, dtype=dtype, device=device)

    def forward(self, x, targets):
        logits = self.projection(x).flatten(0, -2)
        return F.cross_entropy(logits.float(), targets.flatten())


def tensor_parallel(block, mesh):
    """DTensor's column and row splits of a whole block over `mesh`: an all_reduce after attention and after the MLP."""
    parallelize_module(block, mesh, {
        "qkv": ColwiseParallel(), "out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel(),
    })
    block.heads, block.kv_heads = block.heads // mesh.size(), max(block.kv_heads // mesh.size(), 1)


def vocabulary_parallel(module, mesh, name):
    """The vocabulary of the `embedding` or `projection` of a module, split over `mesh`."""
    split = RowwiseParallel(input_layouts=Replicate()) if name == "embedding" else ColwiseParallel(
        output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(module, mesh, {name: split})


def context_parallel(block, mesh):
    """Keys and values are gathered before attention; their gradients are scattered back."""

    def gather(kv):
        whole = DTensor.from_local(kv, mesh, [Shard(2)], run_check=False).redistribute(placements=[Replicate()])
        return whole.to_local(grad_placements=[Partial()])

    block.gather = gather


def expert_parallel(block, mesh):
    """Rows travel to the ranks of their experts and back; the block has this rank's experts."""

    def exchange(rows):
        return all_to_all_single_autograd(rows, None, None, mesh.get_group())

    block.experts.dispatch = block.experts.combine = exchange


def connect(cuda, threads):
    """This rank's device; joins the process group, unless it has."""
    if "RANK" not in os.environ:
        sys.exit("start it with torchrun: torchrun --nproc-per-node 2 probe.py --out probe.json")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(threads)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if cuda else "gloo")
    return device


class Probe:
    """The process group, the clock and the file."""

    def __init__(self, args):
        self.cuda = torch.cuda.is_available() and not args.cpu
        self.device = connect(self.cuda, args.threads)
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
        self.meshes = {}

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

    def mesh(self, ranks):
        """The neighbours this rank forms a group of `ranks` with; none where the world does not divide."""
        if self.world % ranks:
            return None
        if ranks not in self.meshes:
            rows = torch.arange(self.world).view(-1, ranks)
            self.meshes[ranks] = DeviceMesh(self.device.type, rows, mesh_dim_names=("groups", "split"))["split"]
        return self.meshes[ranks]

    def samples(self, run, member=True, repeat=1):
        """Sorted seconds of `run`, the slowest rank's quantiles; all ranks take part in the same number of rounds. A round is
        `repeat` calls in a row. Where `run` returns times of its own parts, a list of sorted seconds for each part."""
        rounds, started, warmup = [], time.monotonic(), 2
        while True:
            dist.barrier()
            self.sync()
            begin, own = time.perf_counter(), None
            for _ in range(repeat if member else 0):
                own = run()
            self.sync()
            parts = isinstance(own, list)
            rounds.append(own if parts else [(time.perf_counter() - begin) / repeat])
            if len(rounds) == warmup:
                started = time.monotonic()
            if len(rounds) < warmup + LEAST_SAMPLES:
                continue
            over = time.monotonic() - started > self.each or len(rounds) >= warmup + MOST_SAMPLES
            flag = torch.tensor([float(over)], device=self.device)
            dist.broadcast(flag, src=0)
            if flag.item() > 0:
                break
        columns = [sorted(column) if member else [0.0] * len(column) for column in zip(*rounds[warmup:])]
        slowest = torch.tensor(columns, dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return slowest.tolist() if parts else slowest.tolist()[0]

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
        part = f"{self.path}.part"
        with open(part, "w") as file:
            json.dump(self.report, file, indent=1)
        os.replace(part, self.path)


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


def chained(modules, x, extra):
    """`x` through layers of one kind one after the other."""
    for module in modules:
        x = module(x, *extra)
    return x


def passes(probe, modules, x, extra):
    """Sorted seconds of forward and of backward of one layer, as training makes them: several layers in a row, a graph of its
    own for every pass, gradients accumulated."""
    count = len(modules)

    def run():
        x.grad = None
        begin = time.perf_counter()
        output = chained(modules, x, extra)
        probe.sync()
        middle = time.perf_counter()
        output.backward(torch.ones_like(output))
        probe.sync()
        return [(middle - begin) / count, (time.perf_counter() - middle) / count]

    return [summary(part) for part in probe.samples(run)]


def layer(probe, kind, make, split, x, extra, sizes, count):
    """Forward, input gradient and weight gradient of a layer alone on its rank, and the memory around them; then what the
    collectives of its group add to them, where `split` makes a whole layer one of a group."""
    modules = [make() for _ in range(count)]
    parameters = list(modules[0].parameters())
    inputs = [x] if x.is_floating_point() else []
    for tensor in inputs:
        tensor.requires_grad_(True)
    forward, backward = passes(probe, modules, x, extra)
    into = {"seconds": 0.0, "spread": 0.0}
    if inputs:
        output = modules[0](x, *extra)
        grad = torch.ones_like(output)
        into, both = [summary(probe.samples(lambda: torch.autograd.grad(output, wanted, grad, retain_graph=True)))
                      for wanted in (inputs, inputs + parameters)]
        # Of the backward as training runs it, the share that the input's gradient has of both.
        into["seconds"] = backward["seconds"] * min(into["seconds"] / both["seconds"], 1.0)
    entry = {
        "kind": kind, **sizes,
        "forward_seconds": forward["seconds"],
        "input_gradient_seconds": into["seconds"],
        "weight_gradient_seconds": max(backward["seconds"] - into["seconds"], 0.0),
        "spread": max(forward["spread"], backward["spread"], into["spread"]),
        "saved_bytes": saved_bytes(lambda: modules[0](x, *extra), parameters),
    }
    if probe.cuda:
        entry |= device_memory(modules[0], x, extra)
    if split is not None:
        del modules
        whole = [split() for _ in range(count)]
        with loss_parallel() if kind == "head" and sizes["tp"] > 1 else contextlib.nullcontext():
            together = passes(probe, whole, x, extra)
        for name, alone, joined in zip(("forward", "backward"), (forward, backward), together):
            entry[f"exposed_{name}_seconds"] = max(joined["seconds"] - alone["seconds"], 0.0)
            entry["spread"] = max(entry["spread"], joined["spread"])
    return entry


def device_memory(module, x, extra):
    """Bytes allocated and reserved around a forward and a backward."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    output = module(x, *extra)
    allocated = torch.cuda.memory_allocated() - before
    output.backward(torch.ones_like(output))
    return {"allocated_bytes": allocated, "peak_allocated_bytes": torch.cuda.max_memory_allocated() - before,
            "reserved_bytes": torch.cuda.memory_reserved()}


class Embedding(nn.Module):
    """The table that tokens are looked up in."""

    def __init__(self, hidden, vocab, dtype=None, device=None):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden, dtype=dtype, device=device)

    def forward(self, tokens):
        return self.embedding(tokens)


def layers(probe):
    model, kwargs = SPEC["model"], {"dtype": probe.dtype, "device": probe.device}
    hidden, vocab = model["hidden"], model["vocab"]

    def whole(make, *steps):
        module = make()
        for step in steps:
            step(module)
        return module

    def take(key, tp, cp, ep, shape, sizes):
        mesh = probe.mesh(tp * cp * ep) if tp * cp * ep > 1 else None
        tokens = torch.randint(vocab, shape[:2], device=probe.device)
        part = -(-vocab // tp)

        def block():
            add = tensor_parallel if tp > 1 else context_parallel if cp > 1 else expert_parallel
            place = {"cp": cp, "cp_rank": probe.rank % cp} if cp > 1 else {"ep": ep}
            split = (lambda: whole(lambda: Block(model, **place, **kwargs), lambda b: add(b, mesh))) if mesh else None
            return layer(probe, "block", lambda: Block(model, tp, cp, ep=ep, **kwargs), split,
                         torch.randn(shape, **kwargs), (), sizes, SPEC["chain"])

        def head():
            split = lambda: whole(lambda: Head(hidden, vocab, **kwargs), lambda h: vocabulary_parallel(h, mesh, "projection"))
            return layer(probe, "head", lambda: Head(hidden, part, **kwargs), split if mesh and tp > 1 else None,
                         torch.randn(shape, **kwargs), (tokens % part,), sizes, 1)

        def embedding():
            split = lambda: whole(lambda: Embedding(hidden, vocab, **kwargs), lambda e: vocabulary_parallel(e, mesh, "embedding"))
            return layer(probe, "embedding", lambda: Embedding(hidden, vocab, **kwargs), split if mesh and tp > 1 else None,
                         tokens, (), sizes, 1)

        probe.take("layers", "block " + key, block)
        if ep > 1:
            return
        probe.take("layers", "head " + key, head)
        probe.take("layers", "embedding " + key, embedding)

    for seq in SPEC["seq_lens"]:
        for batch in SPEC["micro_batches"]:
            for tp, cp in SPEC["splits"]:
                if seq % cp == 0 and model["heads"] % tp == 0:
                    sizes = {"seq_len": seq, "micro_batch": batch, "tp": tp, "cp": cp}
                    take(f"s{seq} b{batch} tp{tp} cp{cp}", tp, cp, 1, (batch, seq // cp, hidden), sizes)
            for ep in SPEC["eps"]:
                sizes = {"seq_len": seq, "micro_batch": batch, "tp": 1, "cp": 1, "ep": ep}
                take(f"s{seq} b{batch} ep{ep}", 1, 1, ep, (batch, seq, hidden), sizes)


def kernels(probe):
    model, kwargs = SPEC["model"], {"dtype": probe.dtype, "device": probe.device}
    width, hidden = model["head_dim"], model["hidden"]
    tokens = {seq * batch // cp for seq in SPEC["seq_lens"] for batch in SPEC["micro_batches"] for _, cp in SPEC["splits"]}
    products = set()
    for tp in {tp for tp, _ in SPEC["splits"]}:
        qkv = (model["heads"] + 2 * model["kv_heads"]) * width // tp
        products |= {(qkv, hidden), (hidden, model["heads"] * width // tp), (model["vocab"] // tp, hidden)}
        ffn = model["shared_ffn" if model["experts"] else "ffn"] // tp
        if ffn:
            products |= {(ffn * (2 if model["gated"] else 1), hidden), (hidden, ffn)}
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
        blocks = [module] + [Block(model, dtype=probe.dtype, device=probe.device) for _ in range(SPEC["chain"] - 1)]
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


OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


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
        for op in OPERATIONS:
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
                        repeat = SMALL_CALLS if size <= SMALL_BYTES else LARGE_CALLS
                        points.append({"bytes": size, **summary(probe.samples(run, member, repeat))})
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


STAGES = (layers, optimizer, collectives, pairs, kernels)


def measure(probe, stages=STAGES):
    """All of the stages, and the file."""
    for stage in stages:
        stage(probe)
    if probe.rank == 0:
        probe.report["complete"] = not probe.stopped
        probe.write()
        state = "time is up: start it again to go on" if probe.stopped else "complete"
        print(f"{probe.path}: {state}", file=sys.stderr)


def arguments(words=None):
    """Of the command line, or of `words`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="JSON file to write, or to go on with")
    parser.add_argument("--limit", type=float, default=900, help="seconds after which it stops (default 900)")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds of samples per measurement (default 0.3)")
    parser.add_argument("--dtype", choices=["bf16", "fp16", "fp32"], help="default: bf16 on GPUs, fp32 on CPUs")
    parser.add_argument("--cpu", action="store_true", help="use gloo and the CPU though there are GPUs")
    parser.add_argument("--threads", type=int, default=1, help="threads of a process on a CPU (default 1)")
    return parser.parse_args(words)


def main():
    measure(Probe(arguments()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
