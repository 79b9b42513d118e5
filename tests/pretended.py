"""A simulated device: tensors on `pretended:0` are separate from the CPU's, as on a GPU; the CPU
computes them.

An operator on tensors of both raises RuntimeError, as on CUDA, and operators that would wait for a
GPU are recorded.
It computes in float32: autocast needs a GPU.

Import this module before the first backward pass: it registers the device with torch for the rest
of the process.
"""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from rope_lab.model import device
from rope_lab.train import trainer
from rope_lab.train.config import Config

NAME = "pretended"
NOT_HERE = "same device"
aten = torch.ops.aten
WAITS = {  # operators that wait for computed values: for the shape of a result or a Python number
    *(
        aten._local_scalar_dense.default,
        aten.nonzero.default,
        aten.masked_select.default,
        aten.equal.default,
    ),
    *(
        aten._unique2.default,
        aten.unique_dim.default,
        aten.bincount.default,
        aten.repeat_interleave.Tensor,
    ),
}
# At this depth torch no longer supports tensors that are only marked as conjugate or negative.
PHYSICAL = {
    aten._conj.default: aten.conj_physical.default,
    aten._neg_view.default: aten.neg.default,
}


class Pretended(Tensor):
    """A tensor on the device; `inner` holds its numbers on the CPU."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Pretended":
        like = {
            "dtype": inner.dtype,
            "strides": inner.stride(),
            "storage_offset": inner.storage_offset(),
        }
        return Tensor._make_wrapper_subclass(
            cls, inner.size(), device=torch.device(NAME, 0), **like
        )

    def __init__(self, inner: Tensor):
        self.inner = inner

    def __repr__(self, **_: Any) -> str:
        return f"pretended {self.inner}"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        return compute(operator, args, kwargs or {}, [])


class Mode(TorchDispatchMode):
    """Create tensors on the device if requested; `seen`: the operators and copies that wait for
    it.
    """

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return compute(operator, args, kwargs or {}, self.seen)


def check_together(operator: Callable, tensors: list[Tensor], there: list[bool]) -> None:
    """Raises RuntimeError for tensors of both devices; those without dimensions may mix."""
    here = [x for x, is_there in zip(tensors, there, strict=True) if not is_there]
    if any(x.dim() for x in here):
        raise RuntimeError(f"tensors must be on the {NOT_HERE}, not {NAME} and cpu: {operator}")


def waits(operator: Callable, args: tuple) -> list[str]:
    """The operator if it waits for the device, as a choice by a mask does."""
    masks = args[1] if operator is aten.index.Tensor else ()
    by_mask = any(x is not None and x.dtype == torch.bool for x in masks)
    return [str(operator)] if operator in WAITS or by_mask else []


def compute(operator: Callable, args: tuple, kwargs: dict[str, Any], seen: list[str]) -> Any:
    """The result of an operator, on the device or the CPU. Raises RuntimeError for tensors of
    both.
    """
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    there = [isinstance(x, Pretended) for x in tensors]
    asked = kwargs.get("device")
    goes_there = any(there) if asked is None else torch.device(asked).type == NAME
    if operator is aten.copy_.default:
        goes_there = there[0]
    if operator in (aten._to_copy.default, aten.copy_.default):
        if there[-1] and not goes_there:
            seen.append("to the CPU")
    elif any(there):
        check_together(operator, tensors, there)
        seen += waits(operator, args)
    if asked is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    args, kwargs = tree_map_only(Pretended, lambda x: x.inner, (args, kwargs))
    found = PHYSICAL.get(operator, operator)(*args, **kwargs)
    if not goes_there:
        return found
    made = [x.dtype for x in tree_leaves(found) if isinstance(x, Tensor)]
    if torch.float64 in made and not device.has_float64(torch.device(NAME)):
        raise TypeError(f"{NAME} has no float64: {operator}")
    return tree_map_only(Tensor, Pretended, found)


@contextlib.contextmanager
def pretending() -> Iterator[list[str]]:
    """A context in which the device exists; yields the list of waits."""

    def tensor(*args: Any, device: Any = "cpu", **kwargs: Any) -> Tensor:
        return on_cpu(*args, **kwargs).to(device)

    on_cpu = torch.tensor
    with pytest.MonkeyPatch.context() as patch, Mode() as mode:
        patch.setattr(BACKEND, "count", 1)
        patch.setattr(Tensor, "pin_memory", lambda x: x)
        patch.setattr(torch, "tensor", tensor)  # torch's own bypasses dispatch in Python
        # In it torch cannot view tensors of a Python device.
        patch.setattr(torch, "inference_mode", torch.no_grad)
        yield mode.seen


def resolved(cfg: Config) -> Config:
    """`trainer.resolve`, with this device."""
    cfg = trainer.resolve(cfg)
    object.__setattr__(cfg, "device", NAME)
    return cfg


BACKEND = SimpleNamespace(count=0)
BACKEND.device_count = lambda: BACKEND.count
BACKEND.is_available = lambda: BACKEND.count > 0
BACKEND.is_initialized = lambda: True
BACKEND._is_in_bad_fork = lambda: False
BACKEND.current_device = lambda: 0
BACKEND.manual_seed_all = lambda seed: None
BACKEND.get_amp_supported_dtype = lambda: [torch.bfloat16]


class Hook(backend_registration._DummyPrivateUse1Hook):
    def is_available(self) -> bool:
        return BACKEND.is_available()


backend_registration._setup_privateuseone_for_python_backend(
    NAME, backend_module=BACKEND, hook=Hook()
)
