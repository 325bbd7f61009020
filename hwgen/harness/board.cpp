// A board between its buses: an AXI4-Lite master that does one access at a time, and memory behind each page bus, of which
// there are BUSES, and, of a board that was compiled with RECORDS, behind the record bus.
// In: accesses of a driver, bytes of pages. Out: words, and the bus's answers; compiled with TRACE, waveforms. It knows no
// register.
#include "Vdut.h"
#include "verilated.h"
#ifdef TRACE
#include "verilated_vcd_c.h"
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <utility>
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
    uint64_t first;  // earliest cycle of the next beat
};

// The memory behind the record bus: bursts in their order, a row a cycle, the first `latency` cycles after its address;
// an answer as long after the last row that was written.
struct Records {
    std::vector<uint8_t> memory;
    uint64_t base = 0;
    uint32_t bytes = 0;  // of a row
    uint32_t latency = 1;
    std::deque<Burst> reads, writes;
    std::deque<std::vector<uint8_t>> rows;                  // written, and not in the memory yet
    std::deque<std::pair<uint64_t, uint32_t>> answers;      // earliest cycle, response
    uint32_t refused = 0;                                   // response of the burst that is written

    uint8_t *at(uint64_t address) {
        return address >= base && address - base + bytes <= memory.size() ? memory.data() + (address - base) : nullptr;
    }
    // Puts rows where their burst goes, once both are known.
    void take(uint64_t now) {
        while (!rows.empty() && !writes.empty()) {
            Burst &burst = writes.front();
            if (uint8_t *row = at(burst.address)) std::memcpy(row, rows.front().data(), bytes);
            else refused = SLVERR;
            rows.pop_front();
            burst.address += bytes;
            if (--burst.beats != 0) continue;
            answers.emplace_back(std::max(now, burst.first), refused);
            refused = 0;
            writes.pop_front();
        }
    }
};

