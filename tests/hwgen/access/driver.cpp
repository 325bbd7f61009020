// The access engine between a page link and a stand-in for the engine, both cycle by cycle as docs/machine.md says.
//
// In: the host's writes, settings, pages, how long the engine takes for each round, how often the link stalls.
// Out: what the access engine did, as records of 32-bit words. It expects nothing: comparing is the test's part.
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "Vdut.h"

namespace {

enum Record : uint32_t { REQUEST = 1, WRITE = 2, ROUND = 3, EMPTY = 4, FAULT = 5 };

struct Setup {
    uint32_t link_bytes, link_latency, page_size, lanes;
    uint32_t pages, batch, group_log2, tuple_rows;
    uint32_t stall_threshold;  // of 2^16: how often a beat that could come does not
    uint32_t seed, cycle_limit, grace;
    uint32_t host_writes, delays, stop_at, page_cycles;
};

struct Request {
    uint64_t cycle;
    uint32_t page;
};

void put(CData &port, const uint8_t *from, unsigned bytes) { std::memcpy(&port, from, bytes); }
void put(QData &port, const uint8_t *from, unsigned bytes) { std::memcpy(&port, from, bytes); }
template <std::size_t N>
void put(VlWide<N> &port, const uint8_t *from, unsigned bytes) {
    std::memcpy(port.data(), from, bytes);
}

template <typename T>
uint32_t word(const T &port, unsigned index) {
    return static_cast<uint32_t>(static_cast<uint64_t>(port) >> 32 * index);
}
template <std::size_t N>
uint32_t word(const VlWide<N> &port, unsigned index) {
    return port[index];
}

struct Bench {
    VerilatedContext context;
    Vdut dut{&context};

    void edge() {
        dut.clk = 1;
        dut.eval();
        dut.clk = 0;
    }
    void idle() {
        dut.start = dut.stop = dut.half_release = 0;
        dut.image_strider = dut.image_constant = dut.image_column = 0;
        dut.page_valid = 0;
    }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void *bench_new() {
    auto *bench = new Bench;
    bench->dut.rst = 1;
    bench->dut.clk = 0;
    bench->idle();
    bench->dut.eval();
    bench->edge();
    bench->dut.rst = 0;
    return bench;
}

extern "C" __attribute__((visibility("default"))) void bench_delete(void *handle) { delete static_cast<Bench *>(handle); }

// Runs one epoch. `host`: triples (region, address, word); `delays`: pairs (until the half is released, until idle) for
// each round, used over and over. Returns the number of words recorded, or -1 if they are more than `room`, -2 if the
// epoch did not end within the limit; `skipped` is the counter at the end.
extern "C" __attribute__((visibility("default"))) int64_t bench_run(void *handle, const Setup *setup, const uint32_t *host,
                                                                   const uint8_t *pages, const uint32_t *delays,
                                                                   uint32_t *out, int64_t room, uint64_t *skipped) {
    Bench &bench = *static_cast<Bench *>(handle);
    Vdut &dut = bench.dut;
    int64_t used = 0;
    bool overflow = false;
    auto record = [&](std::initializer_list<uint32_t> words) {
        for (uint32_t w : words) {
            if (used < room)
                out[used++] = w;
            else
                overflow = true;
        }
    };

    bench.idle();
    dut.settings_pages = setup->pages;
    dut.settings_batch = setup->batch;
    dut.settings_group_log2 = setup->group_log2;
    dut.settings_tuple_rows = setup->tuple_rows;
    for (uint32_t k = 0; k < setup->host_writes; ++k) {
        dut.image_strider = host[3 * k] == 0;
        dut.image_constant = host[3 * k] == 1;
        dut.image_column = host[3 * k] == 2;
        dut.image_address = host[3 * k + 1];
        dut.image_data = host[3 * k + 2];
        dut.eval();
        bench.edge();
    }
    bench.idle();
    for (int k = 0; k < 4; ++k) {
        dut.eval();
        bench.edge();
    }

    uint64_t random = setup->seed * 0x9E3779B97F4A7C15ull + 1;
    auto chance = [&] {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return static_cast<uint32_t>(random >> 24 & 0xFFFF);
    };
    std::deque<Request> requests;
    uint32_t beat = 0;
    uint64_t began = 0;  // the cycle in which the first beat of the page under way may come at the earliest; 0: none is
    const uint32_t beats = setup->page_size / setup->link_bytes;
    std::deque<uint64_t> handed;
    uint64_t idle_at = 0, release_at = UINT64_MAX, round = 0, end_at = UINT64_MAX;
    bool engine_busy = false;

    for (uint64_t cycle = 0; cycle < setup->cycle_limit; ++cycle) {
        bench.idle();
        dut.start = cycle == 0;
        dut.stop = setup->stop_at && cycle == setup->stop_at;
        if (dut.stop) {
            requests.clear();
            beat = 0;
            began = 0;
        }
        if (!beat && !(requests.empty() || cycle < requests.front().cycle + setup->link_latency) && !began) began = cycle;
        if (began && cycle >= began + ((beat + 1) * setup->page_cycles + beats - 1) / beats - 1 &&
            chance() >= setup->stall_threshold) {
            dut.page_valid = 1;
            put(dut.page_data, pages + uint64_t(requests.front().page) * setup->page_size + beat * setup->link_bytes,
                setup->link_bytes);
            if (++beat == beats) {
                beat = 0;
                began = 0;
                requests.pop_front();
            }
        }
        if (engine_busy && cycle == release_at) {
            dut.half_release = 1;
            engine_busy = false;
        }
        dut.eval();
        const uint32_t now = static_cast<uint32_t>(cycle);
        if (dut.page_req_valid) {
            record({REQUEST, now, dut.page_req_page});
            requests.push_back({cycle, dut.page_req_page});
        }
        if (dut.tuples_valid) {
            record({WRITE, now, dut.tuples_thread, dut.tuples_half, dut.tuples_row});
            for (unsigned k = 0; k < (setup->lanes + 31) / 32; ++k) record({word(dut.tuples_lane_enable, k)});
            for (unsigned k = 0; k < setup->lanes; ++k) record({word(dut.tuples_data, k)});
        }
        if (dut.rounds_round_valid) {
            record({ROUND, now, dut.rounds_count, dut.rounds_batch_last, dut.rounds_epoch_last});
            handed.push_back(cycle);
            if (dut.rounds_epoch_last && end_at == UINT64_MAX) end_at = cycle + setup->grace;
        }
        if (dut.rounds_epoch_empty) {
            record({EMPTY, now});
            if (end_at == UINT64_MAX) end_at = cycle + setup->grace;
        }
        if (dut.fault_valid) {
            record({FAULT, now, dut.fault_code, dut.fault_page, dut.fault_pointer});
            if (end_at == UINT64_MAX) end_at = cycle + setup->grace;
        }
        if (dut.stop && end_at == UINT64_MAX) end_at = cycle + setup->grace;
        // a round begins in the cycle in which it is handed over, or when the one before is over
        if (!engine_busy && !handed.empty() && cycle >= idle_at) {
            handed.pop_front();
            const uint32_t *delay = delays + 2 * (round++ % setup->delays);
            engine_busy = true;
            release_at = cycle + delay[0];
            idle_at = release_at + delay[1];
        }
        bench.edge();
        if (cycle >= end_at) {
            *skipped = dut.skipped;
            return overflow ? -1 : used;
        }
    }
    *skipped = dut.skipped;
    return -2;
}
