# Runs the rows of /mnt/rows.tsv: number, role, GID, weather, bound in seconds, words.
#
# The role is Adverb's: "client" is the one that connects, kernel software RoCE
# is the other. Outputs: /mnt/out/NUMBER.{server,client}; a line per row in
# /mnt/results.tsv: number, exit code of server and client, milliseconds.
. /mnt/guest/net.sh
network 4200 || exit 1
cp -r /mnt/bin /mnt/lib /tmp/
mkdir -p /mnt/out
there=$(holder)
now=none
port=20000

listening() { # listening PID: does anybody of its namespace listen on $port?
    grep -q ":$(printf %04X "$port") [0-9A-F]*:0000 0A" "/proc/$1/net/tcp" "/proc/$1/net/tcp6" 2>/dev/null
}

# The connection manager's listeners: the kernel tells of its own, ours have a file each.
managed() { # managed SIDE: does anybody of that side listen on $port?
    if [ "$1" = self ]; then
        rdma resource show cm_id 2>/dev/null | grep LISTEN | grep -q ":$port\\b"
    else
        compgen -G "/dev/shm/adverb-0/*/ports/*-$port/*+l" >/dev/null
    fi
}

# Programs of the connection manager take an address, each in its own way; the device follows from it.
manager_words() { # manager_words client|server ADDRESS PORT: sets words
    local word=-b
    [ "$1" = client ] && word=-s
    case $program in
        rping)
            word=-s
            [ "$1" = client ] && word=-c
            words=(rping "$word" -a "$2" -p "$3") ;;
        udaddy) words=(udaddy "$word" "$2") ;;
        rdma_client) words=("rdma_$1" -s "$2" -p "$3") ;;
        ib_*)
            words=("$program" -p "$3")
            [ "$1" = client ] && words+=("$2") ;;
        *) words=("$program" "$word" "$2" -p "$3") ;;
    esac
}

adverb_words() {
    if [ "$program" = interop ]; then
        words=(env ADVERB_NETDEV=vb ip netns exec peer /tmp/bin/interop -d adverb0 -g "$gid")
    else
        words=(ip netns exec peer /tmp/bin/adverb run --netdev vb -- "$program" -d adverb0 "$gid_flag" "$gid")
    fi
}

rxe_words() {
    local path=$program
    [ "$program" = interop ] && path=/tmp/bin/interop
    words=("$path" -d rxe_a "$gid_flag" "$gid")
}

while IFS=$'\t' read -r number role gid weather bound program rest; do
    port=$((port + 1))
    if [ "$weather" != "$now" ]; then weather "$weather" && now=$weather; fi
    case $program in ib_*) gid_flag=-x ;; *) gid_flag=-g ;; esac
    read -r -a rest <<<"$rest"
    is_managed=
    case "$program ${rest[*]}" in
        rping* | ucmatose* | udaddy* | cmtime* | rdma_* | *' -R '*) is_managed=yes ;;
    esac
    if [ "$gid" = 2 ]; then rxe=fd00::1 ours=fd00::2; else rxe=10.0.0.1 ours=10.0.0.2; fi
    # udaddy takes no port.
    kept=$port
    [ "$program" = udaddy ] && port=7174
    if [ -n "$is_managed" ]; then
        adverb=(ip netns exec peer /tmp/bin/adverb run --netdev vb --)
        if [ "$role" = client ]; then
            manager_words server $rxe $port; server=("${words[@]}" "${rest[@]}") at=self
            manager_words client $rxe $port; client=("${adverb[@]}" "${words[@]}" "${rest[@]}")
        else
            manager_words server $ours $port; server=("${adverb[@]}" "${words[@]}" "${rest[@]}") at=$there
            manager_words client $ours $port; client=("${words[@]}" "${rest[@]}")
        fi
    elif [ "$role" = client ]; then
        rxe_words; server=("${words[@]}") at=self
        adverb_words; client=("${words[@]}") host=10.0.0.1
    else
        adverb_words; server=("${words[@]}") at=$there
        rxe_words; client=("${words[@]}") host=10.0.0.2
    fi
    if [ -z "$is_managed" ]; then
        server+=("${rest[@]}" -p $port)
        client+=("${rest[@]}" -p $port $host)
    fi
    began=$(date +%s%3N)
    timeout -k 1 $((bound + 10)) "${server[@]}" >/mnt/out/"$number".server 2>&1 &
    pid=$!
    if [ -n "$is_managed" ]; then ready=managed; else ready=listening; fi
    looks=0
    while ! $ready "$at" && kill -0 $pid 2>/dev/null && [ $((looks++)) -lt 400 ]; do sleep 0.05; done
    timeout -k 1 "$bound" "${client[@]}" >/mnt/out/"$number".client 2>&1
    asked=$?
    # What failed on one side may never end on the other.
    if [ $asked != 0 ]; then
        for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
        kill $pid 2>/dev/null
    fi
    # The server of cmtime waits for more.
    stays=
    [ "$program" = cmtime ] && kill $pid 2>/dev/null && stays=yes
    wait $pid 2>/dev/null
    served=$?
    [ -n "$stays" ] && served=0
    [ "$program" = udaddy ] && port=$kept
    printf '%s\t%s\t%s\t%s\n' "$number" $served $asked $(($(date +%s%3N) - began)) | tee -a /mnt/results.tsv
done </mnt/rows.tsv
kill "$there"
dmesg | grep -E 'BUG|WARNING|rxe|unregister' >/mnt/out/kernel.log
exit 0
