"""The contract suite: what is shipped keeps every promise, and every promise can be broken."""

from typing import Any

import pytest
from contract_defects import declarations, fault_models, mitigations, workloads
from contract_defects.good import GOOD

from paftbench import installed
from paftbench.verify.promise import Promise
from paftbench.verify.suite import BEHAVIOUR, DECLARATIONS, PromiseResult, findings, tried

SHIPPED = {kind: installed.usable(kind) for kind in ("fault_models", "mitigations", "workloads")}
PLANTED = {
    "fault_models": {**declarations.DEFECTS, **fault_models.DEFECTS},
    "mitigations": {**declarations.DEFECTS, **mitigations.DEFECTS},
    "workloads": {**declarations.DEFECTS, **workloads.DEFECTS},
}


def promises(kind: str) -> dict[str, Promise]:
    return {promise.keep.__name__: promise for promise in (*DECLARATIONS[kind], *BEHAVIOUR[kind])}


def planted(*, slow: bool) -> list[Any]:
    rows = {}
    for kind, defects in PLANTED.items():
        for name, classes in defects.items():
            if promises(kind)[name].slow == slow if name in promises(kind) else False:
                rows |= {(name, cls): pytest.param(name, cls, id=f"{cls.__name__}-{name}") for cls in classes}
    return list(rows.values())


def broken(found: list[PromiseResult]) -> list[tuple[str, str]]:
    return [(finding.promise.sentence, str(finding.broken[0])) for finding in found if finding.broken]


@pytest.mark.parametrize("name", SHIPPED["fault_models"])
def test_a_shipped_fault_model_keeps_every_promise_in_every_unit_and_dtype(name: str) -> None:
    assert broken(list(findings(SHIPPED["fault_models"][name]))) == []


@pytest.mark.parametrize("kind", ["mitigations", "workloads"])
def test_shipped_mitigations_and_workloads_keep_every_promise(kind: str) -> None:
    for cls in SHIPPED[kind].values():
        assert broken(list(findings(cls, fast=True))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED["mitigations"])
def test_a_shipped_mitigation_keeps_every_promise_in_every_setting_and_in_several_processes(name: str) -> None:
    assert broken(list(findings(SHIPPED["mitigations"][name]))) == []


@pytest.mark.parametrize("cls", GOOD, ids=lambda cls: cls.__name__)
def test_a_plugin_without_a_defect_is_not_accused_of_one(cls: Any) -> None:
    assert broken(list(findings(cls, fast=True))) == []


@pytest.mark.parametrize("kind", PLANTED)
def test_every_promise_has_a_planted_defect(kind: str) -> None:
    assert set(promises(kind)) <= set(PLANTED[kind])
    assert set(PLANTED[kind]) - set(declarations.DEFECTS) <= set(promises(kind))


def breaks(name: str, cls: Any) -> None:
    (found,) = [finding for finding in tried(cls, [promises(cls.plugin_kind)[name]], fast=False) if finding.broken]
    label, message = found.broken[0]
    assert message.startswith("expected ") and ", got " in message and "\n" not in message
    assert found.state == "BROKEN" and label is not None


@pytest.mark.parametrize(("name", "cls"), planted(slow=False))
def test_a_planted_defect_breaks_the_promise_that_names_it(name: str, cls: Any) -> None:
    breaks(name, cls)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cls"), planted(slow=True))
def test_a_defect_between_processes_breaks_the_promise_that_names_it(name: str, cls: Any) -> None:
    breaks(name, cls)
