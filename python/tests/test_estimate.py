"""`sandtimer.estimate`: the table, the runs of a server, and what is refused."""

from __future__ import annotations

import os
import pathlib

import pytest

import sandtimer


def test_the_figures_of_the_description_hold_without_history(tmp_path: pathlib.Path) -> None:
    estimate = sandtimer.estimate("train_complex_model", 2300, complexity="moderate", state_dir=tmp_path)
    assert (estimate.best, estimate.typical, estimate.worst) == (720.0, 1800.0, 5400.0)
    assert (estimate.basis, estimate.runs, estimate.fits_budget) == ("prior", 0, None)
    assert "   ⚡ Best case:  12m 0s\n   📈 Typical:    30m 0s\n   ⚠️ Worst case: 1h 30m\n" in str(estimate)
    assert os.listdir(tmp_path) == []


def test_a_budget_says_whether_it_fits(tmp_path: pathlib.Path) -> None:
    estimate = sandtimer.estimate("feature_engineering", budget=15 * 60, state_dir=tmp_path)
    assert estimate.fits_budget is False
    assert estimate.chance_within_budget is not None and estimate.chance_within_budget < 0.5
    unlimited = sandtimer.estimate("feature_engineering", budget=0, state_dir=tmp_path)
    assert (unlimited.fits_budget, unlimited.chance_within_budget) == (None, None)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"task_type": "train_model"}, ["train_model", "train_simple_model"]),
        ({"task_type": "load_data", "data_size_mb": -1}, ["data_size_mb", "-1"]),
        ({"task_type": "load_data", "data_size_mb": float("nan")}, ["data_size_mb=nan", "from 0 to 1e+12"]),
        ({"task_type": "load_data", "data_size_mb": float("inf")}, ["data_size_mb=inf"]),
        ({"task_type": "load_data", "data_size_mb": 1e300}, ["data_size_mb=1e+300"]),
        ({"task_type": "load_data", "data_size_mb": 10**400}, ["data_size_mb=1000"]),
        ({"task_type": "load_data", "budget": 10**5000}, ["budget=", "from 0 to 1e+09"]),
        ({"task_type": "load_data", "data_size_mb": True}, ["data_size_mb=True"]),
        ({"task_type": "load_data", "data_size_mb": "5"}, ["data_size_mb='5'"]),
        ({"task_type": "load_data", "budget": True}, ["budget=True"]),
        ({"task_type": "load_data", "budget": 1e300}, ["budget=1e+300", "from 0 to 1e+09"]),
        ({"task_type": "load_data", "complexity": "hard"}, ["complexity", "hard"]),
        ({"task_type": "load_data", "budget": -1.0}, ["budget", "-1"]),
        ({}, ["task_type"]),
    ],
)
def test_what_cannot_be_estimated_is_refused_by_name(
    asked: dict[str, object], words: list[str], tmp_path: pathlib.Path
) -> None:
    with pytest.raises(sandtimer.EstimateRefusedError) as refused:
        sandtimer.estimate(**asked, state_dir=tmp_path)  # type: ignore[arg-type]
    assert isinstance(refused.value, ValueError)
    for word in words:
        assert word in str(refused.value)


def test_a_damaged_history_is_said(tmp_path: pathlib.Path) -> None:
    (tmp_path / "durations.sqlite").write_text("no database")
    with pytest.warns(RuntimeWarning, match="damaged"):
        sandtimer.estimate("load_data", state_dir=tmp_path)
