#!/bin/sh
# job.sh RUN_DIR -- argv...: one attempt of one run, the same script for every executor and every run.
# It claims the next attempt directory (mkdir is atomic, so two of them never share one), writes down what it executes, starts the command
# with its output in the attempt's logs, forwards USR1 and TERM to it, and writes exit.json last, by rename: whoever sees that file sees the
# whole of it and knows that nothing else will be written. Nothing of the user's is evaluated here: the command is passed on as "$@".
set -u
[ $# -ge 3 ] && [ "$2" = "--" ] || { echo "usage: job.sh RUN_DIR -- argv..." >&2; exit 2; }
run=$1
shift 2

now()
{
    moment=$(date +%s.%N)
    case $moment in *[!0-9.]*) moment=$(date +%s) ;; esac
    printf '%s' "$moment"
}

# A full disk is waited for, ten minutes at most: it can end, and what is not written down is lost.
patience=600

# The next number after the highest that is there, so that a newer attempt always has the higher number.
attempt=0
for directory in "$run"/attempt-*; do
    number=${directory##*/attempt-}
    case $number in "" | *[!0-9]*) continue ;; esac
    [ "$number" -gt "$attempt" ] && attempt=$number
done
while :; do
    attempt=$((attempt + 1))
    here=$run/attempt-$attempt
    fault=$(LC_ALL=C mkdir "$here" 2>&1) && break
    [ -d "$here" ] && continue
    case $fault in *"No space left"* | *uota*) ;; *) patience=0 ;; esac
    [ "$patience" -gt 0 ] || { echo "job.sh: cannot make $here: ${fault##*: }" >&2; exit 1; }
    patience=$((patience - 1))
    attempt=$((attempt - 1))
    sleep 1
done
# 1 when there is no use in waiting any longer.
have_patience()
{
    [ -d "$here" ] && [ "$patience" -gt 0 ] || return 1
    patience=$((patience - 1))
    sleep 1
}
open_logs()
{
    true >"$here/stdout.log" && true >"$here/stderr.log"
}
until open_logs 2>/dev/null; do
    have_patience || { echo "job.sh: cannot write $here/stdout.log" >&2; exit 1; }
done
started=$(now)
[ -f "$run/job.json" ] && cp "$run/job.json" "$here/job.json.tmp" && mv "$here/job.json.tmp" "$here/job.json"

SWITCHYARD_ATTEMPT=$attempt
export SWITCHYARD_ATTEMPT

# A signal that comes before there is a child is kept for it; `caught` tells an interrupted wait from a finished one.
child=
kept=
caught=
forward()
{
    caught=$1
    if [ -n "$child" ]; then kill -s "$1" "$child" 2>/dev/null; else kept=$1; fi
}
trap 'forward USR1' USR1
trap 'forward TERM' TERM
trap '' HUP

# The command, not this script, goes into the control group that keeps its memory: what the kernel ends there is still written down here.
if [ -n "${SWITCHYARD_MEMORY_GROUP:-}" ]; then
    set -- /bin/sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$SWITCHYARD_MEMORY_GROUP" "$@"
fi
"$@" >"$here/stdout.log" 2>"$here/stderr.log" </dev/null &
child=$!
[ -z "$kept" ] || kill -s "$kept" "$child" 2>/dev/null
code=
while :; do
    caught=
    wait "$child"
    status=$?
    # 127 after a first answer: the shell has forgotten the child, the answer stands.
    [ "$status" -eq 127 ] && [ -n "$code" ] && break
    code=$status
    [ -n "$caught" ] || break
done

signal=null
[ "$code" -gt 128 ] && signal=$((code - 128))
node=$(uname -n | tr -cd 'A-Za-z0-9._-')
ended=$(now)
record()
{
    printf '{"v":1,"attempt":%d,"code":%d,"signal":%s,"started":%s,"ended":%s,"nodes":["%s"]}\n' \
        "$attempt" "$code" "$signal" "$started" "$ended" "$node" >"$here/exit.json.tmp" && mv "$here/exit.json.tmp" "$here/exit.json"
}
until record 2>/dev/null; do
    have_patience || { echo "job.sh: cannot write $here/exit.json" >&2; break; }
done
exit "$code"
