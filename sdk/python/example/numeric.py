"""Exact arithmetic and statistics, which models are bad at."""

import ast
import csv
import math
import operator
import statistics
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from toolbay_sdk import Arg, Output, files, input_error, rendered, tool

BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}
FUNCTIONS = {"abs": abs, "min": min, "max": max, "round": round, "floor": math.floor, "ceil": math.ceil,
             "gcd": math.gcd, "lcm": math.lcm, "factorial": math.factorial, "comb": math.comb, "sqrt": None}
# The most digits of a result. A tower of powers would use all memory.
MOST_DIGITS = 10_000


@tool(toolset="numbers", read_only=True, idempotent=True, closed_world=True)
def calculate(
    expression: Annotated[str, Arg(
        "Numbers, + - * / // % **, brackets, and abs, min, max, round, floor, ceil, gcd, lcm, factorial, comb, sqrt.",
        min_length=1, max_length=1000)],
    digits: Annotated[int, Arg("Digits behind the point of a result that does not end.", ge=0, le=1000)] = 20,
) -> Output:
    """Compute an arithmetic expression exactly: 0.1 + 0.2 is 0.3, and 2**200 has all its digits."""
    try:
        value = evaluate(ast.parse(expression.replace("^", "**"), mode="eval").body)
    except SyntaxError as error:
        raise input_error(f"not an expression: {error.msg} at character {error.offset}", "/expression") from None
    except ZeroDivisionError:
        raise input_error("division by zero", "/expression") from None
    if value.denominator == 1:
        return rendered(str(value), {"value": str(value), "exact": True})
    text, exact = decimal(value, digits)
    shown = text if exact else f"{text}…"
    if value.denominator < 10**12:
        shown += f" ({value})"
    return rendered(shown, {"value": text, "fraction": str(value), "exact": exact})


def evaluate(node: ast.expr) -> Fraction:
    """Evaluates an arithmetic expression."""
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            # The literal text, not a float.
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -evaluate(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return evaluate(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return power(evaluate(left), evaluate(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            return bounded(Fraction(BINARY[type(op)](evaluate(left), evaluate(right))))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return call(name, [evaluate(arg) for arg in args])
    raise input_error(f"`{ast.unparse(node)}` is no arithmetic", "/expression")


def call(name: str, args: list[Fraction]) -> Fraction:
    """Applies a function. Integer functions refuse other numbers."""
    whole = [int(arg) if arg.denominator == 1 else arg for arg in args]
    try:
        if name == "sqrt":
            return square_root(*args)
        if name in ("factorial", "comb") and max(whole, default=0) > 3000:
            raise input_error(f"`{name}` of more than 3000", "/expression")
        return bounded(Fraction(FUNCTIONS[name](*whole)))
    except (TypeError, ValueError) as error:
        raise input_error(f"`{name}`: {error}", "/expression") from None


def square_root(value: Fraction) -> Fraction:
    """Exact for rational results, otherwise 50 digits."""
    if value < 0:
        raise ValueError("no root of a negative number")
    scale = 1 if is_square(value.numerator) and is_square(value.denominator) else 10**50
    return Fraction(math.isqrt(value.numerator * value.denominator * scale**2), value.denominator * scale)


def is_square(number: int) -> bool:
    """Whether a root is whole."""
    return math.isqrt(number) ** 2 == number


def power(base: Fraction, exponent: Fraction) -> Fraction:
    """A whole power, or the square root."""
    if exponent == Fraction(1, 2):
        return square_root(base)
    if exponent.denominator != 1:
        raise input_error("only whole powers and 1/2 are exact", "/expression")
    size = max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(int(exponent))
    if size > MOST_DIGITS * 4:
        raise input_error(f"the result has more than {MOST_DIGITS} digits", "/expression")
    return base ** int(exponent)


def bounded(value: Fraction) -> Fraction:
    """Returns the value, unless it has too many digits."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_DIGITS * 4:
        raise input_error(f"the result has more than {MOST_DIGITS} digits", "/expression")
    return value


def decimal(value: Fraction, digits: int) -> tuple[str, bool]:
    """The number truncated to this many decimal places, and whether that is exact."""
    scaled, rest = divmod(abs(value.numerator) * 10**digits, value.denominator)
    whole, behind = divmod(scaled, 10**digits)
    text = f"{'-' if value < 0 else ''}{whole}"
    if digits:
        text += f".{behind:0{digits}d}"
    return (text.rstrip("0").rstrip(".") if rest == 0 and digits else text), rest == 0


@dataclass
class Summary:
    """A summary of numbers."""

    count: int
    mean: float | None
    median: float | None
    standard_deviation: Annotated[float | None, "Of the sample; null with fewer than two numbers."]
    least: float | None
    most: float | None
    sum: float


@tool(toolset="numbers", read_only=True, idempotent=True, closed_world=True,
      needs={"fs_read": "$workspace/**", "reason": "reads the CSV file you name", "optional": True})
def summarize(
    numbers: Annotated[list[float], Arg("The numbers.", max_length=100_000)] = [],  # noqa: B006
    path: Annotated[str | None, "A CSV file to take them from, instead."] = None,
    column: Annotated[str | None, "The column of the file, by the name in its first line."] = None,
) -> Summary:
    """Summarize numbers, or a column of a CSV file: count, mean, median, standard deviation, extremes, sum."""
    values = of_column(path, column) if path is not None else numbers
    if not values:
        return Summary(0, None, None, None, None, None, 0.0)
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Summary(len(values), statistics.fmean(values), statistics.median(values), deviation, min(values), max(values), math.fsum(values))


def of_column(path: str, column: str | None) -> list[float]:
    """The numbers of a column, without empty cells."""
    rows = csv.DictReader(files.read_text(path).splitlines())
    names = rows.fieldnames or []
    if column not in names:
        raise input_error(f"there is no column `{column}`; there are {', '.join(names)}", "/column")
    values = []
    for line, row in enumerate(rows, start=2):
        cell = (row[column] or "").strip()
        try:
            values += [float(cell)] if cell else []
        except ValueError:
            raise input_error(f"`{cell}` in line {line} of `{path}` is no number", "/column") from None
    return values
