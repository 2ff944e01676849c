from __future__ import annotations

import pytest
import torch

from convergent import Auto, InputError
from convergent.tasks.batch import GraphBatch
from convergent.training.config import TrainConfig
from convergent.training.evaluate import Certificate, Tally, Trained, evaluate, schema_of, unseen
from convergent.training.problem import TEST, Problem
from convergent.training.run import save_model

CONFIG = TrainConfig(task="value-iteration", model="CGS(8)", task_settings={"states": [8, 12], "actions": [2, 3]})


@pytest.fixture
def file(tmp_path):
    problem = Problem.of(CONFIG)
    torch.manual_seed(0)
    extra = {"config": CONFIG.to_json(), "schema": problem.schema.to_json()}
    save_model(tmp_path / "model.safetensors", problem.build(), extra)
    return tmp_path / "model.safetensors"


def test_measures_do_not_depend_on_batches(file) -> None:
    trained = Trained.load(file)
    problem = trained.problem()
    whole = problem.batch(TEST, 0, 8)
    together = evaluate(trained, problem, [whole])
    apart = evaluate(trained, problem, whole.split())
    assert together["graphs"] == apart["graphs"] == 8
    for name, value in together["measures"].items():
        assert apart["measures"][name] == pytest.approx(value, rel=1e-4)
        assert apart["std"][name] == pytest.approx(together["std"][name], rel=1e-3)
    assert together["solves"]["not_converged"] == 0
    assert 0 < together["solves"]["worst_bound"] <= 1e-5


def test_new_graphs_by_seed_and_settings(file) -> None:
    trained = Trained.load(file)
    sizes = [batch.num_graphs for batch in unseen(trained.problem(), 70)]
    assert sizes == [32, 32, 6]
    large = next(unseen(trained.problem({"states": [40, 40]}), 2))
    assert large.sizes.tolist() == [40, 40]
    first, other = (next(unseen(trained.problem(seed=seed), 2)) for seed in (0, 1))
    assert first.y.shape != other.y.shape or not torch.equal(first.y, other.y)


def test_a_solve_that_fails_is_reported(file) -> None:
    trained = Trained.load(file)
    trained.model.solver = Auto(tol=1e-30, throw=False)
    batch = trained.problem().batch(TEST, 0, 3)
    _, certificate = trained(batch)
    assert certificate.words() == ["precision"] * 3
    tally = Tally()
    tally.add({}, batch, certificate)
    assert tally.not_converged == 3


def test_a_model_without_fixed_points_has_nothing_to_certify() -> None:
    certificate = Certificate.of(None, 2)
    assert certificate.words() == ["converged", "converged"]
    assert certificate.bound.tolist() == [0, 0]


def test_totals() -> None:
    total = Tally.total([Tally(graphs=2, nodes=5, most_iterations=7), Tally(graphs=1, nodes=3, worst_bound=0.5, not_converged=1)])
    assert (total.graphs, total.nodes, total.most_iterations, total.worst_bound, total.not_converged) == (3, 8, 7, 0.5, 1)


def test_an_empty_batch_counts_nothing(file) -> None:
    trained = Trained.load(file)
    index = torch.zeros(2, 0, dtype=torch.long)
    nothing = GraphBatch(torch.zeros(0, 1), index, torch.zeros(0, 1), torch.zeros(0, 1), index[0], 0)
    answer, certificate = trained(nothing)
    assert answer.shape == (0, 1)
    tally = Tally()
    tally.add({}, nothing, certificate)
    assert tally.graphs == 0


def test_headers_that_say_too_little(tmp_path) -> None:
    model = Problem.of(CONFIG).build()
    save_model(tmp_path / "bare.safetensors", model)
    with pytest.raises(InputError, match="config: expected an entry, but got none"):
        Trained.load(tmp_path / "bare.safetensors")
    save_model(tmp_path / "graphs.safetensors", model, {"config": CONFIG.to_json(), "schema": None})
    with pytest.raises(InputError, match="a model of value-iteration does not"):
        schema_of(Trained.load(tmp_path / "graphs.safetensors"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": []}, "schema.targets: expected 1 columns, as the model has answers, but got 0"),
        ({"targets": ["a", "b"]}, "schema.targets: expected 1 columns, as the model has answers, but got 2"),
        ({"targets": ["a", "a"]}, "targets: expected every column once, but got 'a' twice"),
        ({"targets": ["zero"]}, "targets: expected columns that are no features, but got zero"),
        ({"targets": ["graph"]}, "targets: expected columns other than graph, node, which hold ids, but got 'graph'"),
        ({"nodes": [{"name": "a"}, {"name": "b"}]}, "schema: expected features of the widths of the model"),
        ({"edges": [{"name": "source"}]}, "edges: expected columns other than graph, source, target, which hold ids"),
        ({"nodes": 5}, r"schema\.nodes: expected a list of .*, but got 5"),
        ({"colour": 5}, "schema: expected some of nodes, edges, targets, but got 'colour'"),
    ],
)
def test_headers_whose_columns_do_not_fit_the_model(tmp_path, change, message) -> None:
    problem = Problem.of(CONFIG)
    extra = {"config": CONFIG.to_json(), "schema": {**problem.schema.to_json(), **change}}
    save_model(tmp_path / "model.safetensors", problem.build(), extra)
    with pytest.raises(InputError, match=message):
        Trained.load(tmp_path / "model.safetensors")


def test_columns_of_before_there_were_logarithms_can_be_read(tmp_path) -> None:
    problem = Problem.of(CONFIG)
    schema = {
        "nodes": [{"name": "zero", "categories": None}],
        "edges": [{"name": "reward", "categories": None}],
        "targets": ["value"],
    }
    save_model(tmp_path / "model.safetensors", problem.build(), {"config": CONFIG.to_json(), "schema": schema})
    assert Trained.load(tmp_path / "model.safetensors").schema == problem.schema
