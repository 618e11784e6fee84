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
# The script's own variables begin with sy_, as none does that a spec may set: what is assigned here changes nothing that the command sees.
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
sy_slurm=${SLURM_JOB_ID:-}

# The element's line is "TAG SUBMISSION NAME", NAME being the run directory's beside the folder of arrays: "RUNS/.arrays/ARRAY". On a shared disk
# it is waited for.
find_element()
{
    sy_array=$1
    case ${SLURM_ARRAY_TASK_ID:-} in
    "" | *[!0-9]*) echo "job.sh: not an element of an array: SLURM_ARRAY_TASK_ID is no number" >&2; return 1 ;;
    esac
    sy_tries=30
    until sy_line=$(LC_ALL=C sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$sy_array/elements" 2>/dev/null) && [ -n "$sy_line" ]; do
        sy_tries=$((sy_tries - 1))
        [ "$sy_tries" -gt 0 ] ||
            { echo "job.sh: $sy_array/elements has no element $SLURM_ARRAY_TASK_ID: nothing is started" >&2; return 1; }
        sleep 1
    done
    SWITCHYARD_TAG=${sy_line%% *}
    sy_line=${sy_line#* }
    SWITCHYARD_SUBMISSION=${sy_line%% *}
    export SWITCHYARD_TAG SWITCHYARD_SUBMISSION
    sy_run=${sy_array%/*/*}/${sy_line#* }
    sy_slurm=${SLURM_ARRAY_JOB_ID:-$sy_slurm}_$SLURM_ARRAY_TASK_ID
    cd "$sy_run"
}
if [ "$1" = "-a" ]; then
    find_element "$2" || exit 1
    shift 2
    for sy_word in "$@"; do
        shift
        [ "$sy_word" != "$sy_array" ] || sy_word=$sy_run
        set -- "$@" "$sy_word"
    done
else
    sy_run=$1
    shift
fi

# A job that is not the run's any more (its submission was given up, and another one made) does nothing. A lower number than ours is an old
# look at a file on a shared disk, and "8 unsent" is not decided yet: it is waited for.
submission_now()
{
    sy_current=$(cat "$sy_run/submission" 2>/dev/null)
    case $sy_current in "" | *[!0-9]*) sy_current=0 ;; esac
}
if [ -n "${SWITCHYARD_SUBMISSION:-}" ]; then
    sy_tries=30
    submission_now
    while [ "$sy_current" -lt "$SWITCHYARD_SUBMISSION" ] && [ -d "$sy_run" ] && [ "$sy_tries" -gt 0 ]; do
        sy_tries=$((sy_tries - 1))
        sleep 1
        submission_now
    done
    [ "$sy_current" -eq "$SWITCHYARD_SUBMISSION" ] || {
        echo "job.sh: submission $SWITCHYARD_SUBMISSION of $sy_run is not its last ($sy_current): nothing is started" >&2
        exit 0
    }
fi

# A full disk is waited for, ten minutes at most: it can end, and what is not written down is lost.
sy_patience=600

# A wrapper around sbatch, or a call that is made once more on its way, can make two jobs of one submission. The first that comes here has it, by
# its id in a file that is there whole or not at all, and has it however often Slurm starts it again. Any other does nothing.
claim_submission()
{
    sy_claim=$sy_run/submission.$SWITCHYARD_SUBMISSION
    sy_wish=$sy_claim-$sy_slurm
    until [ -s "$sy_claim" ]; do
        [ -w "$sy_run" ] && [ "$sy_patience" -gt 0 ] || { echo "job.sh: cannot write $sy_claim: nothing is started" >&2; exit 1; }
        if printf '%s\n' "$sy_slurm" >"$sy_wish"; then
            ln "$sy_wish" "$sy_claim" || (set -C && printf '%s\n' "$sy_slurm" >"$sy_claim") # a disk without hard links
        fi 2>/dev/null
        rm -f "$sy_wish"
        [ -s "$sy_claim" ] && break
        sy_patience=$((sy_patience - 1))
        sleep 1
    done
    sy_owner=$(cat "$sy_claim")
    [ "$sy_owner" = "$sy_slurm" ] || {
        echo "job.sh: submission $SWITCHYARD_SUBMISSION of $sy_run is job $sy_owner, this is job $sy_slurm: nothing is started" >&2
        exit 0
    }
}
[ -z "$sy_slurm" ] || [ -z "${SWITCHYARD_SUBMISSION:-}" ] || claim_submission

now()
{
    sy_moment=$(date +%s.%N)
    case $sy_moment in *[!0-9.]*) sy_moment=$(date +%s) ;; esac
    printf '%s' "$sy_moment"
}

# By the machine's own clock, which nobody sets: how long the command takes.
uptime()
{
    sy_up=
    read -r sy_up sy_idle </proc/uptime 2>/dev/null
    case $sy_up in "" | *[!0-9.]*) sy_up=null ;; esac
    printf '%s' "$sy_up"
}

# The next number after the highest that is there, so that a newer attempt always has the higher number.
sy_attempt=0
for sy_directory in "$sy_run"/attempt-*; do
    sy_number=${sy_directory##*/attempt-}
    case $sy_number in "" | *[!0-9]*) continue ;; esac
    [ "$sy_number" -gt "$sy_attempt" ] && sy_attempt=$sy_number
done
while :; do
    sy_attempt=$((sy_attempt + 1))
    sy_here=$sy_run/attempt-$sy_attempt
    sy_fault=$(LC_ALL=C mkdir "$sy_here" 2>&1) && break
    [ -d "$sy_here" ] && continue
    case $sy_fault in *"No space left"* | *uota*) ;; *) sy_patience=0 ;; esac
    [ "$sy_patience" -gt 0 ] || { echo "job.sh: cannot make $sy_here: ${sy_fault##*: }" >&2; exit 1; }
    sy_patience=$((sy_patience - 1))
    sy_attempt=$((sy_attempt - 1))
    sleep 1
