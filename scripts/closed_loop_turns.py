"""Turns: several programs of the closed loop stay loaded and measure one after the other, so that all see the same machine.

A rank connects to the driver (`MESHWRIGHT_TURNS`, host:port), waits for a line of JSON, does what it says, answers with one.
"""

import contextlib
import gc
import importlib.util
import json
import os
import socket
import statistics
import time

ADDRESS, PRIORITY = "MESHWRIGHT_TURNS", "MESHWRIGHT_PRIORITY"
# Products, and an activation, that the machine's speed is watched by; the same work in every program of the closed loop.
REFERENCE_REPEATS, REFERENCE_CALLS = 5, 6


def isolate(cuda):
    """One CPU for each rank's threads and, where it is wanted and the system allows it, priority over other programs. True where
    it does."""
    if cuda:
        return False
    own = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {own[int(os.environ["LOCAL_RANK"]) % len(own)]})
    if os.environ[PRIORITY] == "no":
        return False
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        # The scheduler's group of this session, which weighs more than the process where there are such groups.
        with contextlib.suppress(FileNotFoundError), open("/proc/self/autogroup", "w") as file:
            file.write("-20")
    except OSError:
        return False
    return True


def load(path):
    """The probe as a module."""
    loader = importlib.util.spec_from_file_location("probe", path)
    probe = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(probe)
    return probe


class Reference:
    """Fixed work whose duration tells how fast the machine is just now."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        size, dtype = ((4096, 4096, 4096), torch.bfloat16) if device.type == "cuda" else ((512, 256, 1024), torch.float32)
        self.a = torch.randn(size[0], size[1], device=device, dtype=dtype)
        self.b = torch.randn(size[2], size[1], device=device, dtype=dtype)

    def seconds(self):
        times = []
        for _ in range(REFERENCE_REPEATS):
            begin = time.perf_counter()
            for _ in range(REFERENCE_CALLS):
                y = self.torch.nn.functional.linear(self.a, self.b)
                y = self.torch.nn.functional.gelu(y) + y
            if self.device.type == "cuda":
                self.torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        return statistics.median(times)


def serve(turn, reference, barrier):
    """Answers turns until the driver hangs up: `turn(message)` between two readings of the reference."""
    host, port = os.environ[ADDRESS].rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rw") as lines:
        rank = int(os.environ["RANK"])
        lines.write(json.dumps({"rank": rank}) + "\n")
        lines.flush()
        for line in lines:
            gc.collect()
            gc.disable()
            barrier()
            before = reference.seconds()
            answer = turn(json.loads(line))
            barrier()
            answer["reference"] = [before, reference.seconds()]
            gc.enable()
            lines.write(json.dumps(answer) + "\n")
            lines.flush()


class Group:
    """The driver's side: the ranks of one program, started by `start(environment)`."""

    def __init__(self, start):
        self.server = socket.create_server(("localhost", 0))
        self.process = start({ADDRESS: f"localhost:{self.server.getsockname()[1]}"})
        self.files = []

    def join(self, ranks, patience=180):
        """Waits until all ranks are there."""
        self.server.settimeout(1)
        by_rank, last = {}, time.monotonic() + patience
        while len(by_rank) < ranks:
            if self.process.poll() is not None or time.monotonic() > last:
                raise SystemExit("a program of the closed loop did not start: see above")
            with contextlib.suppress(TimeoutError):
                link, _ = self.server.accept()
                link.settimeout(None)
                file = link.makefile("rw")
                by_rank[json.loads(file.readline())["rank"]] = file
        self.files = [by_rank[rank] for rank in range(ranks)]
        return self

    def turn(self, **message):
        """Every rank's answer."""
        for file in self.files:
            file.write(json.dumps(message) + "\n")
            file.flush()
        answers = [file.readline() for file in self.files]
        if not all(answers):
            raise SystemExit("a program of the closed loop ended early: see above")
        return [json.loads(answer) for answer in answers]

    def end(self):
        for file in self.files:
            file.close()
        if self.process.wait() != 0:
            raise SystemExit("a program of the closed loop failed: see above")
