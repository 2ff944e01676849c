from __future__ import annotations

import pytest
import torch

from convergent import InputError
from convergent.tasks.folder import write_folder
from convergent.training.config import TrainConfig
from convergent.training.problem import TEST, TRAINING, VALIDATION, Problem, node_errors, summary


def config(**changes) -> TrainConfig:
    return TrainConfig(**{"task": "value-iteration", "model": "CGS(16)", **changes})


@pytest.fixture
def networks(tmp_path):
    """Five small pore networks as tables."""
    problem = Problem.of(config(task="pore-networks", model="CGS(8)", task_settings={"pores": [20, 30]}))
    write_folder(tmp_path / "networks", problem.batch(TEST, 0, 5), problem.schema)
    return tmp_path / "networks"


def folder(path, **changes) -> TrainConfig:
    settings = {"path": str(path), "targets": ["pressure"], **changes}
    return config(task="folder", model="CGS(8)", task_settings=settings)


def test_a_batch_depends_on_its_number_alone() -> None:
    problem = Problem.of(config())
    first = problem.batch(TRAINING, 3, 2)
    assert torch.equal(first.y, Problem.of(config()).batch(TRAINING, 3, 2).y)
    others = [problem.batch(TRAINING, 4, 2), problem.batch(VALIDATION, 3, 2), Problem.of(config(seed=1)).batch(TRAINING, 3, 2)]
    for other in others:
        assert first.y.shape != other.y.shape or not torch.equal(first.y, other.y)


@pytest.mark.parametrize(
    ("task", "names"),
    [("value-iteration", ["mape", "policy_accuracy"]), ("pore-networks", ["mse", "mean_error", "largest_error"])],
)
def test_models_and_measures(task, names) -> None:
    problem = Problem.of(config(task=task, model="CGS(8)"))
    batch = problem.held_out(2)
    model = problem.build()
    prediction = model(batch.x, batch.graph, batch.edge_attr).detach()
    measures = problem.measure(prediction, batch)
    assert list(measures) == names
    assert all(len(each) == 2 for each in measures.values())
    exact = problem.measure(batch.y, batch)
    assert float(exact[names[0]].max()) == 0
    assert float(problem.loss(model, batch.y, batch)) == 0
    assert float(problem.loss(model, prediction, batch)) > 0


def test_measures_are_per_graph_and_summed_up() -> None:
    problem = Problem.of(config(task="pore-networks", model="CGS(8)", task_settings={"pores": [20, 40]}))
    batch = problem.batch(TEST, 0, 3)
    prediction = batch.y + torch.linspace(-1, 1, len(batch.y)).unsqueeze(1)
    together = node_errors(prediction, batch)
    for number, part in enumerate(batch.split()):
        alone = node_errors(prediction[batch.batch == number], part)
        for name, each in together.items():
            assert float(each[number]) == pytest.approx(float(alone[name]))
    found = summary(together)
    assert found["largest_error"] == pytest.approx(1.0)
    assert found["mse"] == pytest.approx(float(together["mse"].mean()))


def test_a_loss_has_no_units(networks) -> None:
    problem = Problem.of(folder(networks))
    model, batch = problem.build(), problem.held_out(1)
    mean = model.answers.mean.expand_as(batch.y)
    pascal = Problem.of(folder(networks))
    for part in (*pascal.training, *pascal.validation):
        part.y.mul_(1e5)
    scaled = pascal.build()
    same = scaled.answers.mean.expand_as(batch.y)
    one, other = problem.loss(model, mean, batch), pascal.loss(scaled, same, pascal.held_out(1))
    assert float(one) == pytest.approx(float(other), rel=1e-4)


def test_a_folder_is_split_by_seed_and_seen_whole(networks) -> None:
    problem = Problem.of(folder(networks, validation=0.4))
    assert (len(problem.training), len(problem.validation)) == (3, 2)
    sizes = sorted(len(graph.x) for graph in problem.training)
    epoch = [part for number in range(3) for part in problem.batch(TRAINING, number, 1).split()]
    assert sorted(len(graph.x) for graph in epoch) == sizes
    assert problem.batch(TRAINING, 0, 7).num_graphs == 7  # more than one epoch at once
    assert torch.equal(problem.batch(TRAINING, 1, 2).x, Problem.of(folder(networks, validation=0.4)).batch(TRAINING, 1, 2).x)


def test_a_folder_of_one_graph_validates_itself(networks, tmp_path) -> None:
    problem = Problem.of(config(task="pore-networks", model="CGS(8)", task_settings={"pores": [20, 30]}))
    write_folder(tmp_path / "one", problem.batch(TEST, 0, 1), problem.schema)
    single = Problem.of(folder(tmp_path / "one"))
    assert len(single.training) == len(single.validation) == 1


def test_logarithms_are_features(networks) -> None:
    plain, logs = (Problem.of(folder(networks, **changes)).build() for changes in ({}, {"logs": ["volume", "length"]}))
    assert logs.nodes.width == plain.nodes.width + 1
    assert logs.edges.width == plain.edges.width + 2  # a pore and a throat both have a volume
    single = Problem.of(folder(networks, logs="length", targets="pressure")).build()
    assert single.edges.width == plain.edges.width + 1
    with pytest.raises(InputError, match="logs: expected columns of numbers"):
        Problem.of(folder(networks, logs=["colour"])).build()


def test_bad_tasks(tmp_path) -> None:
    with pytest.raises(InputError, match="task: expected one of classification, folder, pore-networks, value-iteration"):
        Problem.of(config(task="chess"))
    with pytest.raises(InputError, match="task_settings: expected some of states, actions, pool, but got 'colour'"):
        Problem.of(config(task_settings={"colour": 3}))
    with pytest.raises(InputError, match="path: expected a name, but got none"):
        Problem.of(config(task="folder", model="CGS(8)"))
    with pytest.raises(InputError, match=r"validation: expected a number above 0 and below 1, but got 2.0"):
        Problem.of(folder(tmp_path, validation=2.0))
    with pytest.raises(InputError, match="no such folder: "):
        Problem.of(folder(tmp_path / "nothing"))
    with pytest.raises(InputError, match=r"settings: expected some of node_features, .*, but got 'colour'"):
        Problem.of(config(model_settings={"colour": 1})).build()
    for name, value in (("readout", "sum"), ("flow", "source_to_target"), ("node_features", 3), ("outputs", 2)):
        for task, model in (("value-iteration", "CGS(16)"), ("pore-networks", "CGS(8)")):
            with pytest.raises(InputError, match=f"model_settings: expected none of .*{name}.*, which follow from task {task}"):
                Problem.of(config(task=task, model=model, model_settings={name: value})).build()
    for name in ("graphs", "validation_graphs"):
        with pytest.raises(InputError, match=f"{name}: expected at most [0-9,]+ graphs of up to 50 states, as more may not fit"):
            Problem.of(config(**{name: 10**10}))
    for name in ("targets", "logs"):
        with pytest.raises(InputError, match=f"{name}: expected every column once, but got 'pressure' twice"):
            Problem.of(folder(tmp_path, **{name: ["pressure", "pressure"]}))
    with pytest.raises(InputError, match="fold: expected a whole number from 0 to 9, but got 10"):
        Problem.of(config(task="classification", task_settings={"name": "MUTAG", "fold": 10}))
