"""Versioned documents: what older versions wrote is read, what newer ones wrote is refused, the rest is explained."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest
from pydantic import ValidationError

from rayctsl.contract import Contract, JsonObject, read_contract
from rayctsl.words import explain


class Parcel(Contract):
    CURRENT: ClassVar[int] = 3

    weight: float
    to: str

    @classmethod
    def upgrade(cls, raw: JsonObject) -> JsonObject:
        return {"weight": raw["grams"] / 1000, "to": raw["to"]}


def test_of_a_misspelt_key_and_the_one_it_left_missing_the_misspelling_is_told():
    with pytest.raises(ValidationError) as caught:
        Parcel.model_validate({"version": 3, "to": "Ada", "wieght": 1.0})
    assert explain(caught.value, Parcel, "parcel") == "parcel key 'wieght' is unknown; did you mean 'weight'?"
    with pytest.raises(ValidationError) as caught:
        Parcel.model_validate({"version": 3, "to": "Ada"})
    assert explain(caught.value, Parcel, "parcel") == "the parcel has no 'weight'"


def test_a_document_comes_back_as_it_was():
    parcel = Parcel(weight=1.5, to="Ada")
    assert parcel.version == 3
    assert json.loads(parcel.to_bytes()) == {"version": 3, "weight": 1.5, "to": "Ada"}
    assert read_contract(Parcel, parcel.to_bytes(), "parcel.json") == parcel
    assert parcel.changed(to="Bob") == Parcel(weight=1.5, to="Bob")


def test_nothing_is_written_that_could_not_be_read():
    with pytest.raises(ValueError, match="not JSON compliant"):
        Parcel(weight=float("nan"), to="Ada").to_bytes()
    for wrong in ({"weight": "heavy"}, {"wieght": 1.0}):
        with pytest.raises(ValidationError):
            Parcel(weight=1.5, to="Ada").changed(**wrong)


def test_earlier_versions_are_brought_up_to_date():
    for old in ({"grams": 1500, "to": "Ada"}, {"version": 2, "grams": 1500, "to": "Ada"}):
        assert read_contract(Parcel, old, "parcel.json") == Parcel(weight=1.5, to="Ada")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'{"version": 4, "weight": 1, "to": "Ada"}', "parcel.json was written by a newer rayctsl (version 4"),
        (b'{"version": "3"}', "parcel.json has the version '3'"),
        (b'{"version": true}', "parcel.json has the version True"),
        (b'{"version": 0}', "parcel.json has the version 0"),
        (b"{", "parcel.json is damaged: it is not JSON"),
        (b"\xff", "parcel.json is damaged: it is not JSON"),
        (b"[" * 100_000, "parcel.json is damaged: it is not JSON"),
        (b"[1]", "parcel.json is damaged: it holds no keys and values"),
        (b'{"version": 3, "weight": NaN, "to": "Ada"}', "NaN is not a JSON number"),
        (b'{"version": 3, "weight": "heavy", "to": "Ada"}', "parcel.json is damaged: weight: input should be"),
        (b'{"version": 3, "weight": 1, "to": "Ada", "colour": 1}', "parcel.json is damaged: colour: extra inputs"),
        (b'{"version": 2, "to": "Ada"}', "parcel.json is damaged: KeyError 'grams'"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(data: bytes, sentence: str):
    with pytest.raises(ValueError, match="parcel") as caught:
        read_contract(Parcel, data, "parcel.json")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
