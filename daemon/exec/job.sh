#!/bin/sh
# job.sh RUN_DIR [-m MODULE]... -- argv...: one attempt of one run, the same script for every executor and every run.
# job.sh -a ARRAY_DIR [-m MODULE]... -- argv...: the same as an element of a Slurm array; ARRAY_DIR/elements says of which run, and the words
# that are ARRAY_DIR stand for its directory.
# It waits for an older attempt that lives on, claims the next attempt directory (mkdir is atomic, so two of them never share one), writes down
# who it is in begin.json and what it executes, loads environment modules, starts the command with its output in the attempt's logs, forwards
# USR1 and TERM to it, and writes exit.json last, by rename: whoever sees that file sees the whole of it and knows that nothing else will be
# written. Nothing of the user's is evaluated here: the command is passed on as "$@", a module's name as one word.
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

# A full disk is waited for, ten minutes at most: it can end, and what is not written down is lost. An older attempt likewise.
sy_patience=600
sy_older_patience=600

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
    read -r sy_owner <"$sy_claim" || sy_owner=
    [ "$sy_owner" = "$sy_slurm" ] || {
        echo "job.sh: submission $SWITCHYARD_SUBMISSION of $sy_run is job $sy_owner, this is job $sy_slurm: nothing is started" >&2
        exit 0
    }
}
[ -z "$sy_slurm" ] || [ -z "${SWITCHYARD_SUBMISSION:-}" ] || claim_submission

# What time it is, as sy_moment. Slurm's signals go to all of a job's processes, and may end a `date` at its work, or a shell between $( and ):
# it is asked again, and at last a record does without.
moment()
{
    for sy_format in +%s.%N +%s.%N +%s; do
        sy_moment=$(date "$sy_format")
        case $sy_moment in "" | *[!0-9.]*) ;; *) return ;; esac
    done
    sy_moment=null
}

# By the machine's own clock, which nobody sets: how long the command takes. As sy_up.
uptime()
{
    sy_up=
    read -r sy_up sy_idle </proc/uptime 2>/dev/null
    case $sy_up in "" | *[!0-9.]*) sy_up=null ;; esac
}

# ---- an older attempt that may live on: on a node, say, that Slurm gave up because it did not answer ----
# Two of them never train side by side. An attempt is over when its exit.json is there, when it is provably gone, or when it has not beaten for
# a minute: its heartbeat, before the first one its directory, has not changed. How long ago that was at the first look is told by the disk's own
# clock; a node's may be wrong, so that some of the minute is watched in any case. What lives is asked to stop and save, by its stop file.
# A heartbeat newer than exit.json is a worker's whose srun was ended without it, as of a node that Slurm gave up; unless it has said its own end.

sy_silence=60 # seconds without a heartbeat after which an attempt is taken for dead
sy_watched=15 # of these, at the least, seen by ourselves: three heartbeats

# When a process began, in ticks since the machine did; nothing of one that is no more.
birth()
{
    sy_stat=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null)
    set -- $sy_stat
    case ${1:-Z} in Z | X) ;; *) printf '%s' "${20}" ;; esac
}
sy_host=$(uname -n | tr -c 'A-Za-z0-9._\n-' '?')
sy_boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
sy_space=$(readlink /proc/self/ns/pid 2>/dev/null)
sy_birth=$(birth $$)

