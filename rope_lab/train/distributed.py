"""One run on several devices: `torchrun --nproc-per-node 2 -m rope_lab.train …`. A no-op with one
process.

Every rank runs the same loop, on its share of each batch; rank 0 alone records and prints.
"""

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rope_lab.text import ConfigError
from rope_lab.train.stop import RunFailed


class Lost(RunFailed):
    """Another process of the run has ended."""


def launched() -> int:
    """How many processes torchrun has started for this run; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def mute_others() -> bool:
    """Mute this process unless it is the first on its machine; returns whether it was muted."""
    muted = launched() > 1 and os.environ["LOCAL_RANK"] != "0"
    if muted:
        sys.stdout = sys.stderr = io.StringIO()
    return muted


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Within it the processes of torchrun are ranks of one run, each with a GPU of its own."""
    if launched() == 1:
        yield
        return
    on_gpus = device in ("auto", "cuda") and torch.cuda.is_available()
    if on_gpus:
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        if torch.cuda.device_count() < here:
            few = f"torch finds {torch.cuda.device_count()} GPUs for {here} processes"
            raise ConfigError(f"torchrun --nproc-per-node {here}: {few}; start fewer")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # Optimizers import it; once there is a group, its functions would keep that alive
    # (pytorch/pytorch#190489).
    from torch.distributed.nn import functional  # noqa: F401

    _together(dist.init_process_group, "cpu:gloo,cuda:nccl" if on_gpus else "gloo")
    try:
        yield
    except Exception as error:
        # Raised on every rank, or reported by the first.
        if not isinstance(error, ConfigError | Lost):
            sys.stderr = sys.__stderr__
        raise
    finally:
        dist.destroy_process_group()


def _together(collective: Callable[..., Any], *arguments: Any) -> None:
    """Call an operation that all ranks take part in. Raises Lost."""
    try:
        collective(*arguments)
    except RuntimeError as error:
        said = (
            "another process of this run has ended: its last checkpoint stays valid; "
            "run the same command again"
        )
        raise Lost(said) from error


def agreed(number: int) -> int:
    """The largest `number` of all ranks, each of which waits for the others."""
    largest = torch.tensor(number)
    if launched() > 1:
        _together(dist.all_reduce, largest, dist.ReduceOp.MAX)
    return int(largest)


def of_first(value: Any) -> Any:
    """Rank 0's value, on every rank."""
    values = [value]
    if launched() > 1:
        _together(dist.broadcast_object_list, values)
    return values[0]


def summed(parameters: Iterable[nn.Parameter], losses: list[Tensor]) -> list[Tensor]:
    """Add up the gradients of all ranks, in place, and all their `losses`, to one.

    One all-reduce sums in the same order in each step; the buckets of DistributedDataParallel
    change after the first.
    """
    if launched() == 1:
        return losses
    gradients = [p.grad for p in parameters if p.grad is not None]
    loss = torch.stack(losses).sum()
    flat = nn.utils.parameters_to_vector([*gradients, loss])
    _together(dist.all_reduce, flat)
    nn.utils.vector_to_parameters(flat, [*gradients, loss])
    return [loss]
