#!/usr/bin/env python3
"""Makes the fixtures of this folder, and what they must become, computed here and not by `analyze`.

    python3 testdata/snapshots/make.py [SNAPSHOT.pickle.gz]

small.pN.pickle     one snapshot in every protocol of pickle
small.rows.csv      the rows it must become
old.pickle          as versions before 2.1 wrote it: no times, blocks without addresses
mixed-7gb.pickle.gz with an argument: a real snapshot (H200, torch 2.11, testdata/h200/mixed-7gb is a like run), whose paths are changed
tail.pickle.gz      its last events only, as if its ring had been small
mixed-7gb.json      how many events of each kind they have, and a hash (FNV-1a) of all of them in order
"""
import collections, csv, gzip, json, pathlib, pickle, sys

HERE = pathlib.Path(__file__).resolve().parent
MAIN = {"name": "<module>", "filename": "/job/train.py", "line": 7}
STEP = {"name": "step;part", "filename": "/job/größe.py", "line": 42}
CPP = {"name": "at::native::empty_cuda(c10::IntArrayRef)", "filename": "??", "line": 0}
T0 = 1_700_000_000_000_000
BASE = 0x7F00_0000_0000
HIGH = 1 << 47


def event(action, addr, size, time_us, frames, stream=0, note="", **more):
    where = {"device_free" if action == "oom" else "addr": addr}
    return {"action": action, **where, "size": size, "stream": stream, "time_us": time_us,
            "compile_context": "N/A", "user_metadata": note, "frames": frames, **more}


def small():
    deep, flat, none = [CPP, STEP, MAIN], [MAIN], []
    first = [
        event("segment_alloc", BASE, 2 << 20, T0, deep),
        event("alloc", BASE, 1000, T0, deep),
        event("alloc", BASE + 1024, 513, T0, flat, note="warm-up"),
        event("alloc", BASE + 2048, 512, T0 + 1, flat, note="warm-up"),
        event("free_requested", BASE, 1000, T0 + 1, flat, note="steps"),
        event("free_completed", BASE, 1000, T0 + 1, flat),
        event("free_requested", BASE + 1024, 513, T0 + 5, none),
        event("oom", 123456, 1 << 40, T0 + 9, deep),
        event("annotate", 0, 0, T0 + 9, none),
        event("snapshot", 0, 0, T0 + 10, none),
    ]
    second = [
        event("segment_map", HIGH, 20 << 20, T0 + 2, flat, stream=0x55AA),
        event("segment_map", HIGH + (20 << 20), 20 << 20, T0 + 3, flat, stream=0x55AA, segment_pool_id=(7, 9)),
        event("alloc", HIGH, 30 << 20, T0 + 3, flat, stream=0x55AA),
        event("segment_unmap", HIGH + (30 << 20), 10 << 20, T0 + 4, none, stream=0x55AA),
    ]
    block = lambda address, size, requested, state, frames: {
        "address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}
    segment = lambda device, address, size, kind, expandable, pool, stream, frames, blocks: {
        "device": device, "address": address, "total_size": size, "allocated_size": 0, "active_size": 0,
        "requested_size": 0, "stream": stream, "segment_type": kind, "segment_pool_id": pool,
        "is_expandable": expandable, "frames": frames, "blocks": blocks}
    segments = [
        segment(0, BASE, 2 << 20, "small", False, (0, 0), 0, deep, [
            block(BASE, 1024, 1000, "inactive", none),
            block(BASE + 1024, 1024, 513, "active_awaiting_free", flat),
            block(BASE + 2048, 512, 512, "active_allocated", flat),
            block(BASE + 2560, (2 << 20) - 2560, 0, "inactive", none)]),
        segment(1, HIGH, 30 << 20, "large", True, (7, 9), 0x55AA, flat, [
            block(HIGH, 30 << 20, 30 << 20, "active_allocated", flat)]),
    ]
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "backend:native,expandable_segments:True,max_split_size_mb:128",
                "max_split_size": 128 << 20, "garbage_collection_threshold": 0.5, "expandable_segments": True,
                "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False,
                "roundup_power2_divisions": {"1": 0, "2": 0, "4": 8, "8": 8}}
    annotations = [
        {"name": "epoch", "stage": "START", "device": 0, "time_us": T0 + 1},
        {"name": "here", "device": 0, "time_us": T0 + 2},
        {"name": "epoch", "stage": "END", "device": 0, "time_us": T0 + 4},
    ]
    return {"external_annotations": annotations, "segments": segments, "device_traces": [first, second],
            "allocator_settings": settings}


def frame_text(frame):
    name = frame["name"].replace(";", ":")
    return name if frame["filename"] == "??" else f"{name} ({frame['filename']}:{frame['line']})"


