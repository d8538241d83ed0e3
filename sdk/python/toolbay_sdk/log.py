"""Log lines for the operator. ``print`` also writes to the host's log, without level and fields."""

from . import _host


def _write(level: str, message: str, fields: dict[str, object]) -> None:
    _host.log.write(_host.log.Level[level], str(message), [(key, str(value)) for key, value in fields.items()])


def trace(message: str, **fields: object) -> None:
    """Writes a line of level trace."""
    _write("TRACE", message, fields)


def debug(message: str, **fields: object) -> None:
    """Writes a line of level debug."""
    _write("DEBUG", message, fields)


def info(message: str, **fields: object) -> None:
    """Writes a line of level info."""
    _write("INFO", message, fields)


def warn(message: str, **fields: object) -> None:
    """Writes a line of level warn."""
    _write("WARN", message, fields)


def error(message: str, **fields: object) -> None:
    """Writes a line of level error."""
    _write("ERROR", message, fields)
