#!/usr/bin/env python3
"""Asks `analyze mcp` the questions of questions.json by two agents without a model, and scores their answers.

    pip install -r analyze/tests/mcp.txt
    bench.py [ANALYZE] [--only NAME,…] [--write]

`ANALYZE` is target/release/analyze by default. `--write` writes results.md, and the transcript of the first question in analyze/MCP.md;
without it, the exit code is 1 if either differs from what would be written. `--only` asks some questions, and compares nothing.
What an agent may do: agent.py. The known answers are of the programs that made the recordings, not of `analyze`.
"""

import argparse
import asyncio
import json
import pathlib
import sys
import textwrap

from agent import Guided, Raw, Reply
from mcp import Client, StdioServerParameters

HERE = pathlib.Path(__file__).resolve().parent
TESTDATA = HERE.parents[1]
DOCS = TESTDATA.parent / "analyze" / "MCP.md"
RESULTS = HERE / "results.md"
# Marks in the documents: what lies between them is generated, the rest of results.md after NOTES is not.
BEGIN, END = "<!-- transcript: testdata/bench/mcp/bench.py --write -->", "<!-- end of the transcript -->"
NOTES = "## What remains"
WIDTH = 180


def known(item):
    """The known answer; some are in the files that the recorded programs wrote."""
    value = item["known"]
    if not isinstance(value, dict):
        return value
    found = json.loads((TESTDATA / value["file"]).read_text())
    for name in value["path"].split("."):
        found = found[int(name)] if isinstance(found, list) else found[name]
    return sum(row[value["sum_of"]] for row in found) if "sum_of" in value else found


def score(item, answer):
    """right, wrong, or cannot answer; and whether that is what is known."""
    truth = known(item)
    if answer.value is None:
        is_right = truth is None and any(word in answer.reason for word in item["reason"])
        return "cannot answer", is_right
    if truth is None:
        return "wrong", False
    if isinstance(truth, list):
        is_right = any(word in str(answer.value) for word in truth)
    elif isinstance(truth, str):
        is_right = answer.value == truth
    else:
        is_number = isinstance(answer.value, (int, float))
        is_right = is_number and abs(answer.value - truth) <= truth * item["tolerance_ratio"]
    return ("right" if is_right else "wrong"), is_right


def short(text, width):
    text = str(text).replace("|", "/").replace("\n", " ")
    return text if len(text) <= width else text[: width - 1] + "…"


def upper(text):
    """A text that begins as a sentence does; names of files keep their case."""
    return text if "/" in text.split()[0] else text[:1].upper() + text[1:]


def said(item, answer):
    if answer.value is None:
        return short(answer.reason, 110)
    unit = {"bytes": " bytes", "time": " ns"}.get(item["asks"], "") if isinstance(answer.value, (int, float)) else ""
    return short(f"{answer.value:,}{unit}" if unit else answer.value, 110)


def truth_of(item):
    truth = known(item)
    if truth is None:
        return "cannot answer"
    if isinstance(truth, list):
        return ", ".join(truth)
    if isinstance(truth, str):
        return truth
    unit = "bytes" if item["asks"] == "bytes" else "ns"
    return f"{truth:,} {unit}" + (f" ± {item['tolerance_ratio']:.0%}" if item["tolerance_ratio"] else "")


async def asked(analyze, items):
    """Returns, for each question, each agent's name with the agent and its answer."""
    started = StdioServerParameters(command=str(analyze), args=["mcp", str(TESTDATA)])
    async with Client(started, read_timeout_seconds=300) as client:

        async def call(tool, arguments):
            result = await client.call_tool(tool, arguments)
            return result.structured_content, len(result.content[0].text.encode())

        found = []
        for item in items:
            both = []
            for agent in (Guided(call), Raw(call)):
                answer = await agent.answer(item)
                both.append((agent, answer, *score(item, answer)))
            evidence = both[0][1].evidence
            if evidence:
                # Every id of evidence can be read, here and in any later session.
                content = json.loads((await client.read_resource(evidence)).contents[0].text)
                assert content["answer"], evidence
                item["resource"] = Reply("resources/read", {}, content, 0)
            found.append((item, both))
            print(f"{item['name']}: " + "; ".join(f"{type(agent).__name__} {verdict}{'' if is_right else ' (!)'}" for agent, _, verdict, is_right in both), file=sys.stderr)
        return found


