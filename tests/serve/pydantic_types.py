#!/usr/bin/env python3
"""A schema that pydantic writes is taken, as that of an answer and as that of a call, and
everything that is drawn from the masks is read by pydantic itself as the type.

    pydantic_types.py --tool build/test/src/server/nibble_grammar_tool [--outputs 20]

REFUSED are the types that are refused, with what the refusal says."""
import argparse
import collections
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import re
import sys
import uuid
from typing import Annotated, Any, Dict, List, Literal, NamedTuple, Optional, Tuple, Union

import pydantic
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from schema_suite import Tool


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    x: int
    y: float = 0.0


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str = Field(min_length=1, max_length=8)


class Node(BaseModel):
    value: int
    next: Optional["Node"] = None


class Tree(BaseModel):
    label: str
    kids: List["Tree"] = []


class Forbidding(BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    a: int
    b: Optional[str] = None


class Allowing(BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", json_schema_extra={"x-order": [1]})
    a: int


class Described(BaseModel):
    """A model with words."""

    a: int = Field(description="a number", examples=[1], title="A", deprecated=True)
    b: str = Field("x", json_schema_extra={"nullable": True, "x-widget": "text"})


class Aliased(BaseModel):
    long_name: int = Field(alias="longName")


class Whole(pydantic.RootModel[List[int]]):
    pass


class Pair(NamedTuple):
    a: int
    b: str


class Movie(TypedDict, total=False):
    title: str
    year: int


TYPES = {
    "str": str, "int": int, "float": float, "bool": bool, "None": None, "Any": Any,
    "bytes": bytes, "date": datetime.date, "datetime": datetime.datetime, "time": datetime.time,
    "timedelta": datetime.timedelta, "UUID": uuid.UUID, "Path": pathlib.Path,
    "Decimal": decimal.Decimal, "Enum": Color, "IntEnum": Level, "Literal": Literal["a", 1, None],
    "Optional[int]": Optional[int], "Union": Union[int, str, None], "list": list,
    "List[int]": List[int], "dict": dict, "Dict[str, int]": Dict[str, int],
    "Dict[Literal, int]": Dict[Literal["a", "b"], int], "tuple": tuple,
    "Tuple[int, str]": Tuple[int, str], "Tuple[int, ...]": Tuple[int, ...],
    "NamedTuple": Pair, "TypedDict": Movie, "deque": collections.deque,
    "Sequence": collections.abc.Sequence[int], "Mapping": collections.abc.Mapping[str, float],
    "set[int]": set[int], "set[str]": set[str], "frozenset[int]": frozenset[int],
    "set[Enum]": set[Color], "set[bool]": set[bool],
    "HttpUrl": pydantic.HttpUrl, "AnyUrl": pydantic.AnyUrl, "AnyHttpUrl": pydantic.AnyHttpUrl,
    "SecretStr": pydantic.SecretStr, "SecretBytes": pydantic.SecretBytes,
    "Json": pydantic.Json, "Json[List[int]]": pydantic.Json[List[int]],
    "Base64Bytes": pydantic.Base64Bytes, "Base64Str": pydantic.Base64Str,
    "Base64UrlBytes": pydantic.Base64UrlBytes, "Base64UrlStr": pydantic.Base64UrlStr,
    "IPv4Address": ipaddress.IPv4Address, "IPv6Address": ipaddress.IPv6Address,
    "IPvAnyAddress": pydantic.IPvAnyAddress, "ByteSize": pydantic.ByteSize,
    "PositiveInt": pydantic.PositiveInt, "NegativeFloat": pydantic.NegativeFloat,
    "NonNegativeInt": pydantic.NonNegativeInt, "FiniteFloat": pydantic.FiniteFloat,
    "PastDate": pydantic.PastDate, "AwareDatetime": pydantic.AwareDatetime,
    "NaiveDatetime": pydantic.NaiveDatetime, "FilePath": pydantic.FilePath,
    "NewPath": pydantic.NewPath, "UUID4": pydantic.UUID4, "re.Pattern": re.Pattern,
    "conint": pydantic.conint(ge=3, lt=10), "multiple_of": Annotated[int, Field(multiple_of=5)],
    "confloat": pydantic.confloat(gt=0, le=1.5),
    "decimal multiple_of": Annotated[float, Field(multiple_of=0.25)],
    "condecimal": pydantic.condecimal(max_digits=5, decimal_places=2),
    "Decimal bounds": Annotated[decimal.Decimal, Field(ge=0, le=100)],
    "constr": pydantic.constr(min_length=2, max_length=5),
    "pattern": pydantic.constr(pattern=r"^[A-Z]{2}-\d+$"),
    "pattern with max_length": pydantic.constr(pattern=r"^[a-z]+(-[a-z]+)*$", max_length=9),
    "conlist": pydantic.conlist(int, min_length=1, max_length=3),
    "model": Point, "nested models": Dict[str, List[Point]], "List[model]": List[Point],
    "recursive model": Node, "tree": Tree, "extra forbid": Forbidding, "extra allow": Allowing,
    "described": Described, "alias": Aliased, "RootModel": Whole,
    "discriminated union": Annotated[Union[Cat, Dog], Field(discriminator="kind")],
    "List of a discriminated union": List[Annotated[Union[Cat, Dog], Field(discriminator="kind")]],
    "Union of models": Union[Point, Aliased],
    "Optional model": Optional[Point],
}
# The keyword or the words of the refusal.
REFUSED = {"set[int]": "uniqueItems", "set[str]": "uniqueItems", "frozenset[int]": "uniqueItems",
           "HttpUrl": "maxLength", "Json[List[int]]": "contentSchema"}
# Their schema says less than pydantic asks for: what files there are, what time it is now.
LOOSE = {"FilePath", "NewPath", "PastDate", "AnyHttpUrl", "Base64Str", "Base64UrlStr", "ByteSize",
         "NaiveDatetime", "Decimal", "condecimal", "Decimal bounds"}


def schema_of(kind):
    """The schema of a model that holds the type, and the model."""
    model = pydantic.create_model("Holder", v=(kind, ...))
    return model, model.model_json_schema()


def judge(tool, name, kind, form, outputs):
    model, schema = schema_of(kind)
    answer = tool.ask(form, schema, [], outputs, len(name))
    if "error" in answer or name in REFUSED:
        place = REFUSED.get(name)
        if place is None or place not in answer.get("error", ""):
            return [f"refusal: expected {place}, found {answer.get('error')}"]
        return []
    mistakes = []
    if len(answer["outputs"]) < outputs // 2:
        mistakes.append(f"only {len(answer['outputs'])} of {outputs} outputs came to an end")
    for text in answer["outputs"]:
        try:
            json.loads(text)
            if name not in LOOSE:
                model.model_validate_json(text)
        except ValueError as error:
            mistakes.append(f"gave {text[:120]!r}: {' '.join(str(error).split())[:200]}")
    return mistakes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--outputs", type=int, default=20)
    arguments = parser.parse_args()
    tool, wrong = Tool(arguments.tool), 0
    for name, kind in TYPES.items():
        for form in ("answer", "call"):
            mistakes = judge(tool, name, kind, form, arguments.outputs)
            for mistake in mistakes[:3]:
                print(f"WRONG {name}, {form}: {mistake}")
            wrong += bool(mistakes)
    print(f"{len(TYPES)} types, {len(REFUSED)} of them refused, {wrong} wrong")
    return 1 if wrong or len(TYPES) < 60 else 0


if __name__ == "__main__":
    sys.exit(main())
