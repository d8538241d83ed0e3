"""An MCP server of one tool over stdio, as the first page of the official SDK's documentation has it."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("echo")


@server.tool()
def echo(text: str) -> str:
    """Says the text again."""
    return text


if __name__ == "__main__":
    server.run()
