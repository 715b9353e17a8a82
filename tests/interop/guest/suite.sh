# The Rust API's tests on kernel software RoCE, through the system's libibverbs:
# each test by itself, bounded; a line per test in /mnt/suite.tsv: program, test, exit code.
. /mnt/guest/net.sh
network 4200 || exit 1
cp -r /mnt/suite /tmp/
mkdir -p /mnt/out
export ADVERB_TEST_DEVICE=rxe_a RUST_BACKTRACE=0
for program in /tmp/suite/*; do
    name=$(basename "$program")
    "$program" --list --format terse 2>/dev/null | sed -n 's/: test$//p' | while read -r test; do
        timeout -k 1 40 "$program" --exact "$test" --test-threads 1 </dev/null >"/mnt/out/$name.${test//::/.}" 2>&1
        printf '%s\t%s\t%s\n' "$name" "$test" $? | tee -a /mnt/suite.tsv
    done
done
exit 0
