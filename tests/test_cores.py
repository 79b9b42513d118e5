"""The cores that count: of the affinity mask, and of a container's quota."""

import os

import pytest

from rope_lab import cores


def test_only_cores_of_the_affinity_mask_count(monkeypatch):
    monkeypatch.setattr(cores, "QUOTAS", ())
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7}, raising=False)
    assert cores.usable_cores() == 3


@pytest.mark.parametrize(
    ("version", "quota", "expected"),
    [
        (2, "150000 100000", 2),
        (2, "max 100000", 8),
        (1, "400000", 4),
        (1, "-1", 8),
        (2, "9900000 100000", 8),
    ],
)
def test_a_containers_quota_limits_the_cores(monkeypatch, tmp_path, version, quota, expected):
    file = tmp_path / {1: "cpu.cfs_quota_us", 2: "cpu.max"}[version]
    file.write_text(f"{quota}\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    monkeypatch.setattr(cores, "QUOTAS", (tmp_path / "nothing", file))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert cores.usable_cores() == expected
