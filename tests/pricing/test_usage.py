"""The ledger's own words for usage, held against the wire's."""

from __future__ import annotations

from typing import get_args

from agent import wire
from pricing.usage import CPU, ENERGY_SOURCES, KINDS, Owned, Placed


def test_kinds_and_energy_sources_are_those_of_the_wire() -> None:
    assert {*KINDS, CPU} == set(get_args(wire.UsageKind))
    assert set(ENERGY_SOURCES) == set(get_args(wire.EnergySource))


def test_a_placement_has_every_field_of_the_wire() -> None:
    assert {"id" if name == "number" else name for name in Placed._fields} == set(wire.Placement.__struct_fields__)
    assert set(Owned._fields) == set(wire.OnPremises.__struct_fields__)
