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
    if [ "$role" = client ]; then
        rxe_words; server=("${words[@]}") at=self
        adverb_words; client=("${words[@]}") host=10.0.0.1
    else
        adverb_words; server=("${words[@]}") at=$there
        rxe_words; client=("${words[@]}") host=10.0.0.2
    fi
    began=$(date +%s%3N)
    timeout -k 1 $((bound + 10)) "${server[@]}" "${rest[@]}" -p $port >/mnt/out/"$number".server 2>&1 &
    pid=$!
    while ! listening "$at" && kill -0 $pid 2>/dev/null; do sleep 0.05; done
    timeout -k 1 "$bound" "${client[@]}" "${rest[@]}" -p $port $host >/mnt/out/"$number".client 2>&1
    asked=$?
    # What failed on one side may never end on the other.
    if [ $asked != 0 ]; then
        for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
        kill $pid 2>/dev/null
    fi
    wait $pid 2>/dev/null
    served=$?
    printf '%s\t%s\t%s\t%s\n' "$number" $served $asked $(($(date +%s%3N) - began)) | tee -a /mnt/results.tsv
done </mnt/rows.tsv
kill "$there"
dmesg | grep -E 'BUG|WARNING|rxe|unregister' >/mnt/out/kernel.log
exit 0
