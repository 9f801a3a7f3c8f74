#!/bin/bash
# transcript.sh PATH/TO/nvidia-cuda-mps-control: what that binary answers, with no GPU in the
# machine; run it on the real one and on the fake and diff the two.
bin=$(readlink -f "$1"); d=$(mktemp -d); export CUDA_MPS_PIPE_DIRECTORY=$d/pipe CUDA_MPS_LOG_DIRECTORY=$d/log
chmod 755 $d; mkdir -p $d/pipe $d/log
ask() { echo "> $*"; printf '%b\n' "$*" | timeout 10 "$bin" 2>&1 | sed -E 's/[ \t]*$//; s/^[0-9]+$/PID/'; echo "= ${PIPESTATUS[1]}"; }
files() { (cd $d/pipe && stat -c '%A %n' * | sort -k2); }
ask get_server_list
echo '$ -d'; "$bin" -d 2>&1; echo "= $?"; sleep .3; files
echo '$ -d again'; "$bin" -d 2>&1; echo "= $?"
for c in get_server_list get_default_active_thread_percentage 'set_default_active_thread_percentage 50' get_default_active_thread_percentage \
    'set_default_active_thread_percentage 33.333' 'set_default_active_thread_percentage 0' 'set_default_active_thread_percentage 150' \
    'set_default_active_thread_percentage abc' set_default_active_thread_percentage 'get_default_device_pinned_mem_limit 0' 'set_default_device_pinned_mem_limit 0 8G' \
    'get_default_device_pinned_mem_limit 0' 'set_default_device_pinned_mem_limit 0 512M' 'get_default_device_pinned_mem_limit 0' \
    'set_default_device_pinned_mem_limit 0 5' 'get_default_device_pinned_mem_limit 0' \
    'set_default_client_priority 1' get_default_client_priority 'set_default_client_priority 5' \
    'get_client_list 99999999' 'get_device_client_list' 'get_device_client_list 99999999' ps 'ps -p 99999999' 'get_active_thread_percentage 99999999' \
    'set_active_thread_percentage 99999999 50' 'get_device_pinned_mem_limit 99999999 0' 'set_device_pinned_mem_limit 99999999 0 1G' 'terminate_client 99999999 2' \
    'get_server_status 99999999' 'shutdown_server 99999999' 'shutdown_server 99999999 -f' start_server 'start_server -uid 0' get_server_list \
    'get_server_list\nget_default_active_thread_percentage\nfoo' foo help ''; do ask "$c"; done
echo '$ quit as nobody'; echo quit | setpriv --reuid 65534 --clear-groups "$bin" 2>&1; echo "= $?"
ask 'quit -t 5'; sleep .2; files; ask get_server_list; ask quit
echo '$ -d, kill -9, ask, -d, quit'; "$bin" -d; sleep .3
p=$(grep -lsa "CUDA_MPS_PIPE_DIRECTORY=$d/pipe" /proc/[0-9]*/environ | cut -d/ -f3); kill -9 $p 2>/dev/null; sleep .2
for _ in {1..400}; do grep -qsa "CUDA_MPS_PIPE_DIRECTORY=$d/pipe" /proc/[0-9]*/environ || break; sleep .05; done  # a busy machine takes its time
files; ask get_server_list; "$bin" -d; echo "= $?"; sleep .3; ask quit
echo '$ CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40 -d'; CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40 "$bin" -d; echo "= $?"; sleep .3; ask get_default_active_thread_percentage; ask quit
echo '$ bad directory'; CUDA_MPS_PIPE_DIRECTORY=/proc/nowhere "$bin" -d 2>&1; echo "= $?"
rm -rf $d
