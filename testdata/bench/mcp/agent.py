"""Two agents without a model that answer questions with the tools of `analyze mcp`: `Guided` follows `next_evidence`, `Raw` has SQL alone.

Both get a question in a user's words, the run, and the type of answer that is asked for, and see nothing but structured content. What they
do depends on the type alone, never on the question: its words go to the server as a topic, and decide between figures by their names. An
answer is an `Answer`; what the record does not tell is answered with the reason that the server gives.
"""

import dataclasses
import re

# Words that say nothing about what is asked for.
COMMON = set("a an and as at because did do does few for from had has have how if in is it its job long many made me most much my no of on or program run she so than that the them there they this to was were what when which who why with would".split())
# A name with its share, as titles of findings have them: "cpu-hog (98.0 %)", "pt_data_worker × 3 (95.6 %)".
NAME = re.compile(r"([A-Za-z_][\w.:/-]*)(?: × \d+)? \([\d.]+ %\)")
FUNCTION = re.compile(r"\b(?:cu|cuda|nccl)[A-Z]\w+")
# The least share of the excess latency that makes a cause the answer.
MOST = 0.5
# How many words of a question must fit a figure, one of them its own name, that an agent takes it for the answer.
LEAST_WORDS = 3
# Longer texts are not names of anything: they are ids, queries or explanations.
LONG = 100


@dataclasses.dataclass
class Answer:
    """What an agent answers: a value, or None with the reason; and the id of the evidence."""

    value: object
    reason: str = ""
    evidence: str = ""


@dataclasses.dataclass
class Reply:
    """One call of a tool and its structured content; `why` is what `next_evidence` said of it."""

    tool: str
    arguments: dict
    content: dict
    bytes_count: int
    why: str = ""

    @property
    def answer(self):
        return self.content.get("answer") or {}


def words(text):
    """Words of a text in one form: in lower case, without common ones, plurals as singulars."""
    found = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(text)).lower())
    return {word[:-1] if word.endswith("s") and len(word) > 3 else word for word in found} - COMMON


def objects(value, path=""):
    """Every object in a value, with the names of the fields that lead to it."""
    if isinstance(value, dict):
        yield path, value
        for name, field in value.items():
            yield from objects(field, f"{path} {name}")
    elif isinstance(value, list):
        for item in value:
            yield from objects(item, path)


class Agent:
    """Calls tools, and keeps every reply."""

    def __init__(self, call):
        self._call, self.replies = call, []

    async def ask(self, tool, why="", **arguments):
        if any(reply.tool == tool and reply.arguments == arguments for reply in self.replies):
            return None
        content, bytes_count = await self._call(tool, arguments)
        self.replies.append(Reply(tool, arguments, content, bytes_count, why))
        return self.replies[-1]

    @property
    def bytes_count(self):
        return sum(reply.bytes_count for reply in self.replies)

    def cannot(self, question, replies=None):
        """The answer that the record does not tell it, with the server's reasons: warnings are reasons if they are about what is asked."""
        replies = self.replies if replies is None else replies
        reasons = [open_["reason"] for reply in replies for open_ in reply.content.get("cannot_answer", [])]
        warnings = [warning for reply in self.replies for warning in reply.answer.get("warnings") or []]
        reasons += [warning for warning in warnings if words(warning) & words(question)]
        return Answer(None, "; ".join(dict.fromkeys(reasons)) or "no answer holds it")


