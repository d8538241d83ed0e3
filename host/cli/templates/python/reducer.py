from toolbay_sdk import Output, reducer

LINES = 20


# The tool whose results it takes, by its full name if it is another plugin's.
@reducer("shell__terminal")
def ends(result: Output, context: object) -> str | None:
    """Keeps the first and last lines of a long result."""
    # Pure: it has no host to ask. None leaves the result as it is.
    lines = getattr(result, "value", "").split("\n")
    if len(lines) <= 2 * LINES:
        return None
    return "\n".join([*lines[:LINES], f"[{len(lines) - 2 * LINES} lines left out]", *lines[-LINES:]])