def rows(snapshot):
    """ts, kind, op, dur, addr, size_bytes, value, stream, device, pool_owner, pool_id, detail, frames"""
    folded = lambda frames: ";".join(frame_text(frame) for frame in reversed(frames))
    out, last = [], 0
    for device, trace in enumerate(snapshot["device_traces"]):
        before = -1
        for entry in trace:
            ts = before = max(entry["time_us"] * 1000, before + 1)
            owner, pool = entry.get("segment_pool_id", (0, 0))
            addr = entry["device_free"] if entry["action"] == "oom" else entry["addr"]
            out.append([ts, "alloc", entry["action"], "", addr, entry["size"], "", entry["stream"] or "", device,
                        owner or "", pool or "", "", folded(entry["frames"])])
        last = max(last, before)
    end = last + 1
    for s in snapshot["segments"]:
        owner, pool = s["segment_pool_id"]
        detail = s["segment_type"] + (",expandable" if s["is_expandable"] else "")
        out.append([end, "alloc", "state_segment", "", s["address"], s["total_size"], "", s["stream"] or "", s["device"],
                    owner or "", pool or "", detail, folded(s["frames"])])
        for b in s["blocks"]:
            state = b["state"].replace("active_awaiting_free", "active_pending_free")
            out.append([end, "alloc", "state_block", "", b["address"], b["requested_size"], b["size"], s["stream"] or "",
                        s["device"], "", "", state, folded(b["frames"])])
    mark = lambda ts, dur, op, name: out.append([ts, "mark", op, dur, "", "", "", "", "", "", "", name, ""])
    mark(T0 * 1000 + 2, 999, "range", "warm-up")   # entries 3 and 4 of the first trace
    mark(T0 * 1000 + 1001, 1, "range", "steps")
    mark((T0 + 1) * 1000, 3000, "range", "epoch")
    mark((T0 + 2) * 1000, "", "point", "here")
    return sorted(out, key=lambda row: (row[0], row[1], row[2], row[8] if row[8] != "" else -1, row[4]))


def old():
    frames = [MAIN]
    trace = [{"action": "segment_alloc", "addr": BASE, "size": 2 << 20, "stream": 0, "frames": frames},
             {"action": "alloc", "addr": BASE, "size": 1000, "stream": 0, "frames": frames}]
    blocks = [{"size": 1024, "state": "active_allocated", "history": [{"addr": BASE, "real_size": 1000, "frames": frames}]},
              {"size": (2 << 20) - 1024, "state": "inactive"}]
    segments = [{"device": 0, "address": BASE, "total_size": 2 << 20, "allocated_size": 1024, "active_size": 1024,
                 "stream": 0, "segment_type": "small", "blocks": blocks}]
    return {"segments": segments, "device_traces": [trace]}


def fingerprint(trace):
    value, count = 0xCBF29CE484222325, collections.Counter(entry["action"] for entry in trace)
    for entry in trace:
        addr = entry["device_free"] if entry["action"] == "oom" else entry["addr"]
        line = f"{entry['action']},{addr},{entry['size']},{entry['time_us']}\n"
        for byte in line.encode():
            value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return {"counts": dict(sorted(count.items())), "fnv1a": f"{value:016x}"}


def write_gzip(name, data):
    (HERE / name).write_bytes(gzip.compress(pickle.dumps(data, 4), mtime=0))


def main():
    snapshot = small()
    for protocol in range(6):
        (HERE / f"small.p{protocol}.pickle").write_bytes(pickle.dumps(snapshot, protocol))
    with open(HERE / "small.rows.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow("ts kind op dur addr size_bytes value stream device pool_owner pool_id detail frames".split())
        writer.writerows(rows(snapshot))
    (HERE / "old.pickle").write_bytes(pickle.dumps(old(), 2))
    if len(sys.argv) > 1:
        real = pickle.load(gzip.open(sys.argv[1]))
        seen = set()
        lists = [entry["frames"] for entry in real["device_traces"][0]]
        for segment in real["segments"]:
            lists.append(segment["frames"])
            lists.extend(block["frames"] for block in segment["blocks"])
        for frame in (frame for frames in lists for frame in frames):
            if id(frame) not in seen:
                seen.add(id(frame))
                name = frame["filename"]
                frame["filename"] = name[name.index("torch/"):] if "/torch/" in name else "/job/" + name.split("/")[-1]
        tail = {**real, "device_traces": [real["device_traces"][0][-1500:]]}
        write_gzip("mixed-7gb.pickle.gz", real)
        write_gzip("tail.pickle.gz", tail)
        facts = {name: fingerprint(data["device_traces"][0]) for name, data in [("mixed-7gb", real), ("tail", tail)]}
        (HERE / "mixed-7gb.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
