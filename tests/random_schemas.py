#!/usr/bin/env python3
"""Random JSON Schemas and models of random weights: every answer that ends satisfies its schema, as Python's jsonschema sees it.

    PYTHONPATH=build/python tests/random_schemas.py MODEL... [-n SCHEMAS] [--seed SEED]

Schemas that are refused, by name, are not counted; each of the others is answered once, by one of the models in turn.
Seen to fail with bounds of numbers left out of the schema that the model gets.
"""
import argparse
import collections
import decimal
import json
import random
import re
import sys

import jsonschema
import tern

WORDS = ["a", "b", "id", "name", "x-y", "é", "a b", "long_name", "0", ""]
PATTERNS = ["^[a-z]+$", "a", "^\\d{2,4}$", "^(ab|cd)*$", "[aeiou]{2}", "^[^x]*$", "^.{1,3}$", "^[A-Z]\\w*-\\d$", "b$", "^é"]
# Those that this jsonschema can judge: some of its checks need packages of their own.
FORMATS = [f for f in ("date", "time", "date-time", "ipv4", "uuid", "email", "hostname") if f in jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers]


def pick(r, **ways):
    """A few of the keywords, each with a value that its function makes."""
    return {name: ways[name]() for name in r.sample(sorted(ways), r.randint(0, min(2, len(ways))))}


def text(r):
    low = r.randint(0, 4)
    return dict({"type": "string"}, **pick(r, minLength=lambda: low, maxLength=lambda: low + r.randint(0, 12), pattern=lambda: r.choice(PATTERNS),
                                           format=lambda: r.choice(FORMATS)))


def number(r):
    low = r.choice([r.randint(-200, 200), r.randint(-2000, 2000) / 8])
    kind = r.choice(["integer", "number"])
    return dict({"type": kind}, **pick(r, minimum=lambda: low, maximum=lambda: low + r.choice([0, 3, 70, 1000]), exclusiveMinimum=lambda: low - 1,
                                       exclusiveMaximum=lambda: low + 50, multipleOf=lambda: r.choice([1, 2, 3, 7, 10, 25])))


def array(r, depth):
    low = r.randint(0, 2)
    return dict({"type": "array"}, **pick(r, items=lambda: schema(r, depth - 1), minItems=lambda: low, maxItems=lambda: low + r.randint(0, 3),
                                          prefixItems=lambda: [schema(r, depth - 1) for _ in range(r.randint(1, 3))],
                                          contains=lambda: schema(r, 0)))


def members(r, depth):
    names = r.sample(WORDS, r.randint(0, 4))
    made = {"type": "object", "properties": {name: schema(r, depth - 1) for name in names}}
    if r.random() < 0.7:
        made["required"] = r.sample(names, r.randint(0, len(names)))
    return dict(made, **pick(r, additionalProperties=lambda: r.choice([False, False, True, schema(r, 0)]),
                             patternProperties=lambda: {p: schema(r, 0) for p in r.sample(PATTERNS, r.randint(1, 3))},
                             maxProperties=lambda: r.randint(0, 4), minProperties=lambda: r.randint(0, 2),
                             propertyNames=lambda: {"maxLength": r.randint(1, 6)}))


def value(r):
    return r.choice([None, True, False, 0, -1, 2.5, 10**12, "", "a", "é\"\n", [], [1, "a"], {}, {"a": None}])


def schema(r, depth):
    few = [lambda: text(r), lambda: number(r), lambda: {"type": r.choice(["boolean", "null"])}, lambda: {"const": value(r)},
           lambda: {"enum": [value(r) for _ in range(r.randint(1, 4))]}, lambda: {"type": r.sample(["string", "integer", "null", "boolean"], 2)}]
    if depth <= 0:
        return r.choice(few)()
    more = [lambda: array(r, depth), lambda: members(r, depth), lambda: members(r, depth),
            lambda: {r.choice(["anyOf", "oneOf", "allOf"]): [schema(r, depth - 1) for _ in range(r.randint(1, 3))]},
            lambda: dict(schema(r, depth - 1), **{"not": schema(r, 0)}),
            lambda: {"$ref": "#/$defs/" + r.choice("ab")},
            lambda: {"if": schema(r, depth - 1), "then": schema(r, depth - 1), "else": schema(r, depth - 1)}]
    return r.choice(few + more * 2)()


def whole(r):
    made = schema(r, 3)
    return dict(made, **{"$defs": {"a": schema(r, 2), "b": schema(r, 1)}}) if "$ref" in json.dumps(made) else made


def is_whole(checker, x):
    return isinstance(x, int) and not isinstance(x, bool) or isinstance(x, decimal.Decimal) and x == x.to_integral_value()


def ecma(pattern):
    """A pattern of the list above for Python, whose $ also stands before a last line end, whose . takes more of them,
    and whose classes know digits and letters of every script."""
    return re.compile(pattern.replace("$", r"\Z").replace(".", r"[^\n\r\u2028\u2029]"), re.ASCII)


def pattern(validator, wanted, instance, made):
    if validator.is_type(instance, "string") and not ecma(wanted).search(instance):
        yield jsonschema.ValidationError("%r does not match %r" % (instance, wanted))


def pattern_properties(validator, wanted, instance, made):
    for p, inner in wanted.items() if validator.is_type(instance, "object") else ():
        for name in instance:
            if ecma(p).search(name):
                yield from validator.descend(instance[name], inner, path=name, schema_path=p)


def additional_properties(validator, wanted, instance, made):
    for name in instance if validator.is_type(instance, "object") else ():
        if name not in made.get("properties", {}) and not any(ecma(p).search(name) for p in made.get("patternProperties", {})):
            yield from validator.descend(instance[name], wanted, path=name)


Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {"pattern": pattern, "patternProperties": pattern_properties, "additionalProperties": additional_properties},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", is_whole))


def fault(made, answer):
    """What is wrong with an answer; None: nothing. Numbers are what they say, not the nearest of 64 bits."""
    try:
        got = json.loads(answer, parse_float=decimal.Decimal)
        wrong = Validator(made, format_checker=Validator.FORMAT_CHECKER).iter_errors(got)
        return next((e.message for e in wrong), None)
    except decimal.DecimalException:
        return None  # an exponent of more digits than there is memory for
    except RecursionError:
        return None  # "$ref" that leads to itself without a step: jsonschema goes round for ever
    except ValueError as e:
        return str(e)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("models", nargs="+")
    p.add_argument("-n", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    r = random.Random(a.seed)
    decimal.getcontext().prec = 400
    models = [tern.Model(path) for path in a.models]
    n, seen = 0, collections.Counter()
    while n < a.n:
        made, model = whole(r), models[n % len(models)]
        try:
            grammar = tern.Grammar(model, schema=made, compact=r.random() < 0.3)
        except tern.TernError:
            seen["refused"] += 1
            continue
        n += 1
        answer = model.generate("Once", grammar=grammar, max_tokens=150, temperature=r.choice([0.0, 0.7, 1.0, 2.0]), seed=n)
        grammar.close()
        seen[answer.reason] += 1
        wrong = fault(made, answer.text) if answer.reason == "end" else None
        if wrong:
            seen["wrong"] += 1
            print("%s\n    %s\n    %s" % (json.dumps(made), answer.text, wrong), file=sys.stderr)
    print("%d schemas: %s" % (n, ", ".join("%s %d" % pair for pair in sorted(seen.items()))))
    return seen["wrong"] != 0


if __name__ == "__main__":
    sys.exit(main())