// A page bus of the board, and the memory behind it: bursts in their order.
struct Link {
    decltype(Vdut::m_axi_arready) arready, rvalid, rresp, rlast;
    decltype(Vdut::m_axi_arvalid) arvalid, rready, arlen;
    decltype(Vdut::m_axi_araddr) araddr;
    void *rdata;
    std::vector<uint8_t> memory;
    uint64_t base = 0;
    std::deque<Burst> bursts;
    uint64_t began = 0;    // the cycle in which the first beat of the page under way may come at the earliest
    bool waiting = false;  // for the first beat of a page
};
#define LINK(bus) \
    Link { dut.bus##_arready, dut.bus##_rvalid, dut.bus##_rresp, dut.bus##_rlast, dut.bus##_arvalid, dut.bus##_rready, \
           dut.bus##_arlen, dut.bus##_araddr, &dut.bus##_rdata }

constexpr uint64_t NANOSECONDS = 10;  // of a cycle in waveforms, as in a package's testbench
constexpr int LEVELS = 6;             // in waveforms, down to clusters: their lanes would be most of a file

struct Board {
    VerilatedContext context;
    Vdut dut{&context};
#ifdef TRACE
    VerilatedVcdC waves;
#endif
    Link links[BUSES] = {
        LINK(m_axi),
#if BUSES > 1
        LINK(m_axi_1),
#endif
#if BUSES > 2
        LINK(m_axi_2), LINK(m_axi_3),
#endif
    };
    uint32_t bytes = 0;    // of a beat
    uint32_t latency = 1;  // cycles from an address to its first beat
    uint32_t page = 0;     // bytes, of one bus
    uint32_t slowed = 0;   // cycles from a page's first beat to its last, both included
    uint32_t stall = 0;    // of 256 cycles on each channel of a page bus
    uint64_t random = 1;
    uint64_t now = 0;
    uint64_t interrupted = 0;  // the cycle in which it interrupted last
    bool interrupts = false;
    Records records;

    uint32_t draw() {  // xorshift64*
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        return static_cast<uint32_t>(random * 0x2545F4914F6CDD1DULL >> 32);
    }
#ifdef TRACE
    Board() {
        context.traceEverOn(true);
        dut.trace(&waves, LEVELS);
        waves.set_time_unit("1ns");
        waves.set_time_resolution("1ns");
    }
#endif

    // Adds the signals to the waveforms, if there are any, so many nanoseconds after the cycle's begin.
    void sample([[maybe_unused]] uint64_t after) {
#ifdef TRACE
        if (waves.isOpen()) waves.dump(NANOSECONDS * now + after);
#endif
    }

    bool pauses() { return stall != 0 && (draw() & 255) < stall; }

    // Whether the memory has the next beat: beat k of the n of a page when (k + 1) / n of the page's cycles are over.
    bool has_next(Link &link) {
        const Burst &burst = link.bursts.front();
        if (now < burst.first) return false;
        const uint64_t beat = (burst.address - link.base) % page / bytes;
        if (beat == 0 && !link.waiting) link.began = now;
        link.waiting = beat == 0;
        return now >= link.began + ((beat + 1) * slowed * bytes + page - 1) / page - 1;
    }

    void offer(Link &link) {
        const Burst &burst = link.bursts.front();
        const uint64_t at = burst.address - link.base;
        const bool there = burst.address >= link.base && at + bytes <= link.memory.size();
        link.rresp = there ? 0 : SLVERR;
        link.rlast = burst.beats == 1;
        if (there) std::memcpy(link.rdata, link.memory.data() + at, bytes);
        link.rvalid = 1;
    }

#ifdef RECORDS
    void records_low() {
        dut.m_axi_records_arready = !pauses();
        dut.m_axi_records_awready = !pauses();
        dut.m_axi_records_wready = !pauses();
        if (!dut.m_axi_records_rvalid && !records.reads.empty() && now >= records.reads.front().first && !pauses()) {
            const Burst &burst = records.reads.front();
            const uint8_t *row = records.at(burst.address);
            if (row) std::memcpy(&dut.m_axi_records_rdata, row, records.bytes);
            dut.m_axi_records_rresp = row ? 0 : SLVERR;
            dut.m_axi_records_rlast = burst.beats == 1;
            dut.m_axi_records_rvalid = 1;
        }
        if (!dut.m_axi_records_bvalid && !records.answers.empty() && now >= records.answers.front().first && !pauses()) {
            dut.m_axi_records_bresp = records.answers.front().second;
            dut.m_axi_records_bvalid = 1;
        }
    }

    // What the edge takes; looked at before it, and done by what is returned, behind it.
    auto records_edge() {
        const uint64_t first = now + records.latency + (stall ? draw() % stall : 0);
        const bool given = dut.m_axi_records_rvalid && dut.m_axi_records_rready;
        const bool answered = dut.m_axi_records_bvalid && dut.m_axi_records_bready;
        if (dut.m_axi_records_arvalid && dut.m_axi_records_arready)
            records.reads.push_back({dut.m_axi_records_araddr, dut.m_axi_records_arlen + 1U, first});
        if (dut.m_axi_records_awvalid && dut.m_axi_records_awready)
            records.writes.push_back({dut.m_axi_records_awaddr, dut.m_axi_records_awlen + 1U, 0});
        if (dut.m_axi_records_wvalid && dut.m_axi_records_wready) {
            const uint8_t *row = reinterpret_cast<const uint8_t *>(&dut.m_axi_records_wdata);
            records.rows.emplace_back(row, row + records.bytes);
        }
        records.take(first);
        return [this, given, answered] {
            if (given) {
                dut.m_axi_records_rvalid = 0;
                Burst &burst = records.reads.front();
                burst.address += records.bytes;
                if (--burst.beats == 0) records.reads.pop_front();
            }
            if (answered) {
                dut.m_axi_records_bvalid = 0;
                records.answers.pop_front();
            }
        };
    }
#else
    void records_low() {}
    auto records_edge() {
        return [] {};
    }
#endif

    // The half of a cycle in which the buses carry what the edge takes; what is offered stays until it is taken.
    void low() {
        dut.clk = 0;
        for (Link &link : links) {
            link.arready = !pauses();
            if (!link.rvalid && !link.bursts.empty() && has_next(link) && !pauses()) offer(link);
        }
        records_low();
        dut.eval();
        sample(NANOSECONDS / 2);
    }

    void edge() {
        bool taken[BUSES];
        for (int k = 0; k < BUSES; ++k) {
            Link &link = links[k];
            taken[k] = link.rvalid && link.rready;
            const uint64_t first = now + latency + (stall ? draw() % stall : 0);
            if (link.arvalid && link.arready) link.bursts.push_back({link.araddr, link.arlen + 1U, first});
        }
        const auto records_done = records_edge();
        dut.clk = 1;
        dut.eval();
        sample(NANOSECONDS);
        ++now;
        if (dut.irq && !interrupts) interrupted = now;
        interrupts = dut.irq;
        records_done();
        for (int k = 0; k < BUSES; ++k) {
            if (!taken[k]) continue;
            Link &link = links[k];
            link.rvalid = 0;
            link.bursts.front().address += bytes;
            if (--link.bursts.front().beats == 0) link.bursts.pop_front();
        }
    }

    uint32_t write(uint32_t byte_address, uint32_t word) {
        uint32_t answer = NO_ANSWER;
        dut.s_axil_awaddr = byte_address;
        dut.s_axil_wdata = word;
        dut.s_axil_wstrb = 15;
        dut.s_axil_awvalid = dut.s_axil_wvalid = dut.s_axil_bready = 1;
        for (uint32_t k = 0; k < HANGS && answer == NO_ANSWER; ++k) {
            low();
            const bool addressed = dut.s_axil_awready, given = dut.s_axil_wready;
            if (dut.s_axil_bvalid) answer = dut.s_axil_bresp;
            edge();
            if (addressed) dut.s_axil_awvalid = 0;
            if (given) dut.s_axil_wvalid = 0;
        }
        dut.s_axil_awvalid = dut.s_axil_wvalid = dut.s_axil_bready = 0;
        return answer;
    }

    uint32_t read(uint32_t byte_address, uint32_t *word) {
        uint32_t answer = NO_ANSWER;
        dut.s_axil_araddr = byte_address;
        dut.s_axil_arvalid = dut.s_axil_rready = 1;
        for (uint32_t k = 0; k < HANGS && answer == NO_ANSWER; ++k) {
            low();
            const bool addressed = dut.s_axil_arready;
            if (dut.s_axil_rvalid) {
                answer = dut.s_axil_rresp;
                *word = dut.s_axil_rdata;
            }
            edge();
            if (addressed) dut.s_axil_arvalid = 0;
        }
        dut.s_axil_arvalid = dut.s_axil_rready = 0;
        return answer;
    }
};

}  // namespace

