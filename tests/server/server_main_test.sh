#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# slimps_server says in one line what is wrong, with status 2 for wrong usage and 1 for a job that
# failed.
set -u
server="$1"
failures=0

# expect STATUS TEXT COMMAND...: the command ends with STATUS and its standard error has TEXT.
expect() {
  status="$1"
  text="$2"
  shift 2
  output=$("$@" 2>&1 >/dev/null)
  got=$?
  if [ "$got" -ne "$status" ]; then
    echo "FAILED: $* ended with $got, expected $status: $output"
    failures=$((failures + 1))
  fi
  case "$output" in
    *"$text"*) ;;
    *)
      echo "FAILED: $* did not say '$text' but: $output"
      failures=$((failures + 1))
      ;;
  esac
}

expect 2 "unknown command line flag 'nonsense'" "$server" --nonsense
expect 2 "--root_port=0: expected 1 to 65535" "$server"
expect 2 "unexpected argument \"extra\"" "$server" --root_port=1 extra
expect 2 "--shard_threads=0" "$server" --root_port=1 --shard_threads=0
expect 2 "give --insecure" "$server" --root_port=1 --bind=0.0.0.0
expect 2 "give --node_host" "$server" --root_port=1 --bind=0.0.0.0 --insecure
expect 2 "DMLC_NUM_SERVER=x" env DMLC_NUM_SERVER=x "$server" --root_port=1
expect 2 "DMLC_ROLE=worker" env DMLC_ROLE=worker "$server" --root_port=1
expect 2 "needs --wanted_rank" "$server" --root_port=1 --snapshot_dir=/tmp
expect 2 "--snapshot_every=0: expected 1 to" "$server" --root_port=1 --snapshot_every=0
expect 2 "/dev/null/slimps/server-0: Not a directory" "$server" --root_port=1 --wanted_rank=0 \
  --snapshot_dir=/dev/null
expect 2 "--snapshot_dir=/proc: cannot make the folder" "$server" --root_port=1 --wanted_rank=0 \
  --snapshot_dir=/proc
expect 2 "cannot read /no/such: No such file" "$server" --root_port=1 --key_file=/no/such \
  --scheduler_key=00
# Port 1 is nobody's: the scheduler is silent.
expect 1 "did not answer within 1s" env DMLC_PS_ROOT_PORT=1 "$server" --join_timeout_s=1

# Its own flags, not those of libraries.
help=$("$server" --help)
[ "$?" -eq 0 ] || { echo "FAILED: --help did not end with 0"; failures=$((failures + 1)); }
case "$help" in
  *--logbufsecs*) echo "FAILED: --help lists glog's flags"; failures=$((failures + 1)) ;;
  *--max_weight_gib*) ;;
  *) echo "FAILED: --help does not list --max_weight_gib: $help"; failures=$((failures + 1)) ;;
esac

exit "$((failures > 0))"