# A member of a small JSON object, of those that this script writes.
member()
{
    sed -n "s/.*\"$2\":\"\{0,1\}\([^,}\"]*\).*/\1/p" "$1" 2>/dev/null
}
# It was on this machine alone, which has been started anew since, or has neither its claimant nor anything that this one has started. Of one that a
# worker claimed by itself, the heartbeat tells.
is_gone()
{
    sy_told=$1/begin.json
    [ -e "$sy_told" ] || sy_told=$1/heartbeat.json
    [ -n "$sy_boot" ] && [ -n "$sy_space" ] && [ -r "$sy_told" ] && [ -n "$(member "$sy_told" boot)" ] || return 1
    [ "$(member "$sy_told" host)" = "$sy_host" ] || return 1
    [ "${sy_told##*/}" = heartbeat.json ] || grep -q '"nodes":\["[A-Za-z0-9._-]*"\]' "$sy_told" || return 1
    if [ "$(member "$sy_told" boot)" != "$sy_boot" ]; then
        case $sy_host in localhost*) return 1 ;; *) return 0 ;; esac # a name that many have
    fi
    [ "$(member "$sy_told" pid_namespace)" = "$sy_space" ] || return 1
    sy_pid=$(member "$sy_told" pid)
    [ "${sy_told##*/}" != heartbeat.json ] || { [ -z "$(birth "$sy_pid")" ]; return; }
    sy_claim=$sy_pid-$(member "$sy_told" birth)
    [ "$sy_claim" != "$sy_pid-$(birth "$sy_pid")" ] || return 1
    ! cat /proc/[0-9]*/environ 2>/dev/null | LC_ALL=C tr '\0' '\n' | LC_ALL=C grep -q "^SWITCHYARD_CLAIM=$sy_claim\$"
}
# Seconds between a file's last change and now, both by the disk's clock; 0 where that cannot be told.
age_of()
{
    sy_probe=$sy_run/.clock-$sy_host-$$
    true >"$sy_probe"
    sy_now=$(date -r "$sy_probe" +%s)
    sy_then=$(date -r "$1" +%s)
    rm -f "$sy_probe"
    case $sy_now/$sy_then in /* | */ | *[!0-9/]*) sy_age=0 ;; *) sy_age=$((sy_now - sy_then)) ;; esac
    [ "$sy_age" -ge 0 ] || sy_age=0
}
ask_to_stop()
{
    sy_wish=$sy_run/.stop-$1
    printf 'attempt-%d\n' "$1" 2>/dev/null >"$sy_wish"
    ln "$sy_wish" "$sy_run/stop" 2>/dev/null
    [ -e "$sy_run/stop" ] || [ ! -s "$sy_wish" ] || mv "$sy_wish" "$sy_run/stop" 2>/dev/null # a disk without hard links
    [ ! -s "$sy_wish" ] && [ "$sy_wish" -ef "$sy_run/stop" ] || rm -f "$sy_wish"
}
# Whose wish the stop file is: "attempt-N", or a person's. On a full disk the file stays empty, as a person's is: then its second name tells.
read_stop()
{
    sy_wish=$(head -c 64 "$sy_run/stop" 2>/dev/null)
    [ -z "$sy_wish" ] || return 0
    for sy_mark in "$sy_run"/.stop-*; do
        [ ! "$sy_mark" -ef "$sy_run/stop" ] || sy_wish=attempt-${sy_mark##*/.stop-}
    done
}
is_over()
{
    if [ -e "$1/exit.json" ]; then
        [ "$1/heartbeat.json" -nt "$1/exit.json" ] || return 0
    fi
    if [ -e "$1/exit.json" ] || [ ! -e "$1/begin.json" ]; then # who works without this script leaves no other word
        tail -n 1 "$1/records.jsonl" 2>/dev/null | grep -q '"kind":"end"' && return 0
    fi
    is_gone "$1"
}
# By a signal, or by a stop file that is not for an attempt.
is_stopped()
{
    [ -z "$sy_kept" ] || return 0
    [ -e "$sy_run/stop" ] && read_stop && case $sy_wish in attempt-*) return 1 ;; esac
}
sy_waited=
wait_for_older()
{
    sy_older=$sy_run/attempt-$1
    is_over "$sy_older" && return 0
    sy_beat=$sy_older/heartbeat.json
    sy_seen=$(cat "$sy_beat" 2>/dev/null)
    if [ -n "$sy_seen" ]; then age_of "$sy_beat"; else age_of "$sy_older"; fi 2>/dev/null
    [ "$sy_age" -le $((sy_silence - sy_watched)) ] || sy_age=$((sy_silence - sy_watched))
    sy_where=$(member "$sy_beat" host)
    sy_what="attempt $1 on ${sy_where:-$(member "$sy_older/begin.json" host)}"
    echo "job.sh: $sy_what has not ended: it is asked to stop, and waited for until it ends or its heartbeat has been silent for $sy_silence s" >&2
    ask_to_stop "$1"
    sy_since=0
    until is_over "$sy_older" || [ "$sy_age" -ge "$sy_silence" ]; do
        [ "$sy_since" -lt "$sy_older_patience" ] || { echo "job.sh: $sy_what lives on after $sy_since s: nothing is started" >&2; exit 0; }
        ! is_stopped || { echo "job.sh: stopped while it waited for $sy_what: nothing is started" >&2; exit 0; }
        sleep 1
        sy_since=$((sy_since + 1))
        sy_age=$((sy_age + 1))
        sy_now=$(cat "$sy_beat" 2>/dev/null)
        [ "$sy_now" = "$sy_seen" ] || sy_age=0
        sy_seen=$sy_now
    done
    if is_over "$sy_older"; then sy_how="it ended"; else sy_how="its heartbeat fell silent"; fi
    sy_waited="job.sh: waited $sy_since s for $sy_what, until $sy_how"
    echo "$sy_waited" >&2
}
# A signal that comes before there is a child is kept for it.
sy_kept=
trap 'sy_kept=USR1' USR1
trap 'sy_kept=TERM' TERM
[ -z "$sy_slurm" ] || trap 'sy_kept=USR1' USR2
trap '' HUP

