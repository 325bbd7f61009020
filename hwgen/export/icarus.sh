#!/bin/sh
# The testbench under Icarus Verilog, without its two longest scenarios, which take minutes. To run all:
# vvp -n testbench.vvp.
# An argument makes the page bus stall: sh icarus.sh 64. TRACE=FILE.vcd writes waveforms of the training into this folder,
# and plays no scenario; gtkwave FILE.vcd dana_board.gtkw shows them.
set -e
cd "$(dirname "$0")"
${IVERILOG:-iverilog} -g2001 -s testbench -o testbench.vvp testbench.v ../rtl/*.v
${VVP:-vvp} -n testbench.vvp "+STALL=${1:-0}" +QUICK ${TRACE:+"+TRACE=$TRACE"} | tee testbench.log
grep -q '^PASS' testbench.log
