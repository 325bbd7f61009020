#!/bin/sh
# The testbench under Icarus Verilog. An argument makes the page bus stall: sh icarus.sh 64.
set -e
cd "$(dirname "$0")"
${IVERILOG:-iverilog} -g2001 -s testbench -o testbench.vvp testbench.v ../rtl/dana_board.v
${VVP:-vvp} -n testbench.vvp "+STALL=${1:-0}" | tee testbench.log
grep -q '^PASS' testbench.log