class Guided(Agent):
    """`open`, `findings`, the calls that `next_evidence` names for the question; if that does not answer it, those that it names for the first finding."""

    async def answer(self, item):
        if "run" not in item:
            await self.ask("compare", baseline=item["baseline"], candidate=item["candidate"])
            return self.extract(item)
        await self.ask("open", run=item["run"])
        await self.ask("findings", run=item["run"])
        await self.follow(run=item["run"], topic=item["question"])
        found = self.extract(item)
        first = self.first_finding()
        if found.value is None and first is not None:
            await self.follow(id=first["id"])
            found = self.extract(item)
        return found

    async def follow(self, **arguments):
        named = await self.ask("next_evidence", **arguments)
        lists = [named.answer.get("calls", []), *(finding["calls"] for finding in named.answer.get("findings", []))]
        for call in (call for calls in lists for call in calls):
            await self.ask(call["tool"], call["why"], **call["arguments"])

    def first_finding(self):
        """The first finding that is more than a note."""
        found = next(reply.answer for reply in self.replies if reply.tool == "findings")
        return next((finding for finding in found["findings"] if finding["rank"] != "note"), None)

    def extract(self, item):
        asked = item["asks"]
        if asked in ("bytes", "time"):
            return self.figure(item["question"], "_bytes" if asked == "bytes" else "_ns")
        return {"cause": self.cause, "who": self.who, "function": self.function, "scheduler": self.scheduler, "leak": self.leak, "regression": self.regression}[asked](item["question"])

    def cause(self, question):
        first = self.first_finding()
        found = next(reply for reply in self.replies if reply.tool == "findings")
        if first is None:
            bound = found.answer["account"]
            return self.cannot(question) if found.answer["is_open"] else Answer(f"nothing: {bound['bound']}", evidence=bound["id"])
        texts = [first["title"], *(evidence["text"] for evidence in first["evidence"])]
        return Answer("; ".join(texts), evidence=first["id"])

    def named(self, question, pattern):
        first = self.first_finding()
        name = pattern.search(first["title"]) if first else None
        return Answer(name.group(name.lastindex or 0), evidence=first["id"]) if name else self.cannot(question)

    def who(self, question):
        return self.named(question, NAME)

    def function(self, question):
        return self.named(question, FUNCTION)

    def scheduler(self, question):
        """Whether most of the excess latency of slow calls lies in time without a CPU: of the functions that the question names, or of all."""
        asked = FUNCTION.findall(question)
        # The first answer that divides the excess latency decides: a sum by function, or single calls.
        for reply in self.replies:
            rows = [row for _, row in objects(reply.answer) if "excess_ns" in row and ("lost_scheduler_ns" in row or "scheduler_ns" in row)]
            rows = [row for row in rows if not asked or row.get("subject", row.get("op")) in asked]
            total = sum(row["excess_ns"] for row in rows)
            if not total:
                continue
            part = {name: sum(row.get(f"lost_{name}_ns", row.get(f"{name}_ns", 0)) for row in rows) / total for name in ("scheduler", "inconclusive")}
            if part["inconclusive"] > MOST:
                return self.cannot(question)
            said = "yes" if part["scheduler"] > MOST else "no"
            return Answer(said, f"{part['scheduler']:.1%} of {total / 1e6:.3g} ms excess latency was without a CPU", reply.answer.get("id", reply.content["id"]))
        return self.cannot(question)

    def leak(self, question):
        for reply in self.replies:
            if reply.tool == "leaks":
                verdicts = [growth["verdict"] for growth in reply.answer["allocators"] + reply.answer["drivers"]]
                if "leak" in verdicts:
                    return Answer("yes", evidence=reply.content["id"])
                told = set(verdicts) - {"inconclusive"}
                return Answer("no", evidence=reply.content["id"]) if told and told == set(verdicts) else self.cannot(question, [reply])
        return self.cannot(question)

    def regression(self, question):
        reply = self.replies[-1]
        outcomes = {gate["outcome"] for gate in reply.answer["comparison"]["gates"]}
        if "regression" in outcomes:
            return Answer("yes", evidence=reply.content["id"])
        return Answer("no", evidence=reply.content["id"]) if outcomes == {"pass"} else self.cannot(question)

    def figure(self, question, unit):
        """The cost of the first finding if the question names its kind; else the figure that most words of the question fit: of its own name first, then
        of the texts in its object, then of the call's reason. An answer that says that it cannot tell is as good as one that tells, if as many fit."""
        first = self.first_finding()
        if unit == "_ns" and first and first["cost_ns"] is not None and words(first["kind"]) <= words(question):
            return Answer(first["cost_ns"], "cost_ns", first["id"])
        asked, found = words(question), []

        def fits(own, near, about, place, answer):
            if asked & own and len(asked & (own | near | about)) >= LEAST_WORDS:
                found.append((4 * len(asked & own) + 2 * len(asked & near) + len(asked & about), -place, answer))

        for place, reply in enumerate(self.replies):
            about = words(reply.why)
            for path, one in objects(reply.answer):
                near = words(path).union(*(words(text) for text in one.values() if isinstance(text, str) and len(text) < LONG))
                for name, value in one.items():
                    if name.endswith(unit) and isinstance(value, (int, float)):
                        fits(words(name), near, about, place, Answer(value, name, one.get("id", reply.content["id"])))
            if reply.content.get("cannot_answer") and "columns" in reply.answer:
                names = [column["name"] for column in reply.answer["columns"] if column["name"].endswith(unit)]
                fits(set().union(*map(words, names)), words(reply.arguments["query"]), about, place, self.cannot(question, [reply]))
        return max(found, key=lambda one: one[:2])[2] if found else self.cannot(question)


# One query for each type of answer, and the view that an agent looks up before it writes it.
CAUSES = ("run_time", "SELECT part, op, coalesce(task_comm, thread_comm) AS comm, sum(time_ns) AS time_ns FROM run_time WHERE stage IS DISTINCT FROM 'start-up' GROUP BY 1, 2, 3 ORDER BY time_ns DESC, 1, 2, 3 LIMIT 1")
QUERIES = {
    "cause": (*CAUSES, "part"),
    "who": (*CAUSES, "comm"),
    "function": (*CAUSES, "op"),
    "time": (*CAUSES, "time_ns"),
    "bytes": ("memory_timeline", "SELECT max(reserved_bytes) AS reserved_bytes FROM memory_timeline", "reserved_bytes"),
    "scheduler": ("op_time", "SELECT CASE WHEN 2 * sum(preempted_ns + runnable_ns) > sum(dur) THEN 'yes' ELSE 'no' END AS said FROM op_time WHERE depth = 0 AND dur > 3 * (SELECT approx_median(dur) FROM op_time)", "said"),
    "leak": ("memory_timeline", "SELECT CASE WHEN corr(ts, allocated_bytes) > 0.5 THEN 'yes' ELSE 'no' END AS said, count(*) AS rows_count FROM memory_timeline HAVING count(*) > 0", "said"),
    "regression": ("metrics_run", "SELECT sum(wall_ns) AS wall_ns FROM metrics_run", "wall_ns"),
}


class Raw(Agent):
    """`schema`, then one query for the type of answer, over the same library of views."""

    async def answer(self, item):
        view, query, column = QUERIES[item["asks"]]
        await self.ask("schema")
        await self.ask("schema", view=view)
        if "run" not in item:
            walls = [await self.value(run, query, column) for run in (*item["baseline"], *item["candidate"])]
            return Answer("yes" if walls[1] > walls[0] * 1.02 else "no")
        value = await self.value(item["run"], query, column)
        return Answer(value) if value is not None else self.cannot(item["question"])

    async def value(self, run, query, column):
        reply = await self.ask("sql", run=run, query=query)
        rows = reply.answer.get("rows") or [{}]
        return rows[0].get(column)
