"""The double as a person starts it: `make arm`."""

import asyncio
import re
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
