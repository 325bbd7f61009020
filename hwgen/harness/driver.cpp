// Drives a whole machine: its host port, and the page link of docs/machine.md, section 5.
// In: the host's accesses, the pages of an epoch. Out: words that the host reads. It knows no register but STATUS.
#include "Vdut.h"
#include "verilated.h"

#include <cstdint>
#include <cstring>
#include <deque>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr uint32_t STATUS = 0x02, BUSY = 1;
constexpr uint32_t POLL_EVERY = 16;  // cycles between two reads of STATUS; the counters stand still once it is idle

struct Request {
    uint32_t page;
    uint64_t first;  // earliest cycle of its first beat
};

struct Machine {
    VerilatedContext context;
    Vdut dut{&context};
    uint64_t now = 0;
    uint64_t random = 0;

    void low() {
        dut.clk = 0;
        dut.eval();
    }
    void edge() {
        dut.clk = 1;
        dut.eval();
        ++now;
    }
    uint32_t draw() {  // xorshift64*
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        return static_cast<uint32_t>(random * 0x2545F4914F6CDD1DULL >> 32);
    }
};

}  // namespace

EXPORT void *machine_new() {
    Machine *machine = new Machine;
    machine->dut.rst = 1;
    for (int k = 0; k < 4; ++k) machine->low(), machine->edge();
    machine->dut.rst = 0;
    return machine;
}

EXPORT void machine_delete(void *handle) { delete static_cast<Machine *>(handle); }

EXPORT uint64_t machine_now(void *handle) { return static_cast<Machine *>(handle)->now; }

// `words` to `count` addresses from `address` on, one a cycle.
EXPORT void machine_write(void *handle, uint32_t address, const uint32_t *words, uint32_t count) {
    Machine &machine = *static_cast<Machine *>(handle);
    machine.dut.host_write = 1;
    for (uint32_t k = 0; k < count; ++k) {
        machine.dut.host_addr = address + k;
        machine.dut.host_wdata = words[k];
        machine.low(), machine.edge();
    }
    machine.dut.host_write = 0;
}

// The reads are pipelined: one begins in each cycle, the answers come `latency` cycles later.
EXPORT void machine_read(void *handle, uint32_t address, uint32_t *words, uint32_t count, uint32_t latency) {
    Machine &machine = *static_cast<Machine *>(handle);
    for (uint32_t k = 0; k < count + latency; ++k) {
        machine.dut.host_read = k < count;
        machine.dut.host_addr = address + k;
        machine.low();
        if (k >= latency) words[k - latency] = machine.dut.host_rdata;
        machine.edge();
    }
}

// Runs an epoch from the write of `command` to `start` until STATUS says that it is over.
//
// Page p of the epoch is pages[p * page_bytes …]. Of `stall` in 256 cycles in which a beat could come none does, and a
// page's first beat is later by up to `stall` cycles; 0 is the link of the contract. Returns STATUS, or ~0 when for
// `patience` cycles no page was asked for, no beat sent and the machine was still busy.
EXPORT uint32_t machine_run(void *handle, uint32_t start, uint32_t command, const uint8_t *pages, uint32_t page_bytes,
                            uint32_t link_bytes, uint32_t link_latency, uint32_t read_latency, uint32_t stall,
                            uint64_t seed, uint64_t patience) {
    Machine &machine = *static_cast<Machine *>(handle);
    Vdut &dut = machine.dut;
    machine.random = seed | 1;
    machine_write(handle, start, &command, 1);
    std::deque<Request> requests;
    uint32_t sent = 0, status = BUSY;
    uint64_t moved = machine.now, next_poll = machine.now + POLL_EVERY, answer = 0;
    dut.host_addr = STATUS;
    while (machine.now - moved <= patience) {
        bool beat = !requests.empty() && machine.now >= requests.front().first &&
                    (stall == 0 || (machine.draw() & 255) >= stall);
        dut.page_valid = beat;
        if (beat) {
            const uint8_t *page = pages + static_cast<uint64_t>(requests.front().page) * page_bytes;
            std::memcpy(&dut.page_data, page + sent, link_bytes);
            sent += link_bytes;
            moved = machine.now;
            if (sent == page_bytes) {
                sent = 0;
                requests.pop_front();
            }
        }
        dut.host_read = machine.now == next_poll;
        if (machine.now == next_poll) {
            answer = machine.now + read_latency;
            next_poll += POLL_EVERY;
        }
        machine.low();
        if (machine.now == answer) {
            status = dut.host_rdata;
            if (!(status & BUSY)) break;
        }
        if (dut.page_req_valid) {
            uint64_t first = machine.now + link_latency + (stall ? machine.draw() % stall : 0);
            requests.push_back({dut.page_req_page, first});
            moved = machine.now;
        }
        machine.edge();
    }
    dut.page_valid = 0;
    dut.host_read = 0;
    machine.low(), machine.edge();
    return status & BUSY ? ~0U : status;
}
