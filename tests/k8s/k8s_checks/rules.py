"""All rules by name. Each takes the objects of a namespace and gives a sentence for everything that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

from k8s_checks import rules_names, rules_network, rules_pods, rules_program
from k8s_checks.manifests import Object

Rule = Callable[[list[Object]], Iterator[str]]


def _rules_of(module: ModuleType) -> dict[str, Rule]:
    """The public functions of a module that yield sentences."""
    own = {name: each for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__}
    return {
        name: each
        for name, each in own.items()
        if not name.startswith("_") and getattr(each, "__annotations__", {}).get("return") == "Iterator[str]"
    }


RULES: dict[str, Rule] = {
    name: rule
    for module in (rules_names, rules_network, rules_pods, rules_program)
    for name, rule in _rules_of(module).items()
}
