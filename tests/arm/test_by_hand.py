"""The double as a person starts it: `make arm`."""

import asyncio
import re
import socket
import ssl
import sys

import aiohttp
import pytest

from tests.support.arm.identity import CLIENT, SECRET, TENANT

pytestmark = pytest.mark.process


async def test_it_says_where_it_listens_and_what_a_client_needs(tmp_path):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.support.arm", "--port", "0", "--folder", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        said = (await process.stdout.readuntil(b"Ctrl-C")).decode()
        [endpoint] = re.findall(r"listens at (\S+)", said)
        assert f"AZURE_CLIENT_SECRET={SECRET}" in said
        assert f"--arm-ca {tmp_path}/ca.pem" in said
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        form = {"client_id": CLIENT, "client_secret": SECRET}
        async with aiohttp.ClientSession() as session:
            url = f"{endpoint}/{TENANT}/oauth2/v2.0/token"
            async with session.post(url, data=form, ssl=context) as answer:
                assert (await answer.json())["token_type"] == "Bearer"
            [prices] = re.findall(r"--prices-endpoint (\S+)", said)
            async with session.get(prices, ssl=context) as answer:
                assert (await answer.json())["Count"] > 0
    finally:
        process.terminate()
        await process.communicate()


async def test_a_port_that_is_taken_is_one_line_and_not_a_trace(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.support.arm", "--port", port, "--folder", str(tmp_path)),
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
    assert process.returncode == 1
    [line] = said.decode().splitlines()
    assert f"port {port} of 127.0.0.1 is taken" in line