# The next number after the highest that is there, so that a newer attempt always has the higher number.
find_newest()
{
    sy_attempt=0
    for sy_directory in "$sy_run"/attempt-*; do
        sy_number=${sy_directory##*/attempt-}
        case $sy_number in "" | *[!0-9]*) continue ;; esac
        [ "$sy_number" -gt "$sy_attempt" ] && sy_attempt=$sy_number
    done
}
while :; do
    find_newest
    [ "$sy_attempt" -eq 0 ] || wait_for_older "$sy_attempt"
    sy_attempt=$((sy_attempt + 1))
    sy_here=$sy_run/attempt-$sy_attempt
    sy_fault=$(LC_ALL=C mkdir "$sy_here" 2>&1) && break
    [ -d "$sy_here" ] && continue
    case $sy_fault in *"No space left"* | *uota*) ;; *) sy_patience=0 ;; esac
    [ "$sy_patience" -gt 0 ] && [ -z "$sy_kept" ] || { echo "job.sh: cannot make $sy_here: ${sy_fault##*: }" >&2; exit 1; }
    sy_patience=$((sy_patience - 1))
    sleep 1
done
# Who has claimed it, and where it runs: written again when the nodes are known.
sy_nodes=
sy_job=
[ -z "$sy_slurm" ] || sy_job=$(printf '%s' "$sy_slurm" | tr -cd '0-9A-Za-z_')
write_begin()
{
    printf '{"v":1,"attempt":%d,"by":"job.sh","host":"%s","boot":"%s","pid_namespace":"%s","pid":%d,"birth":%d,"nodes":[%s]%s}\n' "$sy_attempt" \
        "$sy_host" "$sy_boot" "$sy_space" $$ "${sy_birth:-0}" "$sy_nodes" "${sy_job:+,\"job_id\":\"$sy_job\"}" >"$sy_here/begin.json.tmp" &&
        mv "$sy_here/begin.json.tmp" "$sy_here/begin.json" || rm -f "$sy_here/begin.json.tmp"
}
[ -n "$sy_slurm" ] || sy_nodes=\"$sy_host\"
write_begin 2>/dev/null
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
    [ -z "$sy_kept" ] && have_patience || { echo "job.sh: cannot write $sy_here/stdout.log" >&2; exit 1; }
done
# A worker that can write nothing down ends without a word: room for its first lines is waited for.
has_room()
{
    sy_fault=$( (LC_ALL=C head -c 8192 /dev/zero >"$sy_here/.room") 2>&1)
    rm -f "$sy_here/.room"
    case $sy_fault in *"No space left"* | *uota*) return 1 ;; esac
}
until has_room; do
    [ -z "$sy_kept" ] && have_patience || break
done
[ -z "$sy_waited" ] || echo "$sy_waited" >>"$sy_here/stderr.log"
moment
sy_started=$sy_moment
uptime
sy_begun=$sy_up
[ -f "$sy_run/job.json" ] && cp "$sy_run/job.json" "$sy_here/job.json.tmp" && mv "$sy_here/job.json.tmp" "$sy_here/job.json"

SWITCHYARD_ATTEMPT=$sy_attempt
SWITCHYARD_CLAIM=$$-$sy_birth # marks what this attempt starts: is_gone
export SWITCHYARD_ATTEMPT SWITCHYARD_CLAIM

# The stop file of an earlier attempt has done its work.
read_stop
case $sy_wish in attempt-"$sy_attempt") ;; attempt-*) rm -f "$sy_run/stop" "$sy_run/.stop-${sy_wish#attempt-}" ;; esac

# `caught` tells an interrupted wait from a finished one.
sy_child=
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
    ask_to_stop "$sy_attempt"
    if [ -z "$sy_child" ] || takes_usr1; then forward USR1; else sy_caught=USR1; fi
}
if [ -n "$sy_slurm" ]; then
    trap stop_and_save USR1 USR2 TERM
