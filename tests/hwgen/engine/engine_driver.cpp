// Drives an execution engine without an access engine: the host's writes, rows of tuples, rounds handed over.
// In: events in their order, each with the idle cycles before it. Out: counters and scratchpad words.
#include "Vdut.h"
#include "verilated.h"

#include <cstdint>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Kind : uint32_t { ROW = 0, ROUND = 1, EMPTY = 2, WAIT_RELEASED = 3 };

struct Event {
    uint32_t kind;
    uint32_t gap;
    uint32_t thread;
    uint32_t half;
    uint32_t row;
    uint32_t count;  // of the round; or how many halves must have been released
    uint32_t batch_last;
    uint32_t epoch_last;
};

struct Bench {
    VerilatedContext context;
    Vdut dut{&context};
    uint64_t now = 0;

    void cycle() {
        dut.clk = 0;
        dut.eval();
        dut.clk = 1;
        dut.eval();
        ++now;
    }
};

template <typename Port>
void put(Port &port, const void *words) {
    std::memcpy(&port, words, sizeof(port));
}

}  // namespace

EXPORT void *bench_new() {
    Bench *bench = new Bench;
    bench->dut.rst = 1;
    bench->cycle();
    bench->cycle();
    bench->dut.rst = 0;
    return bench;
}

EXPORT void bench_delete(void *handle) { delete static_cast<Bench *>(handle); }

EXPORT void bench_settings(void *handle, const uint32_t *entries, uint32_t exists, uint32_t level_stride,
                           uint32_t levels, uint32_t group_log2, uint32_t tuple_rows) {
    Bench &bench = *static_cast<Bench *>(handle);
    put(bench.dut.settings_entry, entries);
    bench.dut.settings_exists = exists;
    bench.dut.settings_level_stride = level_stride;
    bench.dut.settings_levels = levels;
    bench.dut.settings_group_log2 = group_log2;
    bench.dut.settings_tuple_rows = tuple_rows;
    for (int k = 0; k < 8; ++k) bench.cycle();
}

EXPORT void bench_program(void *handle, const uint32_t *words, uint32_t instructions, uint32_t words_each) {
    Bench &bench = *static_cast<Bench *>(handle);
    bench.dut.program_valid = 1;
    for (uint32_t i = 0; i < instructions; ++i)
        for (uint32_t k = 0; k < words_each; ++k) {
            bench.dut.program_address = 8 * i + k;
            bench.dut.program_data = *words++;
            bench.cycle();
        }
    bench.dut.program_valid = 0;
    bench.cycle();
}

EXPORT void bench_write(void *handle, uint32_t address, const uint32_t *words, uint32_t count) {
    Bench &bench = *static_cast<Bench *>(handle);
    bench.dut.scratch_write = 1;
    for (uint32_t k = 0; k < count; ++k) {
        bench.dut.scratch_address = address + k;
        bench.dut.scratch_data = words[k];
        bench.cycle();
    }
    bench.dut.scratch_write = 0;
    for (int k = 0; k < 8; ++k) bench.cycle();
}

EXPORT void bench_read(void *handle, uint32_t address, uint32_t *words, uint32_t count, uint32_t latency) {
    Bench &bench = *static_cast<Bench *>(handle);
    // reads are pipelined: one begins in each cycle, the answers come `latency` cycles later
    for (uint32_t k = 0; k < count + latency; ++k) {
        bench.dut.scratch_read = k < count;
        bench.dut.scratch_address = address + k;
        bench.dut.clk = 0;
        bench.dut.eval();
        if (k >= latency) words[k - latency] = bench.dut.scratch_word;
        bench.cycle();
    }
}

// One epoch; `words` and `enables` (one byte a lane) hold `lanes` entries for each ROW event. `handed` and `freed` take
// the cycles, counted from the start, in which rounds were handed over and halves released. Returns 0 when the epoch is
// over, 1 for a stack overflow, 2 when it is not over after `limit` cycles, 3 for a number that
// names no row, whose tag then is the first counter.
EXPORT int bench_run(void *handle, const Event *events, uint32_t count, const uint32_t *words, const uint8_t *enables,
                     uint32_t lanes, uint64_t limit, uint64_t *counters, uint64_t *handed, uint64_t *freed) {
    Bench &bench = *static_cast<Bench *>(handle);
    Vdut &dut = bench.dut;
    uint64_t begun = bench.now;
    uint32_t next = 0, idle = count ? events[0].gap : 0, released = 0;
    uint64_t tag = 0;
    int result = -1;
    for (bool first = true; result < 0; first = false) {
        dut.start = first;
        dut.rows_valid = 0;
        dut.rounds_round_valid = 0;
        dut.rounds_epoch_empty = 0;
        if (!first && next < count) {
            const Event &event = events[next];
            if (event.kind == WAIT_RELEASED) {
                if (released >= event.count) idle = ++next < count ? events[next].gap : 0;
            } else if (idle) {
                --idle;
            } else {
                if (event.kind == ROW) {
                    uint32_t mask[4] = {0, 0, 0, 0};
                    for (uint32_t lane = 0; lane < lanes; ++lane)
                        mask[lane / 32] |= static_cast<uint32_t>(enables[lane]) << lane % 32;
                    dut.rows_valid = 1;
                    dut.rows_thread = event.thread;
                    dut.rows_half = event.half;
                    dut.rows_row = event.row;
                    put(dut.rows_lane_enable, mask);
                    put(dut.rows_data, words);
                    words += lanes;
                    enables += lanes;
                } else if (event.kind == ROUND) {
                    dut.rounds_round_valid = 1;
                    dut.rounds_count = event.count;
                    dut.rounds_batch_last = event.batch_last;
                    dut.rounds_epoch_last = event.epoch_last;
                    *handed++ = bench.now - begun;
                } else {
                    dut.rounds_epoch_empty = 1;
                    *handed++ = bench.now - begun;
                }
                idle = ++next < count ? events[next].gap : 0;
            }
        }
        dut.clk = 0;
        dut.eval();
        if (dut.half_release) {
            *freed++ = bench.now - begun;
            ++released;
        }
        if (dut.finished) result = 0;
        if (dut.overflow) result = 1;
        if (dut.index_fault) {
            result = 3;
            tag = dut.tag;
        }
        if (bench.now - begun > limit) result = 2;
        bench.cycle();
    }
    dut.start = 0;
    counters[0] = dut.cycles;
    counters[1] = dut.tuples;
    counters[2] = dut.busy;
    if (result == 3) counters[0] = tag;
    dut.stop = result != 0;
    bench.cycle();
    dut.stop = 0;
    return result;
}
