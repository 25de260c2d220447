"""A torch optimizer's parameter groups as servers know them: their parameters by name, and their rates."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch

from slimps import _torch_optimizer, _torch_parameters
from slimps.errors import FailedPreconditionError, InvalidArgumentError

# What may differ between parameter groups, and change from step to step.
BY_GROUP = ("lr", "weight_decay")


class Parameters(NamedTuple):
    """In the order of their names."""

    names: List[str]
    tensors: List[torch.Tensor]
    group_of: List[int]
    layers: List[str]                         # KVStore.init's
    others: _torch_parameters.NamedTensors    # of the model, which this optimizer does not step
    left_out: _torch_parameters.NamedTensors  # of them the optimizer's own, which need no gradient


def find(optimizer: torch.optim.Optimizer, named: Optional[_torch_parameters.Named]) -> Parameters:
    """Names, parameters and groups of what is stepped. Raises InvalidArgumentError: one without a name; none."""
    group_of: Dict[int, int] = {}
    ordered: _torch_parameters.NamedTensors = []
    for number, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            group_of[id(parameter)] = number
            ordered.append(("group%d.%d" % (number, place), parameter))
    given = ordered
    if named is not None:
        given = _torch_parameters.pairs(named, "named_parameters")
        names = {id(parameter) for _, parameter in given}
        for name, parameter in ordered:
            if id(parameter) not in names:
                raise InvalidArgumentError("named_parameters: expected all of the optimizer's, got none for %s of "
                                           "shape %s" % (name, tuple(parameter.shape)))
        ordered = [(name, parameter) for name, parameter in given if id(parameter) in group_of]
    stepped = [(name, parameter) for name, parameter in ordered if parameter.requires_grad]
    if not stepped:
        raise InvalidArgumentError("optimizer: expected parameters that need a gradient, got none")
    return Parameters([name for name, _ in stepped], [parameter for _, parameter in stepped],
                      [group_of[id(parameter)] for _, parameter in stepped],
                      _torch_parameters.layers_of(named, [parameter for _, parameter in stepped]),
                      [(name, parameter) for name, parameter in given
                       if id(parameter) not in group_of or not parameter.requires_grad],
                      [(name, parameter) for name, parameter in ordered if not parameter.requires_grad])


class Rates:
    """Learning rate and weight decay of each group, as the servers were told; all else that they know must stay.

        rates = Rates(optimizer, parameters.group_of)
        rates.tell(optimizer.param_groups, exchange.set_hyper)   # before a step's first gradient
        rates.changed(optimizer.param_groups)                    # afterwards: what they were not told
    """

    def __init__(self, optimizer: torch.optim.Optimizer, group_of: List[int]) -> None:
        self._kind = type(optimizer).__name__
        self._group_of = group_of
        self._fixed = [self._fixed_of(group) for group in optimizer.param_groups]
        self._told: List[Optional[Tuple[float, float]]] = [None] * len(self._fixed)

    def tell(self, groups: List[Dict[str, Any]], set_hyper: Callable[[int, float, float], None]) -> None:
        """Calls set_hyper(index of a parameter, learning rate, weight decay) where a group's have changed.

        Raises FailedPreconditionError: something else has.
        """
        for number, group in enumerate(groups):
            fixed = self._fixed_of(group)
            if fixed != self._fixed[number]:
                raise FailedPreconditionError(
                    "parameter group %d: the servers know %s; only %s may change, got %s"
                    % (number, self._fixed[number], " and ".join(BY_GROUP), fixed))
            hyper = _rates_of(group)
            if hyper == self._told[number]:
                continue
            for index, home in enumerate(self._group_of):
                if home == number:
                    set_hyper(index, *hyper)
            self._told[number] = hyper

    def changed(self, groups: List[Dict[str, Any]]) -> Optional[str]:
        """In words, which group's are others than were told."""
        for number, group in enumerate(groups):
            told, now = self._told[number], _rates_of(group)
            if told is not None and told != now:
                return "%s of parameter group %d" % (" and ".join(BY_GROUP), number)
        return None

    def _fixed_of(self, group: Dict[str, Any]) -> Dict[str, Any]:
        return {name: value for name, value in _torch_optimizer.known_to_servers(self._kind, group).items()
                if name not in BY_GROUP}


def _rates_of(group: Dict[str, Any]) -> Tuple[float, float]:
    return float(group["lr"]), float(group["weight_decay"])
