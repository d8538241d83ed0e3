import unittest

import plugin
from toolbay_sdk import ToolError
from toolbay_sdk.testing import FakeHost


class Hello(unittest.TestCase):
    def test_greets(self) -> None:
        self.assertEqual(plugin.hello("world", 2), "Hello, world!!")
        # The same with JSON, as the host calls it; what has a default may be left out.
        self.assertEqual(FakeHost().call("hello", {"name": "world"}).value, "Hello, world!")
        with self.assertRaises(ToolError) as raised:
            plugin.hello(" ")
        self.assertEqual(raised.exception.subject, "/name")


if __name__ == "__main__":
    unittest.main()
