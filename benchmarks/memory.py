"""Peak memory of one forward and backward pass, measured in a process of its own.

The peak is Linux's VmHWM: how far the resident memory of the whole process rose above what it was just before the call,
whoever allocated it (torch, numpy or numba). Everything is loaded and compiled on a small batch first, and the mark is
reset in between.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import workloads
from benchmarks.machine import ROOT
from benchmarks.peers import layers

METHOD = "growth of VmHWM over VmRSS, reset through /proc/self/clear_refs, in a fresh process after a small warm-up"
LAYERS: dict[str, Callable[[workloads.Workload, float], layers.Layer]] = {
    "convergent": layers.convergent_layer,
    "dense": lambda work, tol: layers.dense_layer(work, tol),
}


def peak_in_subprocess(layer: str, settings: dict[str, Any]) -> int:
    """Bytes that the layer needs beyond its inputs."""
    command = [sys.executable, "-m", "benchmarks.memory", layer, json.dumps(settings)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {layer} failed:\n{done.stderr}")
    return int(done.stdout)


def peak(layer: str, graphs: int, heads: int, gamma: float, tol: float, seed: int, threads: int) -> int:
    torch.set_num_threads(threads)
    _pass(layer, workloads.decision_processes(2, heads, gamma, seed), tol)
    work = workloads.decision_processes(graphs, heads, gamma, seed)
    work.graph.transpose()
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what lies free in the heap would hide what is needed
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    _pass(layer, work, tol)
    return _status("VmHWM") - before


def _pass(layer: str, work: workloads.Workload, tol: float) -> None:
    weight, bias = work.weight.requires_grad_(), work.bias.requires_grad_()
    LAYERS[layer](work, tol)(weight, bias).sum().backward()


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layer", choices=LAYERS)
    parser.add_argument("settings", type=json.loads)
    arguments = parser.parse_args()
    print(peak(arguments.layer, **arguments.settings))
