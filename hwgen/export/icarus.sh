#!/bin/sh
# The testbench under Icarus Verilog, without its two longest scenarios, which take minutes. To run all:
# vvp -n testbench.vvp.
# An argument makes the page bus stall: sh icarus.sh 64. TRACE=FILE.vcd writes waveforms of the training into this folder,
# and plays no scenario; gtkwave FILE.vcd dana_board.gtkw shows them.
set -e
stall=${1:-0}
case $stall in
  *[!0-9]*) echo "icarus.sh: the argument must be a number from 0 to 255, not $stall" >&2; exit 2 ;;
esac
cd "$(dirname "$0")"
${IVERILOG:-iverilog} -g2001 -s testbench -o testbench.vvp testbench.v ../rtl/*.v
${VVP:-vvp} -n testbench.vvp "+STALL=$stall" +QUICK ${TRACE:+"+TRACE=$TRACE"} | tee testbench.log
grep -q '^PASS' testbench.log
