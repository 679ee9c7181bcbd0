#!/usr/bin/env bash
# A Slurm of one node on this machine, for the tests: `slurm.sh start DIR` and `slurm.sh stop DIR`. Needs slurm-wlm, munge
# and root. Everything it writes is in DIR; programs find it by SLURM_CONF=DIR/slurm.conf.
set -eu
verb=$1 dir=$2

# Ends the daemon whose pid file this is, and waits for its end.
end() {
    local pid
    pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 0
    kill "$pid" 2>/dev/null || return 0
    for _ in $(seq 100); do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
}

case $verb in
start)
    mkdir -p "$dir/state" "$dir/spool" "$dir/munge"
    chmod 755 "$dir"
    chmod 711 "$dir/munge"
    host=$(hostname -s)
    # Below the ports that the kernel gives to connections, and where nobody listens.
    listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
    base=$((20000 + RANDOM % 10000))
    while listens $base || listens $((base + 1)); do base=$((20000 + RANDOM % 10000)); done
    head -c 128 /dev/urandom >"$dir/munge.key"
    chmod 600 "$dir/munge.key"
    cat >"$dir/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=$base
SlurmdPort=$((base + 1))
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=120
MailProg=/bin/true
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
    munged --force --key-file="$dir/munge.key" --socket="$dir/munge/socket" --pid-file="$dir/munged.pid" \
        --log-file="$dir/munge.log" --seed-file="$dir/munge.seed" --num-threads=2
    export SLURM_CONF=$dir/slurm.conf
    slurmctld -f "$SLURM_CONF"
    slurmd -f "$SLURM_CONF"
    for _ in $(seq 100); do
        if sinfo -h -o %T 2>/dev/null | grep -qx idle; then
            exit 0
        fi
        sleep 0.2
    done
    echo "slurm.sh: the node does not become idle; see $dir/slurmctld.log and $dir/slurmd.log" >&2
    exit 1
    ;;
stop)
    end slurmd
    end slurmctld
    end munged
    ;;
*)
    echo "usage: slurm.sh start|stop DIR" >&2
    exit 2
    ;;
esac
