#!/bin/bash
# Records duty.c with perf and with ftrace at once, both on CLOCK_MONOTONIC: record.sh DIRECTORY [MILLISECONDS]. Needs root and perf.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
milliseconds=${2:-300}
mkdir -p "$out"
gcc -O2 -pthread -o "$out/duty" "$here/duty.c"

tracing=/sys/kernel/tracing
mountpoint -q $tracing || mount -t tracefs tracefs $tracing
instance=$tracing/instances/inquest
mkdir $instance
trap 'echo 0 > $instance/tracing_on; rmdir $instance' EXIT
echo mono > $instance/trace_clock
echo "${BUFFER_KB:-16384}" > $instance/buffer_size_kb
events=(sched_switch sched_waking sched_wakeup sched_wakeup_new sched_migrate_task sched_process_fork sched_process_exec sched_process_exit)
for event in "${events[@]}"; do echo 1 > $instance/events/sched/$event/enable; done

list=$(printf ',sched:%s' "${events[@]}")
perf record --quiet --all-cpus --clockid CLOCK_MONOTONIC --mmap-pages 4096 --event "${list#,}" --output "$out/perf.data" -- \
    "$out/duty" "$milliseconds" > "$out/truth.txt"
echo 0 > $instance/tracing_on
cat $instance/trace > "$out/ftrace.txt"
cd "$out"
perf script --ns > perf.txt
perf script --ns --fields comm,pid,tid,cpu,time,event,trace > perf-pid.txt 2> /dev/null
perf sched timehist --state --next --wakeups > timehist.txt 2> /dev/null
