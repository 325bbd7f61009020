// Drives an arithmetic unit with arrays of operands. "ports.h" lists its ports: INPUTS(P) and OUTPUTS(P) apply P to
// each name in turn; START names the strobe of a sequential unit.
#include <cstdint>

#include "Vdut.h"
#include "ports.h"

extern "C" __attribute__((visibility("default"))) void run(const uint32_t *const *in, uint32_t *const *out, uint64_t n,
                                                           unsigned latency, unsigned interval)
{
    VerilatedContext context;
    Vdut dut{&context};
    uint32_t noise = 1;
    uint64_t issued = 0, done = 0;
    unsigned until_issue = 0, until_done = latency;
    while (done < n) {
        const bool issue = until_issue == 0 && issued < n;
        unsigned port = 0;
        if (issue) {
#define SET(name) dut.name = in[port++][issued];
            INPUTS(SET)
            ++issued;
        } else {
            // between operands anything may be on the wires
#define DISTURB(name) noise = noise * 1664525u + 1013904223u, dut.name = (noise ^ noise >> 16) & mask_##name;
            INPUTS(DISTURB)
        }
#ifdef START
        dut.START = issue;
#endif
        until_issue = until_issue ? until_issue - 1 : interval - 1;
        dut.clk = 0;
        dut.eval();
        if (until_done == 0) {
            port = 0;
#define GET(name) out[port++][done] = dut.name;
            OUTPUTS(GET)
            ++done;
            until_done = interval;
        }
        --until_done;
        dut.clk = 1;
        dut.eval();
    }
}
