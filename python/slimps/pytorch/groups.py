# SPDX-License-Identifier: Apache-2.0
"""A torch optimizer's parameter groups: their parameters by name, and the groups' rates."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

import torch

from slimps.errors import FailedPreconditionError, InvalidArgumentError
from slimps.pytorch import conversion, params

# The options that may differ between parameter groups from the beginning.
BY_GROUP = ("lr", "weight_decay")


class Parameters(NamedTuple):
    """An optimizer's parameters, in the order of named_parameters."""

    names: List[str]
    tensors: List[torch.Tensor]
    group_of: List[int]
    layers: List[str]  # the argument of KVStore.init
    others: params.NamedTensors  # the model's that this optimizer does not step
    left_out: params.NamedTensors  # the optimizer's that need no gradient


def find(optimizer: torch.optim.Optimizer, named: Optional[params.Named]) -> Parameters:
    """Returns the parameters that the optimizer steps, with their names and groups.

    InvalidArgumentError: a parameter has no name, or no parameter needs a gradient.
    """
    group_of: Dict[int, int] = {}
    ordered: params.NamedTensors = []
    for number, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            group_of[id(parameter)] = number
            names = group.get("param_names")  # of optimizers that were given named_parameters()
            ordered.append((names[place] if names else "group%d.%d" % (number, place), parameter))
            params.check_is_made(*ordered[-1])
    given = ordered
    if named is not None:
        given = params.pairs(named, "named_parameters")
        names = {id(parameter) for _, parameter in given}
        for name, parameter in ordered:
            if id(parameter) not in names:
                raise InvalidArgumentError(
                    "named_parameters: expected all of the optimizer's, got none for %s of "
                    "shape %s" % (name, tuple(parameter.shape))
                )
        ordered = [(name, parameter) for name, parameter in given if id(parameter) in group_of]
    stepped = [(name, one) for name, one in ordered if one.requires_grad and one.numel()]
    if not stepped:
        raise InvalidArgumentError("optimizer: expected parameters that need a gradient, got none")
    return Parameters(
        [name for name, _ in stepped],
        [parameter for _, parameter in stepped],
        [group_of[id(parameter)] for _, parameter in stepped],
        params.layers_of(named, [parameter for _, parameter in stepped]),
        [
            (name, parameter)
            for name, parameter in given
            if id(parameter) not in group_of or not parameter.requires_grad
        ],
        [(name, parameter) for name, parameter in ordered if not parameter.requires_grad],
    )


class Hyper(NamedTuple):
    """The numbers of a group that may change from step to step."""

    lr: float
    weight_decay: float
    momentum: float  # SGD's, or the first beta of Adam and AdamW

    @classmethod
    def of(cls, group: Mapping[str, Any]) -> Hyper:
        momentum = group["betas"][0] if "betas" in group else group["momentum"]
        return cls(float(group["lr"]), float(group["weight_decay"]), float(momentum))


class Rates:
    """Each group's Hyper, as the servers know it.

        rates = Rates(optimizer, parameters.group_of)
        rates.tell(optimizer.param_groups, exchange.set_hyper)   # before a step's first gradient
        rates.changed(optimizer.param_groups)                    # afterwards: changes since then

    The other options that the servers know must not change. A momentum of 0 must not either: the
    servers keep no momentum then.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, group_of: List[int]) -> None:
        self._kind = type(optimizer).__name__
        self._group_of = group_of
        self._fixed = [self._fixed_of(group) for group in optimizer.param_groups]
        self._told: List[Optional[Hyper]] = [None] * len(self._fixed)

    def tell(
        self, groups: List[Dict[str, Any]], set_hyper: Callable[[int, float, float, float], None]
    ) -> None:
        """Calls set_hyper(parameter's index, *Hyper) for groups that changed.

        FailedPreconditionError: another option has changed.
        """
        self.check(groups)
        for number, group in enumerate(groups):
            hyper = Hyper.of(group)
            if hyper == self._told[number]:
                continue
            for index, home in enumerate(self._group_of):
                if home == number:
                    set_hyper(index, *hyper)
            self._told[number] = hyper

    def check(self, groups: List[Dict[str, Any]]) -> None:
        """Raises FailedPreconditionError if an option is another that must not change."""
        for number, group in enumerate(groups):
            fixed = self._fixed_of(group)
            if fixed != self._fixed[number]:
                raise FailedPreconditionError(
                    "parameter group %d: the servers know %s; only lr, weight_decay and a momentum "
                    "above 0 may change, got %s" % (number, self._fixed[number], fixed)
                )

    def changed(self, groups: List[Dict[str, Any]]) -> Optional[str]:
        """Returns, in words, which group's rates differ from those told; None: no group's."""
        for number, group in enumerate(groups):
            told, now = self._told[number], Hyper.of(group)
            if told is not None and told != now:
                changed = [
                    name for name in told._fields if getattr(told, name) != getattr(now, name)
                ]
                return "%s of parameter group %d" % (" and ".join(changed), number)
        return None

    def _fixed_of(self, group: Dict[str, Any]) -> Dict[str, Any]:
        fixed = {
            name: value
            for name, value in conversion.known_to_servers(self._kind, group).items()
            if name not in BY_GROUP
        }
        if "betas" in fixed:
            fixed["betas"] = tuple(fixed["betas"][1:])
        elif fixed["momentum"]:
            del fixed["momentum"]
        return fixed