else
    trap 'forward USR1' USR1
    trap 'forward TERM' TERM
fi

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
run_once()
{
    sy_before=$(wc -c <"$sy_here/stderr.log")
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

# Of what srun said since it was started: a node did not begin its tasks, and so nothing of the run. A node that lost its power while a step ran
# keeps the socket of Slurm's own PMIx server, and takes no step of that number any more (22.05); the next step has another. srun's exit code may
# be 0 then. Or a rank was hit by a message while it was still within MPI_Init, which Open MPI does not always outlive (4.1, rarely, on a busy
# machine): before a rank has a world, the worker writes nothing.
is_unlaunched()
{
    [ "${sy_launcher##*/}" = srun ] && [ ! -s "$sy_here/records.jsonl" ] && [ ! -e "$sy_run/stop" ] || return 1
    tail -c +"$((sy_before + 1))" "$sy_here/stderr.log" 2>/dev/null |
        grep -Eq '^srun: error: (task [0-9,-]+ launch failed|Task launch for .* failed on node|[^ ]+: tasks? [0-9,-]+: Segmentation fault)'
}

run_command()
{
    while [ "$1" = "-m" ]; do shift 2; done
    shift
    case ${1##*/} in srun | mpirun | mpiexec) sy_launcher=$1 ;; esac
    # The command, not this script, goes into the control group that keeps its memory: what the kernel ends there is still written down here.
    # Where it may not, the group goes: without one, the daemon looks at the run itself.
    if [ -n "${SWITCHYARD_MEMORY_GROUP:-}" ]; then
        set -- /bin/sh -c 'echo $$ >"$0/cgroup.procs" || rmdir "$0"; exec "$@"' "$SWITCHYARD_MEMORY_GROUP" "$@"
    fi
    sy_tries=3
    run_once "$@"
    while is_unlaunched && [ "$sy_tries" -gt 1 ]; do
        sy_tries=$((sy_tries - 1))
        echo "job.sh: nothing of the step has begun: another one is begun" >>"$sy_here/stderr.log"
        run_once "$@"
    done
}

# Asked for now: at the end there may be no time for it.
find_nodes()
{
    sy_names=$(timeout 10 scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2>/dev/null) || sy_names=${SLURM_JOB_NODELIST:-$sy_host}
    set -f
    for sy_name in $(printf '%s' "$sy_names" | tr -c 'A-Za-z0-9._,[]\n-' '?'); do
        sy_nodes=$sy_nodes${sy_nodes:+,}\"$sy_name\"
    done
    set +f
}
if [ -n "$sy_slurm" ]; then
    find_nodes
    write_begin 2>/dev/null
fi

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

# Whoever cancels a job has Slurm's daemon say so in the job's own log, before job.sh is signalled; of a requeue, a preemption or a time limit it
# says that it was due to that. The only witness that is left where no daemon of ours looks until squeue has forgotten the job.
note_cancel()
{
    tail -c 65536 "$sy_run/submit.log" 2>/dev/null |
        grep -q "error: \*\*\* JOB ${SLURM_JOB_ID:-none} ON [^ ]* CANCELLED AT [^ ]* \*\*\*\$" && sy_job="$sy_job,\"cancelled\":true"
}

sy_signal=null
[ "$sy_code" -gt 128 ] && sy_signal=$((sy_code - 128))
moment
uptime
if [ -n "$sy_job" ]; then
    sy_restarts=${SLURM_RESTART_COUNT:-0}
    case $sy_restarts in *[!0-9]* | 0?*) sy_restarts=0 ;; esac
    sy_job=",\"job_id\":\"$sy_job\",\"restarts\":$sy_restarts"
    [ "$sy_code" -eq 0 ] || note_cancel
fi
record()
{
    printf '{"v":1,"attempt":%d,"code":%d,"signal":%s,"started":%s,"ended":%s,"uptime":[%s,%s],"nodes":[%s]%s}\n' \
        "$sy_attempt" "$sy_code" "$sy_signal" "$sy_started" "$sy_moment" "$sy_begun" "$sy_up" "$sy_nodes" "$sy_job" \
        >"$sy_here/exit.json.tmp" && mv "$sy_here/exit.json.tmp" "$sy_here/exit.json"
}
until record 2>/dev/null; do
    have_patience || { echo "job.sh: cannot write $sy_here/exit.json" >&2; break; }
done
exit "$sy_code"