def results(found):
    """results.md, up to its notes."""
    lines = [
        "# What bench.py found",
        "",
        f"{len(found)} questions on bundled runs, answered by two agents without a model: `guided` follows `next_evidence`, `SQL` has the tools `schema` and `sql` alone, and one query for",
        "each type of answer, over the same library of views: it shows what a query without guidance finds, and a model that reads `schema` writes better ones. Bytes are those of the",
        "answers' texts, as a model would read them. The known answers and their sources are in questions.json, what the agents do is in agent.py: neither has a rule for a single question.",
        "Every id of evidence that `guided` gave with an answer was read as a resource. All but the notes at the end is written by `bench.py --write`.",
        "",
        "| | guided | SQL |",
        "|---|---|---|",
    ]
    sides = list(zip(*(both for _, both in found), strict=True))
    rows = [
        ("right", lambda side: sum(verdict == "right" for _, _, verdict, _ in side)),
        ("cannot answer, and that is right", lambda side: sum(verdict == "cannot answer" and is_right for _, _, verdict, is_right in side)),
        ("cannot answer, though the record tells", lambda side: sum(verdict == "cannot answer" and not is_right for _, _, verdict, is_right in side)),
        ("wrong", lambda side: sum(verdict == "wrong" for _, _, verdict, _ in side)),
        ("calls", lambda side: sum(len(agent.replies) for agent, *_ in side)),
        ("bytes", lambda side: f"{sum(agent.bytes_count for agent, *_ in side):,}"),
        ("bytes a question that was answered as it should be", lambda side: f"{sum(agent.bytes_count for agent, *_ in side) // max(1, sum(is_right for *_, is_right in side)):,}"),
    ]
    lines += [f"| {name} | {of(sides[0])} | {of(sides[1])} |" for name, of in rows]
    lines += ["", "| question | known | guided | calls | bytes | SQL | calls | bytes |", "|---|---|---|---|---|---|---|---|"]
    for item, both in found:
        where = item.get("run") or f"{', '.join(item['baseline'])} and {', '.join(item['candidate'])}"
        cells = [f"**{item['name']}**: {item['question']} ({where})", truth_of(item)]
        for agent, answer, verdict, is_right in both:
            mark = verdict if verdict != "cannot answer" else f"cannot answer, {'right' if is_right else 'though the record tells'}"
            cells += [f"**{mark}**: {said(item, answer)}", str(len(agent.replies)), f"{agent.bytes_count:,}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n"


def pruned(reply):
    """What a transcript shows of a reply: what a reader looks at first."""
    answer = reply.answer
    if reply.tool == "open":
        return {"recorded": {name: answer["recorded"][name] for name in ("producer", "profile")}, "rows_count": answer["rows_count"], "warnings": answer["warnings"]}
    if reply.tool == "findings":
        return {"findings": [{name: finding[name] for name in ("kind", "rank", "title")} for finding in answer["findings"]], "account": answer["account"]["bound"]}
    if reply.tool == "next_evidence":
        return {"calls": [{"tool": call["tool"], "why": call["why"]} for call in answer["calls"]]}
    if "rows" in answer:
        return {"rows": answer["rows"]}
    return {name: field["rows"] for name, field in answer.items() if isinstance(field, dict) and "rows" in field} or answer


def wrapped(text, most_lines):
    """A text as lines of a block; what is left out is said."""
    lines = textwrap.wrap(text, WIDTH, initial_indent="", subsequent_indent="    ", break_on_hyphens=False)
    return lines if len(lines) <= most_lines else [*lines[:most_lines], f"    … ({len(text):,} characters)"]


def transcript(item, agent, answer, resource):
    """The first question, from its words to its evidence; long answers are cut."""
    lines = [BEGIN, "", f"“{item['question']}”, asked of `testdata/{item['run']}`:", "", "```text"]
    for reply in agent.replies:
        arguments = {name: value for name, value in reply.arguments.items() if name != "run"}
        is_evidence = len(reply.answer.get("rows", ())) == 1
        lines += wrapped(f"> {reply.tool} {json.dumps(arguments) if arguments else ''}".rstrip(), 4)
        lines += wrapped(json.dumps(pruned(reply), ensure_ascii=False), 3 if is_evidence else 1)
    lines += ["```", "", f"Answer: **{answer.value if answer.value is not None else 'cannot answer'}**. {upper(short(answer.reason, WIDTH))}. The evidence is a resource, which any later session reads:", ""]
    lines += ["```text", *wrapped(f"> resources/read {answer.evidence}", 4), *wrapped(json.dumps(pruned(resource), ensure_ascii=False), 3), "```", ""] if resource else []
    return "\n".join([*lines, END])


def replaced(path, begin, end, text):
    """The text of a file with what lies between two marks replaced; `end` of None is up to the notes, which stay."""
    old = path.read_text() if path.exists() else ""
    if end is None:
        place = old.find(NOTES)
        return text + (old[place:] if place >= 0 else f"{NOTES}\n")
    head, found, rest = old.partition(begin)
    assert found, f"{path}: has no {begin}"
    return head + text + rest.partition(end)[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("analyze", nargs="?", type=pathlib.Path, default=TESTDATA.parent / "target/release/analyze")
    parser.add_argument("--only", default="", help="names of questions, with commas")
    parser.add_argument("--write", action="store_true", help="write results.md, and the transcript in analyze/MCP.md")
    arguments = parser.parse_args()
    items = json.loads((HERE / "questions.json").read_text())
    only = set(filter(None, arguments.only.split(",")))
    unknown = only - {item["name"] for item in items}
    assert not unknown, f"no such questions: {unknown}"
    found = asyncio.run(asked(arguments.analyze.resolve(), [item for item in items if not only or item["name"] in only]))
    if only:
        for item, both in found:
            for agent, answer, verdict, _ in both:
                print(f"{item['name']}\t{type(agent).__name__}\t{verdict}\t{len(agent.replies)} calls\t{agent.bytes_count} bytes\t{said(item, answer)}\t{short(answer.evidence, 120)}")
        return
    item, ((agent, answer, *_), _) = found[0]
    texts = {RESULTS: replaced(RESULTS, None, None, results(found)), DOCS: replaced(DOCS, BEGIN, END, transcript(item, agent, answer, item.get("resource")))}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if arguments.write:
        for path, text in texts.items():
            path.write_text(text)
    elif stale:
        sys.exit(f"{', '.join(path.name for path in stale)}: not what the server answers; see the difference with --write")


if __name__ == "__main__":
    main()
