# SPDX-License-Identifier: Apache-2.0
"""Checks a bench's JSON before it is made into tables. Pure.

    check(report, {"machine": {"cpu": TEXT}, "results": [{"gbps": POSITIVE}]})

A shape is one of
    a Kind of value;
    a dict: an object with these fields, and possibly others;
    a list of one shape: a list of values of that shape;
    Cases: an object whose shape depends on one of its fields.

check raises ValueError, which names the field, what was expected and what is there:
results[3].gbps: expected a number above 0, got "fast".
"""

import collections
import json
import sys

Kind = collections.namedtuple("Kind", "words holds")
# `shapes`: value of the field -> shape of the whole object.
Cases = collections.namedtuple("Cases", "field shapes")
Optional = collections.namedtuple("Optional", "shape")  # a field of an object that may be missing
MISSING = object()


def is_number(value):
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max
    )


def is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


TEXT = Kind("text", lambda value: isinstance(value, str))
NUMBER = Kind("a number", is_number)
NUMBER_OR_NULL = Kind("a number or null", lambda value: value is None or is_number(value))
POSITIVE = Kind("a number above 0", lambda value: is_number(value) and value > 0)
COUNT = Kind("a whole number from 1 on", lambda value: is_whole(value) and value >= 1)
SIZE = Kind("a whole number from 0 on", lambda value: is_whole(value) and value >= 0)
SIZE_OR_NULL = Kind(
    "a whole number from 0 on, or null",
    lambda value: value is None or is_whole(value) and value >= 0,
)


def one_of(values):
    return Kind("one of " + ", ".join(values), lambda value: value in values)


def shown(value):
    if value is MISSING:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def refuse(where, expected, value):
    raise ValueError("%s: expected %s, got %s" % (where or "the whole", expected, shown(value)))


def check(value, shape, where=""):
    if isinstance(shape, Kind):
        if value is MISSING or not shape.holds(value):
            refuse(where, shape.words, value)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            refuse(where, "a list", value)
        for number, entry in enumerate(value):
            check(entry, shape[0], "%s[%d]" % (where, number))
    elif not isinstance(value, dict):
        refuse(where, "an object", value)
    elif isinstance(shape, Cases):
        case = value.get(shape.field, MISSING)
        if not isinstance(case, str) or case not in shape.shapes:
            refuse("%s.%s" % (where, shape.field), "one of " + ", ".join(shape.shapes), case)
        check(value, shape.shapes[case], where)
    else:
        for field, inner in shape.items():
            if isinstance(inner, Optional):
                if field not in value:
                    continue
                inner = inner.shape
            check(value.get(field, MISSING), inner, where + "." + field if where else field)
