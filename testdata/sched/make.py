#!/usr/bin/env python3
"""Makes test data of a recording of record.sh: make.py DIRECTORY OUT

- `duty.*.txt.gz`: its texts. Threads of other programs get the name `other`, and paths lose their directories; nothing else is
  changed. The recording is cut to the time from the program's start to its end.
- `duty.pftrace`, `duty.compact.pftrace.gz`: the events of ftrace's text as traces of Perfetto, written by the wire format of
  protocol buffers: messages of events; and compact lists, with packets compressed.
- `duty.truth.json`: the program's threads and its own times.

Needs no package. Field numbers are those of Perfetto's protos.
"""
import gzip
import json
import re
import sys
import zlib
from pathlib import Path

OWN = (":-1", "duty", "hog_a", "hog_b", "sleeper", "turn_a", "turn_b", "perf")
KERNEL = re.compile(r"^(swapper/|migration/|ksoftirqd/|rcu_|kworker|kcompactd|cpuhp/|<idle>|<\.\.\.>)")
SWITCH = re.compile(r"prev_comm=(.*) prev_pid=(\d+) prev_prio=(-?\d+) prev_state=(\S+) ==> next_comm=(.*) next_pid=(\d+) next_prio=(-?\d+)$")
TASK = re.compile(r"comm=(.*) pid=(\d+) prio=(-?\d+)(?: target_cpu=(\d+))?(?: orig_cpu=(\d+) dest_cpu=(\d+))?")
FORK = re.compile(r"comm=(.*) pid=(\d+) child_comm=(.*) child_pid=(\d+)$")
EXEC = re.compile(r"filename=(.*) pid=(\d+) old_pid=(\d+)$")
LINE = re.compile(r"^\s*(.*)-(\d+)\s+\[(\d+)\] (\S+) (\d+)\.(\d{6}): (\w+): (.*)$")


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def data(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def packed(field, values):
    return data(field, b"".join(map(varint, values)))


def shown(comm):
    return comm if comm in OWN or KERNEL.match(comm) else "other"


NAMES = {
    "timehist": (r"^ *[\d.]+ \[\d+\] +(.+?)\[-?\d+(?:/\d+)?\]", r"(?:next|awakened): (.+?)\[\d+(?:/\d+)?\]"),
    "text": (
        r"(?:prev_comm|next_comm|child_comm|comm)=(.*?) (?:prev_pid|next_pid|child_pid|pid)=",
        r"^ *(.+?)(?:-\d+| +-?\d+(?:/-?\d+)?) +\[\d{3}\]",
    ),
}


def clean(text, kind):
    """A text without names of other programs and without directories."""
    names = {name for line in text.splitlines() for pattern in NAMES[kind] for name in re.findall(pattern, line)}
    for name in sorted(names, key=len, reverse=True):
        if shown(name) != name:
            text = re.sub(r"(?<![\w/])" + re.escape(name) + r"(?=[ \[\-])", "other", text)
    return re.sub(r"filename=\S*/", "filename=", text)


def cut(text, time, from_s, to_s):
    lines = []
    for line in text.splitlines():
        found = re.search(time, line)
        if not found or from_s <= float(found.group(1)) <= to_s:
            lines.append(line + "\n")
    return "".join(lines)


STATES = {"R": 0, "R+": 256, "S": 1, "D": 2, "T": 4, "t": 8, "X": 16, "Z": 32, "P": 64, "I": 128}
FLAGS = {"h": 8, "s": 16, "H": 24}


def events(text):
    for line in text.splitlines():
        found = LINE.match(line)
        if found:
            comm, tid, cpu, flags, seconds, micros, name, fields = found.groups()
            ns = int(seconds) * 10**9 + int(micros) * 1000
            yield ns, int(cpu), int(tid), sum(v for k, v in FLAGS.items() if k in flags[2]), name, fields


def message(name, fields):
    """Field of FtraceEvent, and the event."""
    if name == "sched_switch":
        prev, prev_tid, prev_prio, state, comm, tid, prio = SWITCH.match(fields).groups()
        body = data(1, prev) + number(2, int(prev_tid)) + number(3, int(prev_prio)) + number(4, STATES[state])
        return 4, body + data(5, comm) + number(6, int(tid)) + number(7, int(prio))
    if name == "sched_process_fork":
        comm, tid, child, child_tid = FORK.match(fields).groups()
        return 239, data(1, comm) + number(2, int(tid)) + data(3, child) + number(4, int(child_tid))
    if name == "sched_process_exec":
        file, tid, old = EXEC.match(fields).groups()
        return 237, data(1, file) + number(2, int(tid)) + number(3, int(old))
    comm, tid, prio, target, origin, to = TASK.match(fields).groups()
    task = data(1, comm) + number(2, int(tid))
    if name == "sched_process_exit":
        return 238, task + number(4, int(prio))
    task += number(3, int(prio))
    if name == "sched_migrate_task":
        return 491, task + number(4, int(origin)) + number(5, int(to))
    return {"sched_wakeup": 17, "sched_waking": 20, "sched_wakeup_new": 114}[name], task + number(5, int(target))


BOOT_NS, REAL_NS = 5_000_000_000, 1_700_000_000_000_000_000


def head(from_ns):
    clocks = b"".join(data(1, number(1, clock) + number(2, from_ns + add)) for clock, add in ((6, BOOT_NS), (3, 0), (1, REAL_NS)))
    system = data(45, data(1, data(1, "Linux") + data(3, "6.18.0")) + number(8, 2))
    return [data(1, data(6, clocks)), data(1, system)]


def tree(truth):
    process = number(1, truth["pid"]) + number(2, 1) + data(3, "duty") + data(3, "300")
    threads = b"".join(data(2, number(1, tid) + data(2, name) + number(3, truth["pid"])) for name, tid in truth["threads"].items())
    return data(1, data(2, data(1, process) + threads))


def bundles(found, count):
    """Events of each CPU in portions, a CPU after the other as they are read from the kernel's buffers."""
    found = list(found)
    for start in range(0, len(found), count):
        portion = found[start : start + count]
        for cpu in sorted({event[1] for event in portion}, reverse=True):
            yield cpu, [event for event in portion if event[1] == cpu]


def plain(text, truth):
    packets = head(truth["from_ns"])
    for cpu, portion in bundles(events(text), 400):
        body = number(1, cpu)
        for ns, _, tid, flags, name, fields in portion:
            field, event = message(name, fields)
            body += data(2, number(1, ns + BOOT_NS) + number(2, tid) + number(5, flags) + data(field, event))
        packets.append(data(1, data(1, body) + number(10, 1)))
    return b"".join(packets + [tree(truth)])


def compact(text, truth):
    packets = head(truth["from_ns"])
    for cpu, portion in bundles(events(text), 300):
        names, switches, wakings, rest = [], [], [], b""
        def index(name):
            if name not in names:
                names.append(name)
            return names.index(name)
        last = {"switch": 0, "waking": 0}
        for ns, _, tid, flags, name, fields in portion:
            ns += BOOT_NS
            if name == "sched_switch":
                _, _, _, state, comm, next_tid, prio = SWITCH.match(fields).groups()
                switches.append((ns - last["switch"], STATES[state], int(next_tid), int(prio), index(comm)))
                last["switch"] = ns
            elif name == "sched_waking":
                comm, woken, prio, target, _, _ = TASK.match(fields).groups()
                wakings.append((ns - last["waking"], int(woken), int(target), int(prio), index(comm), flags))
                last["waking"] = ns
            elif name in ("sched_process_exec", "sched_process_exit", "sched_process_fork"):
                field, event = message(name, fields)
                rest += data(2, number(1, ns) + number(2, tid) + data(field, event))
        columns = lambda rows, fields: b"".join(packed(field, column) for field, column in zip(fields, zip(*rows)))
        body = columns(switches, (1, 2, 3, 4, 6)) + columns(wakings, (7, 8, 9, 10, 11, 12)) + b"".join(data(5, name) for name in names)
        packets.append(data(1, data(1, number(1, cpu) + rest + data(4, body)) + number(10, 1)))
    packets.append(tree(truth))
    half = len(packets) // 2
    return b"".join(packets[:half]) + data(1, data(50, zlib.compress(b"".join(packets[half:]))))


def main():
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    words = [line.split() for line in (source / "truth.txt").read_text().splitlines()]
    process = next(line for line in words if line[0] == "process")
    truth = {"pid": int(process[1]), "from_ns": int(process[3]), "to_ns": int(process[5])}
    truth["threads"] = {line[0]: int(line[1]) for line in words if line[0] != "process"}
    from_s, to_s = truth["from_ns"] / 1e9, truth["to_ns"] / 1e9 + 0.001
    times = {"perf": r" (\d+\.\d{9}): ", "perf-pid": r" (\d+\.\d{9}): ", "ftrace": r" (\d+\.\d{6}): ", "timehist": r"^ *(\d+\.\d{6}) "}
    texts = {}
    for name, time in times.items():
        kind = name if name in NAMES else "text"
        texts[name] = clean(cut((source / f"{name}.txt").read_text(), time, from_s, to_s), kind)
        (out / f"duty.{name}.txt.gz").write_bytes(gzip.compress(texts[name].encode(), mtime=0))
    (out / "duty.pftrace").write_bytes(plain(texts["ftrace"], truth))
    (out / "duty.compact.pftrace.gz").write_bytes(gzip.compress(compact(texts["ftrace"], truth), mtime=0))
    (out / "duty.truth.json").write_text(json.dumps(truth, indent=1) + "\n")


main()
