// A board between its buses: an AXI4-Lite master that does one access at a time, and memory behind the page bus.
// In: accesses of a driver, bytes of pages. Out: words, and the bus's answers. It knows no register.
#include "Vdut.h"
#include "verilated.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr uint32_t HANGS = 100000;  // cycles that an access may take
constexpr uint32_t NO_ANSWER = 4;   // beside the four responses of AXI
constexpr uint32_t SLVERR = 2;
constexpr uint32_t RESET = 8;

struct Burst {
    uint64_t address;
    uint32_t beats;
};

struct Board {
    VerilatedContext context;
    Vdut dut{&context};
    std::vector<uint8_t> memory;
    uint64_t base = 0;
    uint32_t bytes = 0;  // of a beat
    uint32_t stall = 0;  // of 256 cycles on each channel of the page bus
    uint64_t random = 1;
    std::deque<Burst> bursts;
    bool offered = false;  // a beat that was not taken yet

    bool pauses() {  // xorshift64*
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        return (random * 0x2545F4914F6CDD1DULL >> 56) < stall;
    }

    // A cycle: what the buses carry is decided before the edge, and taken by both sides at it.
    void cycle() {
        dut.clk = 0;
        dut.m_axi_arready = !pauses();
        // what is offered stays until it is taken
        dut.m_axi_rvalid = !bursts.empty() && (offered || !pauses());
        if (!bursts.empty()) {
            const Burst &burst = bursts.front();
            const uint64_t at = burst.address - base;
            const bool there = burst.address >= base && at + bytes <= memory.size();
            dut.m_axi_rresp = there ? 0 : SLVERR;
            dut.m_axi_rlast = burst.beats == 1;
            if (there) std::memcpy(&dut.m_axi_rdata, memory.data() + at, bytes);
        }
        dut.eval();
        const bool taken = dut.m_axi_rvalid && dut.m_axi_rready;
        const bool asked = dut.m_axi_arvalid && dut.m_axi_arready;
        offered = dut.m_axi_rvalid && !taken;
        const Burst next{dut.m_axi_araddr, dut.m_axi_arlen + 1U};
        dut.clk = 1;
        dut.eval();
        if (taken) {
            bursts.front().address += bytes;
            if (--bursts.front().beats == 0) bursts.pop_front();
        }
        if (asked) bursts.push_back(next);
    }
};

}  // namespace

// Of `stall` in 256 cycles the page bus takes no address, or has no beat.
EXPORT void *board_new(uint64_t base, uint64_t size, uint32_t beat_bytes, uint32_t stall) {
    Board *board = new Board;
    board->base = base;
    board->bytes = beat_bytes;
    board->stall = stall;
    board->memory.resize(size);
    board->dut.rst = 1;
    for (uint32_t k = 0; k < RESET; ++k) board->cycle();
    board->dut.rst = 0;
    board->cycle();
    return board;
}

EXPORT void board_delete(void *handle) { delete static_cast<Board *>(handle); }

EXPORT uint8_t *board_memory(void *handle) { return static_cast<Board *>(handle)->memory.data(); }

EXPORT void board_idle(void *handle, uint32_t cycles) {
    for (uint32_t k = 0; k < cycles; ++k) static_cast<Board *>(handle)->cycle();
}

// Writes a word; returns the response.
EXPORT uint32_t board_write(void *handle, uint32_t byte_address, uint32_t word) {
    Board &board = *static_cast<Board *>(handle);
    Vdut &dut = board.dut;
    uint32_t answer = NO_ANSWER;
    dut.s_axil_awaddr = byte_address;
    dut.s_axil_wdata = word;
    dut.s_axil_wstrb = 15;
    dut.s_axil_awvalid = dut.s_axil_wvalid = dut.s_axil_bready = 1;
    for (uint32_t k = 0; k < HANGS && answer == NO_ANSWER; ++k) {
        dut.clk = 0;
        dut.eval();
        const bool addressed = dut.s_axil_awready, given = dut.s_axil_wready;
        if (dut.s_axil_bvalid) answer = dut.s_axil_bresp;
        board.cycle();
        if (addressed) dut.s_axil_awvalid = 0;
        if (given) dut.s_axil_wvalid = 0;
    }
    dut.s_axil_awvalid = dut.s_axil_wvalid = dut.s_axil_bready = 0;
    return answer;
}

// Reads a word; returns the response.
EXPORT uint32_t board_read(void *handle, uint32_t byte_address, uint32_t *word) {
    Board &board = *static_cast<Board *>(handle);
    Vdut &dut = board.dut;
    uint32_t answer = NO_ANSWER;
    dut.s_axil_araddr = byte_address;
    dut.s_axil_arvalid = dut.s_axil_rready = 1;
    for (uint32_t k = 0; k < HANGS && answer == NO_ANSWER; ++k) {
        dut.clk = 0;
        dut.eval();
        const bool addressed = dut.s_axil_arready;
        if (dut.s_axil_rvalid) {
            answer = dut.s_axil_rresp;
            *word = dut.s_axil_rdata;
        }
        board.cycle();
        if (addressed) dut.s_axil_arvalid = 0;
    }
    dut.s_axil_arvalid = dut.s_axil_rready = 0;
    return answer;
}
