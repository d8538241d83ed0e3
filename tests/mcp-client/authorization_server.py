"""An MCP server with the authorization server of its library: of the MCP Python SDK (1 and 2), or of FastMCP.

    python authorization_server.py [--library mcp|fastmcp] [--without-metadata] [--registers METHOD]

It has one tool, `whoami`, and authorizes everybody. Tokens end after seconds, refresh tokens are rotated, and one that
comes twice ends the login, as RFC 9700, section 4.14, advises. Says its URL on stderr, and each token request, whose
answer takes its time. `--without-metadata` publishes no metadata of the resource (RFC 9728), as servers of the revision
2025-03-26 do. `--registers` chooses how clients authenticate at the token endpoint, whatever they ask for.
"""

import argparse
import asyncio
import secrets
import socket
import sys
import time

ACCESS_TOKEN_SECONDS = 20
SCOPES = ["notes"]
# How long a client waits for tokens: long enough to be interrupted meanwhile.
ANSWER_SECONDS = 0.3


def sdk_app(url, with_metadata, method):
    """The application of the MCP Python SDK."""
    from mcp.server.auth.provider import (
        AccessToken, AuthorizationCode, OAuthAuthorizationServerProvider, RefreshToken, construct_redirect_uri,
    )
    from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
    from mcp.shared.auth import OAuthToken

    class Provider(OAuthAuthorizationServerProvider):
        def __init__(self):
            self.clients, self.codes, self.refresh, self.access, self.used = {}, {}, {}, {}, {}

        async def get_client(self, client_id):
            return self.clients.get(client_id)

        async def register_client(self, client_info):
            # The answer has what is registered.
            client_info.token_endpoint_auth_method = method or client_info.token_endpoint_auth_method
            self.clients[client_info.client_id] = client_info

        async def authorize(self, client, params):
            code = secrets.token_urlsafe(32)
            self.codes[code] = AuthorizationCode(
                code=code, client_id=client.client_id, scopes=params.scopes or [], expires_at=time.time() + 60,
                code_challenge=params.code_challenge, redirect_uri=params.redirect_uri,
                redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly, resource=params.resource,
            )
            return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

        async def load_authorization_code(self, client, authorization_code):
            return self.codes.get(authorization_code)

        async def exchange_authorization_code(self, client, authorization_code):
            del self.codes[authorization_code.code]
            return self.issue(client, authorization_code.scopes)

        async def load_refresh_token(self, client, refresh_token):
            if refresh_token in self.used:
                self.forget(client.client_id)
            return self.refresh.get(refresh_token)

        async def exchange_refresh_token(self, client, refresh_token, scopes):
            self.used[refresh_token.token] = self.refresh.pop(refresh_token.token)
            return self.issue(client, scopes)

        async def load_access_token(self, token):
            found = self.access.get(token)
            return found if found and found.expires_at > time.time() else None

        async def revoke_token(self, token):
            self.forget(token.client_id)

        def issue(self, client, scopes):
            access, refresh = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
            ends = int(time.time()) + ACCESS_TOKEN_SECONDS
            of = {"client_id": client.client_id, "scopes": scopes}
            self.access[access] = AccessToken(token=access, expires_at=ends, **of)
            self.refresh[refresh] = RefreshToken(token=refresh, **of)
            return OAuthToken(access_token=access, expires_in=ACCESS_TOKEN_SECONDS, refresh_token=refresh, scope=" ".join(scopes))

        def forget(self, client_id):
            for tokens in (self.refresh, self.access):
                for name in [name for name, token in tokens.items() if token.client_id == client_id]:
                    del tokens[name]

    settings = AuthSettings(
        issuer_url=url, resource_server_url=f"{url}/mcp" if with_metadata else None, required_scopes=SCOPES,
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES, default_scopes=SCOPES),
        revocation_options=RevocationOptions(enabled=True),
    )
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        from mcp.server.fastmcp import FastMCP as MCPServer
    server = MCPServer("notes", auth_server_provider=Provider(), auth=settings)
    server.tool()(whoami)
    return server.streamable_http_app()


def fastmcp_app(url, method):
    """The application of FastMCP."""
    from fastmcp import FastMCP
    from fastmcp.server.auth.auth import ClientRegistrationOptions, RevocationOptions
    from fastmcp.server.auth.providers import in_memory

    in_memory.DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS = ACCESS_TOKEN_SECONDS

    class Provider(in_memory.InMemoryOAuthProvider):
        async def register_client(self, client_info):
            # The answer has what is registered.
            client_info.token_endpoint_auth_method = method or client_info.token_endpoint_auth_method
            await super().register_client(client_info)

    provider = Provider(
        base_url=url, required_scopes=SCOPES,
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES),
        revocation_options=RevocationOptions(enabled=True),
    )
    server = FastMCP("notes", auth=provider)
    server.tool(whoami)
    return server.http_app(path="/mcp")


def told(app):
    """The application, which says that tokens are requested before it answers."""

    async def run(scope, receive, send):
        if scope["type"] == "http" and scope["path"] == "/token":
            print("token request", file=sys.stderr, flush=True)
            # The request is handled at once: the old refresh token is worth nothing from now on.
            messages = []

            async def keep(message):
                messages.append(message)

            await app(scope, receive, keep)
            await asyncio.sleep(ANSWER_SECONDS)
            for message in messages:
                await send(message)
            return
        await app(scope, receive, send)

    return run


def whoami() -> str:
    """Says that the caller is known."""
    return "somebody"


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=["mcp", "fastmcp"], default="mcp")
    parser.add_argument("--without-metadata", action="store_true")
    parser.add_argument("--registers", metavar="METHOD")
    asked = parser.parse_args()
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    method = asked.registers
    app = fastmcp_app(url, method) if asked.library == "fastmcp" else sdk_app(url, not asked.without_metadata, method)
    print(f"listening on {url}", file=sys.stderr, flush=True)
    await uvicorn.Server(uvicorn.Config(told(app), log_level="warning")).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
