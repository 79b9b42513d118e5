"""One run on several devices: `torchrun --nproc-per-node 2 -m rope_lab.train …`.

Rank 0 trains as a process on its own does, and it alone decides, records and shows. The other ranks hold the same
weights; before rank 0 does what all ranks have a part in, it asks them to. Alone, nothing here does anything.
"""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rope_lab.text import ConfigError
from rope_lab.train.signals import Stop

Item, Found = TypeVar("Item"), TypeVar("Found")

END = 0  # what rank 0 asks for last
_size = 1  # ranks of this run


class Lost(Exception):
    """Another rank is no more."""


def launched() -> int:
    """How many processes torchrun has started for this run; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def is_first() -> bool:
    """Whether this is the first of torchrun's processes on this machine, or its only one."""
    return launched() == 1 or os.environ["LOCAL_RANK"] == "0"


@contextmanager
def one_voice(exit_status: int) -> Iterator[None]:
    """Leaves it to the first process to say what all would, and to end with `exit_status`; see `speak`."""
    if not is_first():
        sys.stdout = sys.stderr = io.StringIO()
    try:
        yield
    except SystemExit as end:  # torchrun ends all processes once one has failed: the first has to be heard before
        if is_first() or end.code != exit_status:
            raise


def speak() -> None:
    """From here on what goes wrong in this process is its own, and it says so."""
    if not is_first():
        sys.stderr = sys.__stderr__


def size() -> int:
    return _size


def rank() -> int:
    return dist.get_rank() if _size > 1 else 0


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Within it the processes that torchrun has started are ranks of one run, each with a GPU of its own if any.

    Raises ConfigError where there are not so many GPUs.
    """
    global _size
    if launched() == 1:
        yield
        return
    gpus, here = torch.cuda.device_count(), int(os.environ["LOCAL_WORLD_SIZE"])
    on_gpus = device == "cuda" or (device == "auto" and gpus > 0)
    if on_gpus and here > gpus:
        raise ConfigError(
            f"torchrun --nproc-per-node {here}: torch finds {gpus} GPUs; start no more than that, or take device=cpu"
        )
    if on_gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # Imported once there is a group (optimizers do), its functions would hold the group as a default argument, and the
    # group's threads would live until Python ends, which they can turn into an abort (pytorch/pytorch#190489).
    from torch.distributed.nn import functional  # noqa: F401

    with _with_all():
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpus else "gloo")
    _size = dist.get_world_size()
    try:
        yield
        ask(END)
    except SystemExit:  # at any other error the others may be at work, and see this process end
        with suppress(Lost):
            ask(END)
        raise
    finally:
        _size = 1
        dist.destroy_process_group()


@contextmanager
def _with_all() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise Lost(
            "another process of this run has ended: its last checkpoint stays good; run the same command again"
        ) from error


def ask(act: int, n: int = 0) -> None:
    """On rank 0: the others are to do `act`, with `n`. A signal that has come to one of them comes to this process."""
    if _size > 1 and rank() == 0:
        _, _, caught = _agree(act, n, 0)
        if caught and act != END:
            signal.raise_signal(caught)


def asked() -> Iterator[tuple[int, int]]:
    """On other ranks: each act that rank 0 asks for, with its number, until the end."""
    with Stop() as stopping:
        while (order := _agree(0, 0, stopping.caught))[0] != END:
            yield order[0], order[1]


def _agree(*numbers: int) -> list[int]:
    """The largest of each number on all ranks."""
    agreed = torch.tensor(numbers)
    with _with_all():
        dist.all_reduce(agreed, dist.ReduceOp.MAX)
    return agreed.tolist()


def share_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gives every rank the weights and the optimizer state of rank 0."""
    if _size == 1:
        return
    buffer, device = io.BytesIO(), next(model.parameters()).device
    if rank() == 0:
        torch.save([model.state_dict(), optimizer.state_dict()], buffer)
    content = [buffer.getvalue()]
    with _with_all():
        dist.broadcast_object_list(content)
    if rank() > 0:
        weights, state = torch.load(io.BytesIO(content[0]), map_location=device, weights_only=True)
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)


def summed(parameters: Iterable[nn.Parameter], losses: list[Tensor]) -> list[Tensor]:
    """Adds up the gradients of all ranks, in place, and all their `losses`, to one; alone it returns `losses`.

    One all-reduce of all of them, whose order of sums is the same in each step: DistributedDataParallel's buckets
    change after the first, and a resumed run would not be the run that was not cut off.
    """
    if _size == 1:
        return losses
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([*(g.flatten() for g in gradients), torch.stack(losses).sum(0, keepdim=True)])
    with _with_all():
        dist.all_reduce(flat)
    *sums, loss = flat.split([*(g.numel() for g in gradients), 1])
    for gradient, total in zip(gradients, sums, strict=True):
        gradient.copy_(total.view_as(gradient))
    return [loss[0]]


def shared(act: Callable[[list[Item]], list[Found]], items: list[Item]) -> list[Found]:
    """What `act` finds of each of `items`, on every rank; each works out its part. All ranks have to call it."""
    if _size == 1:
        return act(items)
    own, parts = act(items[rank() :: _size]), [[] for _ in range(_size)]
    with _with_all():
        dist.all_gather_object(parts, own)
    return [parts[i % _size][i // _size] for i in range(len(items))]
