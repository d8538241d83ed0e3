from typing import Annotated

from toolbay_sdk import Arg, input_error, tool


# Claims, not permissions; without any the host assumes the worst. `toolbay test` tries the examples.
@tool(read_only=True, idempotent=True, closed_world=True, examples=[
    {"args": {"name": "world", "marks": 2}, "value": "Hello, world!!"},
    {"args": {"name": " "}, "error": "input-invalid"},
])
def hello(
    name: Annotated[str, Arg("Who is greeted.", min_length=1)],
    marks: Annotated[int, Arg("Exclamation marks.", ge=0, le=5)] = 1,
) -> str:
    """Greet somebody."""
    if not name.strip():
        raise input_error("the name is blank", "/name")
    return f"Hello, {name}{'!' * marks}"