done
# 1 when there is no use in waiting any longer.
have_patience()
{
    [ -d "$sy_here" ] && [ "$sy_patience" -gt 0 ] || return 1
    sy_patience=$((sy_patience - 1))
    sleep 1
}
open_logs()
{
    true >"$sy_here/stdout.log" && true >"$sy_here/stderr.log"
}
until open_logs 2>/dev/null; do
    have_patience || { echo "job.sh: cannot write $sy_here/stdout.log" >&2; exit 1; }
done
sy_started=$(now)
sy_begun=$(uptime)
[ -f "$sy_run/job.json" ] && cp "$sy_run/job.json" "$sy_here/job.json.tmp" && mv "$sy_here/job.json.tmp" "$sy_here/job.json"

SWITCHYARD_ATTEMPT=$sy_attempt
export SWITCHYARD_ATTEMPT

# The stop file of an earlier attempt has done its work.
sy_wish=$(head -c 64 "$sy_run/stop" 2>/dev/null)
case $sy_wish in attempt-"$sy_attempt") ;; attempt-*) rm -f "$sy_run/stop" ;; esac

# A signal that comes before there is a child is kept for it; `caught` tells an interrupted wait from a finished one.
sy_child=
sy_kept=
sy_caught=
sy_launcher=
forward()
{
    sy_caught=$1
    if [ -n "$sy_child" ]; then kill -s "$1" "$sy_child" 2>/dev/null; else sy_kept=$1; fi
}
# Whether the command would take USR1 and not end by it: it handles it, or blocks it to wait for it (srun). A launcher passes it on to ranks,
# which must have begun: one that is still being loaded would end by it.
takes_usr1()
{
    [ -z "$sy_launcher" ] || [ -s "$sy_here/records.jsonl" ] || return 1
    for sy_mask in $(sed -n -e 's/^SigCgt:[[:space:]]*//p' -e 's/^SigBlk:[[:space:]]*//p' "/proc/$sy_child/status" 2>/dev/null); do
        sy_mask=${sy_mask%??}
        case ${sy_mask#"${sy_mask%?}"} in [2367abef]) return 0 ;; esac
    done
    return 1
}
# The file is the wish, whole or not at all (an empty one would be a person's); the signal only shortens the wait.
stop_and_save()
{
    sy_wish=$sy_run/.stop-$sy_attempt
    printf 'attempt-%d\n' "$sy_attempt" >"$sy_wish" 2>/dev/null && ln "$sy_wish" "$sy_run/stop" 2>/dev/null
    [ -e "$sy_run/stop" ] || mv "$sy_wish" "$sy_run/stop" 2>/dev/null # a disk without hard links
    rm -f "$sy_wish"
    if [ -z "$sy_child" ] || takes_usr1; then forward USR1; else sy_caught=USR1; fi
}
if [ -n "$sy_slurm" ]; then
    trap stop_and_save USR1 USR2 TERM
else
    trap 'forward USR1' USR1
    trap 'forward TERM' TERM
fi
trap '' HUP

# `module` is a shell function, defined by a file of the site's; a job's shell reads none by itself.
find_module_command()
{
    for sy_init in "${MODULESHOME:-}/init/sh" "${LMOD_PKG:-}/init/sh" /usr/share/modules/init/sh /usr/share/lmod/lmod/init/sh \
        /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh; do
        command -v module >/dev/null 2>&1 && return 0
        [ -r "$sy_init" ] && . "$sy_init"
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
    case ${1##*/} in srun | mpirun | mpiexec) sy_launcher=$1 ;; esac
    # The command, not this script, goes into the control group that keeps its memory: what the kernel ends there is still written down here.
    if [ -n "${SWITCHYARD_MEMORY_GROUP:-}" ]; then
        set -- /bin/sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$SWITCHYARD_MEMORY_GROUP" "$@"
    fi
    "$@" >>"$sy_here/stdout.log" 2>>"$sy_here/stderr.log" </dev/null &
    sy_child=$!
    [ -z "$sy_kept" ] || [ -n "$sy_slurm" ] || kill -s "$sy_kept" "$sy_child" 2>/dev/null # in a Slurm job the file says it
    sy_code=
    while :; do
        sy_caught=
        wait "$sy_child"
        sy_status=$?
        # 127 after a first answer: the shell has forgotten the child, the answer stands.
        [ "$sy_status" -eq 127 ] && [ -n "$sy_code" ] && break
        sy_code=$sy_status
        [ -n "$sy_caught" ] || break
    done
}

# Asked for now: at the end there may be no time for it.
sy_nodes=
find_nodes()
{
    sy_names=$(uname -n)
    [ -z "$sy_slurm" ] || sy_names=$(timeout 10 scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2>/dev/null) ||
        sy_names=${SLURM_JOB_NODELIST:-$(uname -n)}
    set -f
    for sy_name in $(printf '%s' "$sy_names" | tr -c 'A-Za-z0-9._,[]\n-' '?'); do
        sy_nodes=$sy_nodes${sy_nodes:+,}\"$sy_name\"
    done
    set +f
}
find_nodes

if ! load_modules "$@" >>"$sy_here/stderr.log" 2>&1; then
    sy_code=1
elif [ -n "$sy_slurm" ] && [ -n "$sy_kept" ]; then
    sy_code=75 # stopped before it began
else
    run_command "$@"
fi

# What a node's kernel ends for want of memory, srun tells in words alone: Slurm calls the job FAILED, with srun's own exit code 1.
note_memory()
{
    tail -c 65536 "$sy_here/stderr.log" 2>/dev/null | grep -q '^srun: error: .*: tasks\{0,1\} [0-9,-]*: Out Of Memory$' || return 0
    sy_limit=null
    case ${SLURM_MEM_PER_NODE:-0} in 0 | *[!0-9]*) ;; *) sy_limit=$((SLURM_MEM_PER_NODE * 1048576)) ;; esac
    printf '{"v":1,"witness":"srun","limit":%s,"peak":null,"kills":1}\n' "$sy_limit" >"$sy_here/memory.json.tmp" 2>/dev/null &&
        mv "$sy_here/memory.json.tmp" "$sy_here/memory.json"
}
case $sy_code in 0 | 75) ;; *) [ -z "$sy_slurm" ] || note_memory ;; esac

sy_signal=null
[ "$sy_code" -gt 128 ] && sy_signal=$((sy_code - 128))
sy_ended=$(now)
sy_over=$(uptime)
sy_job=
if [ -n "$sy_slurm" ]; then
    sy_job=$(printf ',"job_id":"%s","restarts":%d' "$(printf '%s' "$sy_slurm" | tr -cd '0-9A-Za-z_')" "${SLURM_RESTART_COUNT:-0}")
fi
record()
{
    printf '{"v":1,"attempt":%d,"code":%d,"signal":%s,"started":%s,"ended":%s,"uptime":[%s,%s],"nodes":[%s]%s}\n' \
        "$sy_attempt" "$sy_code" "$sy_signal" "$sy_started" "$sy_ended" "$sy_begun" "$sy_over" "$sy_nodes" "$sy_job" \
        >"$sy_here/exit.json.tmp" && mv "$sy_here/exit.json.tmp" "$sy_here/exit.json"
}
until record 2>/dev/null; do
    have_patience || { echo "job.sh: cannot write $sy_here/exit.json" >&2; break; }
done
exit "$sy_code"