// The first beat of a burst comes `latency` cycles after its address was taken, or right behind the burst before it; the
// beats of a page take `page_cycles`, or as many cycles as there are of them. The memory of each page bus begins `part`
// bytes after that of the one before.
EXPORT void *board_new(uint64_t base, uint64_t part, uint32_t beat_bytes, uint32_t latency, uint32_t page_bytes,
                       uint32_t page_cycles) try {
    Board *board = new Board;
    for (int k = 0; k < BUSES; ++k) board->links[k].base = base + k * part;
    board->bytes = beat_bytes;
    board->latency = latency;
    board->page = page_bytes;
    board->slowed = page_cycles;
    board->dut.rst = 1;
    for (uint32_t k = 0; k < RESET; ++k) board->low(), board->edge();
    board->dut.rst = 0;
    board->low(), board->edge();
    return board;
} catch (const std::exception &) {
    return nullptr;  // an exception that left here would end the process
}

// Where the record memory is, bytes of a row of lanes, cycles of an answer.
EXPORT void board_records(void *handle, uint64_t base, uint32_t row_bytes, uint32_t latency) {
    Records &records = static_cast<Board *>(handle)->records;
    records.base = base;
    records.bytes = row_bytes;
    records.latency = latency;
}

#ifdef TRACE
// Writes waveforms into a new file from now on, or ends them without one; false: the file cannot be written.
EXPORT bool board_trace(void *handle, const char *path) {
    Board &board = *static_cast<Board *>(handle);
    board.waves.close();
    if (path == nullptr) return true;
    board.waves.open(path);
    return board.waves.isOpen();
}
#endif

EXPORT void board_delete(void *handle) { delete static_cast<Board *>(handle); }

// From now on the page bus takes no address, or has no beat, in `stall` of 256 cycles, and a burst's first beat is later
// by up to `stall` cycles.
EXPORT void board_stall(void *handle, uint32_t stall, uint64_t seed) {
    Board &board = *static_cast<Board *>(handle);
    board.stall = stall;
    board.random = seed | 1;
}

// Puts bytes into the memory behind a page bus, or into that of records, behind them; it grows to hold them. False: there
// is no room.
EXPORT bool board_put(void *handle, uint32_t bus, uint64_t offset, const uint8_t *data, uint64_t size) {
    Board &board = *static_cast<Board *>(handle);
    std::vector<uint8_t> &memory = bus == BUSES ? board.records.memory : board.links[bus].memory;
    try {
        if (offset + size > memory.size()) memory.resize(offset + size);
    } catch (const std::exception &) {
        return false;
    }
    std::memcpy(memory.data() + offset, data, size);
    return true;
}

// Reads bytes of the record memory; false: it has not so many.
EXPORT bool board_get(void *handle, uint64_t offset, uint8_t *data, uint64_t size) {
    const std::vector<uint8_t> &memory = static_cast<Board *>(handle)->records.memory;
    if (offset + size > memory.size()) return false;
    std::memcpy(data, memory.data() + offset, size);
    return true;
}

// Lets `cycles` pass, or fewer where the board interrupts.
EXPORT void board_wait(void *handle, uint32_t cycles) {
    Board &board = *static_cast<Board *>(handle);
    for (uint32_t k = 0; k < cycles && !board.dut.irq; ++k) board.low(), board.edge();
}

// Lets cycles pass until `cycles` of them have passed since the board interrupted.
EXPORT void board_hold(void *handle, uint64_t cycles) {
    Board &board = *static_cast<Board *>(handle);
    while (board.now < board.interrupted + cycles) board.low(), board.edge();
}

// Writes words one after another, up to the first that the board refuses; returns its response, and how many it took.
EXPORT uint32_t board_write(void *handle, uint32_t byte_address, const uint32_t *words, uint32_t count,
                            uint32_t *taken) {
    uint32_t answer = 0;
    for (*taken = 0; *taken < count; ++*taken) {
        answer = static_cast<Board *>(handle)->write(byte_address + 4 * *taken, words[*taken]);
        if (answer != 0) break;
    }
    return answer;
}

// The same for reading.
EXPORT uint32_t board_read(void *handle, uint32_t byte_address, uint32_t *words, uint32_t count, uint32_t *taken) {
    uint32_t answer = 0;
    for (*taken = 0; *taken < count; ++*taken) {
        answer = static_cast<Board *>(handle)->read(byte_address + 4 * *taken, words + *taken);
        if (answer != 0) break;
    }
    return answer;
}
