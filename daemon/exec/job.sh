#!/bin/sh
# job.sh RUN_DIR [-m MODULE]... -- argv...: one attempt of one run, the same script for every executor and every run.
# job.sh -a ARRAY_DIR [-m MODULE]... -- argv...: the same as an element of a Slurm array; ARRAY_DIR/elements says of which run, and the words
# that are ARRAY_DIR stand for its directory.
# It claims the next attempt directory (mkdir is atomic, so two of them never share one), writes down what it executes, loads environment
# modules, starts the command with its output in the attempt's logs, forwards USR1 and TERM to it, and writes exit.json last, by rename:
# whoever sees that file sees the whole of it and knows that nothing else will be written. Nothing of the user's is evaluated here: the
# command is passed on as "$@", a module's name as one word.
# In a Slurm job (SLURM_JOB_ID) a signal is the scheduler's wish to have the nodes back: the run is asked to stop and save by its stop file,
# with this attempt's name in it, so that the next attempt knows whose wish it was and takes it away. A stop file that says anything else
# is a person's or the daemon's, and stays.
set -u
well_formed()
{
    [ "${1:-}" != "-a" ] || shift
    [ $# -ge 1 ] || return 1
    shift
    while [ $# -ge 2 ] && [ "$1" = "-m" ]; do shift 2; done
    [ $# -ge 2 ] && [ "$1" = "--" ]
}
well_formed "$@" || { echo "usage: job.sh RUN_DIR|-a ARRAY_DIR [-m MODULE]... -- argv..." >&2; exit 2; }
slurm=${SLURM_JOB_ID:-}

# The element's line is "TAG SUBMISSION NAME", NAME being the run directory's beside the folder of arrays: "RUNS/.arrays/ARRAY". On a shared disk
# it is waited for.
find_element()
{
    array=$1
    case ${SLURM_ARRAY_TASK_ID:-} in
    "" | *[!0-9]*) echo "job.sh: not an element of an array: SLURM_ARRAY_TASK_ID is no number" >&2; return 1 ;;
    esac
    tries=30
    until line=$(LC_ALL=C sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$array/elements" 2>/dev/null) && [ -n "$line" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { echo "job.sh: $array/elements has no element $SLURM_ARRAY_TASK_ID: nothing is started" >&2; return 1; }
        sleep 1
    done
    SWITCHYARD_TAG=${line%% *}
    line=${line#* }
    SWITCHYARD_SUBMISSION=${line%% *}
    export SWITCHYARD_TAG SWITCHYARD_SUBMISSION
    run=${array%/*/*}/${line#* }
    slurm=${SLURM_ARRAY_JOB_ID:-$slurm}_$SLURM_ARRAY_TASK_ID
    cd "$run"
}
if [ "$1" = "-a" ]; then
    find_element "$2" || exit 1
    shift 2
    for word in "$@"; do
        shift
        [ "$word" != "$array" ] || word=$run
        set -- "$@" "$word"
    done
else
    run=$1
    shift
fi

# A job that is not the run's any more (its submission was given up, and another one made) does nothing. A lower number than ours is an old
# look at a file on a shared disk, and "8 unsent" is not decided yet: it is waited for.
submission_now()
{
    current=$(cat "$run/submission" 2>/dev/null)
    case $current in "" | *[!0-9]*) current=0 ;; esac
}
if [ -n "${SWITCHYARD_SUBMISSION:-}" ]; then
    tries=30
    submission_now
    while [ "$current" -lt "$SWITCHYARD_SUBMISSION" ] && [ -d "$run" ] && [ "$tries" -gt 0 ]; do
        tries=$((tries - 1))
        sleep 1
        submission_now
    done
    [ "$current" -eq "$SWITCHYARD_SUBMISSION" ] || {
        echo "job.sh: submission $SWITCHYARD_SUBMISSION of $run is not its last ($current): nothing is started" >&2
        exit 0
    }
fi

now()
{
    moment=$(date +%s.%N)
    case $moment in *[!0-9.]*) moment=$(date +%s) ;; esac
    printf '%s' "$moment"
}

# By the machine's own clock, which nobody sets: how long the command takes.
uptime()
{
    up=
    read -r up idle </proc/uptime 2>/dev/null
    case $up in "" | *[!0-9.]*) up=null ;; esac
    printf '%s' "$up"
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
begun=$(uptime)
[ -f "$run/job.json" ] && cp "$run/job.json" "$here/job.json.tmp" && mv "$here/job.json.tmp" "$here/job.json"

SWITCHYARD_ATTEMPT=$attempt
export SWITCHYARD_ATTEMPT

# The stop file of an earlier attempt has done its work.
wish=$(head -c 64 "$run/stop" 2>/dev/null)
case $wish in attempt-"$attempt") ;; attempt-*) rm -f "$run/stop" ;; esac

# A signal that comes before there is a child is kept for it; `caught` tells an interrupted wait from a finished one.
child=
kept=
caught=
launcher=
forward()
{
    caught=$1
    if [ -n "$child" ]; then kill -s "$1" "$child" 2>/dev/null; else kept=$1; fi
}
# Whether the command would take USR1 and not end by it: it handles it, or blocks it to wait for it (srun). A launcher passes it on to ranks,
# which must have begun: one that is still being loaded would end by it.
takes_usr1()
{
    [ -z "$launcher" ] || [ -s "$here/records.jsonl" ] || return 1
    for mask in $(sed -n -e 's/^SigCgt:[[:space:]]*//p' -e 's/^SigBlk:[[:space:]]*//p' "/proc/$child/status" 2>/dev/null); do
        mask=${mask%??}
        case ${mask#"${mask%?}"} in [2367abef]) return 0 ;; esac
    done
    return 1
}
# The file is the wish, whole or not at all (an empty one would be a person's); the signal only shortens the wait.
stop_and_save()
{
    wish=$run/.stop-$attempt
    printf 'attempt-%d\n' "$attempt" >"$wish" 2>/dev/null && ln "$wish" "$run/stop" 2>/dev/null
    [ -e "$run/stop" ] || mv "$wish" "$run/stop" 2>/dev/null # a disk without hard links
    rm -f "$wish"
    if [ -z "$child" ] || takes_usr1; then forward USR1; else caught=USR1; fi
}
if [ -n "$slurm" ]; then
    trap stop_and_save USR1 USR2 TERM
else
    trap 'forward USR1' USR1
    trap 'forward TERM' TERM
fi
trap '' HUP

# `module` is a shell function, defined by a file of the site's; a job's shell reads none by itself.
find_module_command()
{
    for init in "${MODULESHOME:-}/init/sh" "${LMOD_PKG:-}/init/sh" /usr/share/modules/init/sh /usr/share/lmod/lmod/init/sh \
        /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh; do
        command -v module >/dev/null 2>&1 && return 0
        [ -r "$init" ] && . "$init"
    done
    command -v module >/dev/null 2>&1
}
load_modules()
{
    [ "$1" = "-m" ] || return 0
    set +u
    find_module_command || { echo "job.sh: this machine has no module command: cannot load the module $2" >&2; return 1; }
    while [ "$1" = "-m" ]; do
        module load "$2" || { echo "job.sh: cannot load the module $2" >&2; return 1; }
        shift 2
    done
    set -u
}
run_command()
{
    while [ "$1" = "-m" ]; do shift 2; done
    shift
    case ${1##*/} in srun | mpirun | mpiexec) launcher=$1 ;; esac
    # The command, not this script, goes into the control group that keeps its memory: what the kernel ends there is still written down here.
    if [ -n "${SWITCHYARD_MEMORY_GROUP:-}" ]; then
        set -- /bin/sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$SWITCHYARD_MEMORY_GROUP" "$@"
    fi
    "$@" >>"$here/stdout.log" 2>>"$here/stderr.log" </dev/null &
    child=$!
    [ -z "$kept" ] || [ -n "$slurm" ] || kill -s "$kept" "$child" 2>/dev/null # in a Slurm job the file says it
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
}

# Asked for now: at the end there may be no time for it.
nodes=
find_nodes()
{
    names=$(uname -n)
    [ -z "$slurm" ] || names=$(timeout 10 scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2>/dev/null) || names=${SLURM_JOB_NODELIST:-$(uname -n)}
    set -f
    for name in $(printf '%s' "$names" | tr -c 'A-Za-z0-9._,[]\n-' '?'); do
        nodes=$nodes${nodes:+,}\"$name\"
    done
    set +f
}
find_nodes

if ! load_modules "$@" >>"$here/stderr.log" 2>&1; then
    code=1
elif [ -n "$slurm" ] && [ -n "$kept" ]; then
    code=75 # stopped before it began
else
    run_command "$@"
fi

# What a node's kernel ends for want of memory, srun tells in words alone: Slurm calls the job FAILED, with srun's own exit code 1.
note_memory()
{
    tail -c 65536 "$here/stderr.log" 2>/dev/null | grep -q '^srun: error: .*: tasks\{0,1\} [0-9,-]*: Out Of Memory$' || return 0
    limit=null
    case ${SLURM_MEM_PER_NODE:-0} in 0 | *[!0-9]*) ;; *) limit=$((SLURM_MEM_PER_NODE * 1048576)) ;; esac
    printf '{"v":1,"witness":"srun","limit":%s,"peak":null,"kills":1}\n' "$limit" >"$here/memory.json.tmp" 2>/dev/null &&
        mv "$here/memory.json.tmp" "$here/memory.json"
}
case $code in 0 | 75) ;; *) [ -z "$slurm" ] || note_memory ;; esac

signal=null
[ "$code" -gt 128 ] && signal=$((code - 128))
ended=$(now)
over=$(uptime)
job=
[ -z "$slurm" ] || job=$(printf ',"job_id":"%s","restarts":%d' "$(printf '%s' "$slurm" | tr -cd '0-9A-Za-z_')" "${SLURM_RESTART_COUNT:-0}")
record()
{
    printf '{"v":1,"attempt":%d,"code":%d,"signal":%s,"started":%s,"ended":%s,"uptime":[%s,%s],"nodes":[%s]%s}\n' \
        "$attempt" "$code" "$signal" "$started" "$ended" "$begun" "$over" "$nodes" "$job" >"$here/exit.json.tmp" && mv "$here/exit.json.tmp" "$here/exit.json"
}
until record 2>/dev/null; do
    have_patience || { echo "job.sh: cannot write $here/exit.json" >&2; break; }
done
exit "$code"
