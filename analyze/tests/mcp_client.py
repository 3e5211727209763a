#!/usr/bin/env python3
"""Asks `analyze mcp` by the official client of the Model Context Protocol: every tool, resource, prompt, an error, a cancelled
query, over stdio in both lifecycles and over HTTP. `mcp_client.py ANALYZE`.

    pip install -r analyze/tests/mcp.txt
"""

import asyncio
import contextlib
import json
import os
import pathlib
import re
import secrets
import shutil
import sys
import tempfile
import time

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNS = {"hog": "faults/cpu-hog.fault.parquet", "quiet": "faults/healthy-compute.twin.parquet", "memory": "memory/examples.parquet"}
ENDLESS = "SELECT sum(value % 7) FROM generate_series(1, 1000000000000)"
# A debug build on a machine that does other work, too.
PATIENCE = 300


async def ask(client, tool, **arguments):
    """The answer of a tool, which the client has compared with the tool's schema."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, f"{tool}: {result.content}"
    answer = result.structured_content
    assert json.loads(result.content[0].text) == answer, tool
    assert answer["truncated"] == bool(answer["left_out"]), answer["left_out"]
    assert all(open["reason"] for open in answer["cannot_answer"]), answer["cannot_answer"]
    return answer


async def refused(client, tool, **arguments):
    """What a tool says that does not answer."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, f"{tool}: {result.structured_content}"
    return result.structured_content["error"]


async def read(client, uri):
    contents = (await client.read_resource(uri)).contents
    assert len(contents) == 1, uri
    return contents[0].text


async def tools(client):
    """Asks every tool, and for the evidence of each answer."""
    named = {tool.name for tool in (await client.list_tools()).tools}
    asked = {
        "open": dict(run="hog.parquet"),
        "findings": dict(run="hog.parquet"),
        "explain": dict(run="hog.parquet", slow_call_rank=1),
        "memory": dict(run="memory.parquet", at="end"),
        "leaks": dict(run="memory.parquet"),
        "what_if": dict(run="memory.parquet", conf="expandable_segments:True"),
        "compare": dict(baseline=["quiet.parquet"], candidate=["hog.parquet"]),
        "schema": dict(view="slow_calls"),
        "sql": dict(run="hog.parquet", query="SELECT pid, sum(time_ns) AS time_ns FROM run_time GROUP BY pid"),
        "next_evidence": dict(run="hog.parquet", topic="slow calls"),
    }
    assert named == set(asked) and len(named) <= 10, named
    read_count = 0
    for tool, arguments in asked.items():
        answer = await ask(client, tool, **arguments)
        for uri in [answer["id"], *answer["evidence"][:3]]:
            assert json.loads(await read(client, uri))["answer"] is not None, uri
            read_count += 1
    findings = (await ask(client, "findings", run="hog.parquet"))["answer"]["findings"]
    assert any(finding["kind"] == "waiting-for-cpu" for finding in findings), findings
    following = await ask(client, "next_evidence", id=findings[0]["id"])
    for call in following["answer"]["findings"][0]["calls"]:
        await ask(client, call["tool"], **call["arguments"])
    return len(asked), read_count


async def the_rest(client):
    """Asks for resources and prompts, and what must not be answered."""
    resources = [resource.uri for resource in (await client.list_resources()).resources]
    for uri in resources:
        assert await read(client, str(uri)), uri
    assert len((await client.list_resource_templates()).resource_templates) > 5
    prompts = (await client.list_prompts()).prompts
    assert {prompt.name for prompt in prompts} == {"investigate", "review_regression"}
    for prompt in prompts:
        text = (await client.get_prompt(prompt.name, {prompt.arguments[0].name: "hog.parquet"})).messages[0].content.text
        assert "hog.parquet" in text and "data" in text
    assert "no such file" in await refused(client, "findings", run="absent.parquet")
    assert "`..`" in await refused(client, "open", run="../outside.parquet")
    await refused(client, "sql", run="hog.parquet", query="DELETE FROM events")
    with contextlib.suppress(MCPError):
        await read(client, "inquest://absent.parquet/sql?q=SELECT%201")
        raise AssertionError("a run that is not there was read")


async def cancelled(client):
    """Gives up on more queries than are computed at once; the next one is answered only if they end."""
    for _ in range(3):
        # The client tells the server that it gave up.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.call_tool("sql", dict(run="hog.parquet", query=ENDLESS, timeout_ms=300000)), 1)
            raise AssertionError("a query without end was answered")
    began = time.monotonic()
    answer = await ask(client, "sql", run="hog.parquet", query="SELECT 1 AS one")
    assert answer["answer"]["rows"] == [{"one": 1}], answer
    assert time.monotonic() - began < 120, "a cancelled query went on"


async def over_stdio(analyze, folder, mode):
    started = StdioServerParameters(command=str(analyze), args=["mcp", str(folder)])
    async with Client(started, mode=mode, read_timeout_seconds=PATIENCE) as client:
        counts = await tools(client)
        await the_rest(client)
        await cancelled(client)
        return client.protocol_version, *counts


async def over_http(analyze, folder):
    token = secrets.token_urlsafe(32)
    environment = dict(os.environ, INQUEST_MCP_TOKEN=token)
    arguments = ["mcp", folder, "--http", "127.0.0.1:0"]
    server = await asyncio.create_subprocess_exec(analyze, *arguments, env=environment, stderr=asyncio.subprocess.PIPE)
    try:
        line = (await server.stderr.readline()).decode()
        url = re.search(r"http://\S+", line).group()
        for mode in ["legacy", "auto"]:
            async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE) as http:
                transport = streamable_http_client(url, http_client=http)
                async with Client(transport, mode=mode, read_timeout_seconds=PATIENCE) as client:
                    await the_rest(client)
                    await ask(client, "findings", run="hog.parquet")
                    await cancelled(client)
        async with httpx2.AsyncClient() as http:
            assert (await http.post(url, json={})).status_code == 401
            headers = {"Authorization": f"Bearer {token}", "Origin": "http://localhost"}
            assert (await http.post(url, json={}, headers=headers)).status_code == 403
    finally:
        server.kill()
        await server.wait()


async def main():
    analyze = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, run in RUNS.items():
            shutil.copy(ROOT / "testdata" / run, folder / f"{name}.parquet")
        for mode in ["legacy", "auto"]:
            version, tools_count, read_count = await over_stdio(analyze, folder, mode)
            print(f"{mode}: protocol {version}, {tools_count} tools, {read_count} resources")
        await over_http(analyze, folder)
        print("http: only with the token")


if __name__ == "__main__":
    asyncio.run(main())
