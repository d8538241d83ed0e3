"""Tests of the tools with a fake host."""

import json
import unittest

import numeric
from toolbay_sdk import ToolError
from toolbay_sdk.testing import FakeHost


class Calculate(unittest.TestCase):
    def test_results_are_exact(self) -> None:
        cases = [
            ("0.1 + 0.2", "0.3 (3/10)"), ("2**100", "1267650600228229401496703205376"), ("1/3", "0.33333333333333333333… (1/3)"),
            ("-7 // 2", "-4"), ("-7 % 3", "2"), ("2^10", "1024"), ("sqrt(2.25)", "1.5 (3/2)"), ("(1 + 2) * -3", "-9"),
            ("comb(52, 5)", "2598960"), ("max(1, 5/2)", "2.5 (5/2)"), ("gcd(12, 18)", "6"), ("1e-3", "0.001 (1/1000)"),
        ]
        for expression, expected in cases:
            self.assertEqual(numeric.calculate(expression).value, expected, expression)
        self.assertTrue(numeric.calculate("sqrt(2)").value.startswith("1.41421356237309504880…"))
        self.assertEqual(numeric.calculate("1/3", 3).value, "0.333… (1/3)")

    def test_what_is_no_arithmetic_is_refused(self) -> None:
        for expression in ("__import__('os')", "a + 1", "1 +", "'a' * 3", "1/0", "9**9**9", "factorial(10**6)", "True", "gcd(1/2, 1)",
                           "sqrt(-1)", "abs(x=1)", "(lambda: 1)()", "2**0.3"):
            with self.assertRaises(ToolError, msg=expression) as raised:
                numeric.calculate(expression)
            self.assertEqual((raised.exception.code, raised.exception.subject), ("input-invalid", "/expression"), expression)


class Summarize(unittest.TestCase):
    def test_numbers_are_summarized(self) -> None:
        output = FakeHost().call("summarize", {"numbers": [1, 2, 3, 4]})
        self.assertEqual(json.loads(output.value), {
            "count": 4, "mean": 2.5, "median": 2.5, "standard_deviation": 1.2909944487358056, "least": 1.0, "most": 4.0, "sum": 10.0})
        self.assertEqual(json.loads(FakeHost().call("summarize").value)["mean"], None)

    def test_a_column_of_a_file_is_summarized(self) -> None:
        table = "city,people\nBern,134000\nBasel,\nGenf,203000\n"
        with FakeHost(files={"c.csv": table}) as fake:
            self.assertEqual(json.loads(fake.call("summarize", {"path": "c.csv", "column": "people"}).value)["sum"], 337000.0)
            for column, expected in [("size", "there are city, people"), ("city", "`Bern` in line 2")]:
                with self.assertRaisesRegex(ToolError, expected):
                    fake.call("summarize", {"path": "c.csv", "column": column})
            with self.assertRaisesRegex(ToolError, "does not exist"):
                fake.call("summarize", {"path": "d.csv", "column": "x"})


if __name__ == "__main__":
    unittest.main()
