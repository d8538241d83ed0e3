import unittest

import plugin
from toolbay_sdk import Output


class Ends(unittest.TestCase):
    def test_the_middle_is_left_out(self) -> None:
        lines = [f"line {index}" for index in range(100)]
        self.assertIsNone(plugin.ends(Output("\n".join(lines[:40])), None))
        self.assertIn("line 19\n[60 lines left out]\nline 80", plugin.ends(Output("\n".join(lines)), None))


if __name__ == "__main__":
    unittest.main()
