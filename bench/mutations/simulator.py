"""Faults for the simulator's core in C: what it verifies, its Strider, its unpacker, its engine."""

from __future__ import annotations

from bench.mutations.fault import faults

CORE = "dana/simulator/native"

SIMULATOR = (
    *faults(
        CORE,
        "tests/simulator/test_machine.py",
        ("verify.c", "if (t->writes[at % WINDOW] == at)", "if (0)", "two results in a cycle"),
        ("verify.c", "if (t->visible > turn)", "if (0)", "a section that ends too soon"),
    ),
    *faults(
        CORE,
        "tests/simulator/test_index.py tests/simulator/test_exchange.py",
        ("index.c", "n < (float)in->dst &&", "", "a number without a row"),
        ("index.c", "&& n == (float)(int32_t)n", "", "half a row"),
        ("index.c", "sim_present(sim, m, o) / sim->lanes", "sim->machine.threads", "absent tuples write rows"),
        (
            "exchange.inc",
            "CROSS_NEAR(VECTOR, AT, IOTA, W, NEAR, F, 2)",
            "CROSS_NEAR(VECTOR, AT, IOTA, W, NEAR, F, 1)",
            "the wrong partner",
        ),
    ),
    *faults(
        CORE,
        "tests/simulator/test_access.py",
        ("strider.c", "if ((uint64_t)a + in->b > page_size)", "if ((uint64_t)a > page_size)", "readB beyond the page"),
        ("strider.c", "if (executed++ == bound)", "if (executed++ == bound + 1)", "an instruction more than the bound"),
        ("rounds.c", "else if (level < sim->levels)", "else if (level <= sim->levels)", "a level too many"),
        ("clock.c", "phase->half ^= 1;", "", "one half"),
        ("clock.c", "return (uint64_t)c->idle;", "return (uint64_t)c->idle + 1;", "a cycle more an epoch"),
        ("clock.c", "c->idle = later(c->idle, hand);", "", "an epoch of pages without a tuple"),
        ("strider.c", "(a & 0xffff) * (b & 0xffff)", "a * b", "factors of 32 bits"),
        ("strider.c", "return in->b <= 7 &&", "return in->b <= 8 &&", "cln of 8 bits"),
        ("strider.c", "in->c >= 32 ? in->c - 64 : in->c", "in->c", "branches backwards"),
        ("strider.c", "memset(r, 0, sizeof(uint32_t) * SIM_TEMPORARIES);", "", "registers keep a page's"),
        ("strider.c", "address &= sim->machine.strider_depth - 1;", "", "addresses beyond the program memory"),
        (
            "unpack.c",
            "if ((int64_t)address + column->bytes > sim->machine.page_size)",
            "if ((int64_t)address + column->bytes >= sim->machine.page_size)",
            "a column that ends with the page",
        ),
        ("unpack.c", "column->first == sim->e.open ||", "", "a tuple begins in another"),
        ("clock.c", "= later(c->turn + gap, *queued + 1);", "= c->turn + gap;", "a queue without an end"),
        (
            "clock.c",
            "later(c->requested + sim->machine.link_latency, c->last + 1)",
            "c->requested + sim->machine.link_latency",
            "two pages on the link",
        ),
        ("unpack.c", "(e->open)", "(0)", "an epoch ends in a tuple"),
    ),
    *faults(
        CORE,
        "tests/simulator/test_walk.py",
        ("walk.c", "sim->e.skipped += (uint64_t)(alike * way->skipped);", "", "rows with a NULL are not counted"),
        ("way.c", "all &= (rows_of)(at <= page_size - s->y);", "", "bytes beyond the page"),
        ("way.c", "guard(m, taken ? LT : GE, x, y);", ";", "branches that are not looked at"),
        (
            "way.c",
            "fits = (way->reads & other->writes) == 0 && (way->writes & other->reads) == 0;",
            "fits = true;",
            "rows that depend on the row before",
        ),
        ("pattern.c", "pattern->line_mask |= s->mask << s->shift;", ";", "flags of a line pointer"),
        ("pattern.c", "pattern->line_mask |= ~s->mask << pattern->shift;", ";", "tuples that are not aligned alike"),
        ("pattern.c", "pattern->masks[at.n + k] |= (uint8_t)(mask >> 8 * k);", ";", "bytes of a tuple's header"),
        ("pattern.c", "else if (least == (n > pattern->bounds[k].n))", "else if (0)", "the first bound alone"),
        ("pattern.c", "(int64_t)b.n - a.n - !at_least)", "(int64_t)b.n - a.n)", "a tuple at its bound"),
        ("pattern.c", "sim->registers[one->reg] + one->n", "one->n", "bounds that a page's header tells"),
        ("pattern.c", "tuple < least ||", "", "a tuple below its bound"),
        ("pattern.c", "|| tuple > most", "", "a tuple above its bound"),
        ("pattern.c", "else if (s->a == value || s->b == value)", "else if (0)", "bytes that conditions look at"),
        (
            "pattern.c",
            "if (a.kind == b.kind)\n\t\treturn !any;",
            "if (a.kind == b.kind)\n\t\treturn true;",
            "registers",
        ),
        ("clock.c", "sim->clock.turn += shape->before;", "", "a page's header takes no time"),
        ("clock.c", "EACH(c->idle);", "", "the engine's clock is no part of a state"),
        ("clock.c", "PHASE(c->phase.in_batch);", "", "a batch's tuples are no part of a state"),
        ("clock.c", "c->merging += t->merging;", "", "merges of pages alike are not counted"),
        ("clock.c", "| (uint32_t)__builtin_ctz(~(q >> bits)) << 16;", ";", "merges of higher levels"),
    ),
    *faults(
        CORE,
        "tests/simulator/test_engine.py",
        ("engine.c", "(op->i.mask != SIM_MASK_NONE && !(whole && op->in_group))", "0", "absent tuples count"),
        ("engine.c", "(in->mask == SIM_MASK_PAIR ? 2 * in->outer : in->outer)", "in->outer", "a pair is one tuple"),
        ("engine.c", "op->care.in_order ||", "", "rows that depend on one another at once"),
        (
            "engine.c",
            "? lanes\n\t\t\t\t\t\t\t: SIM_CLUSTER;",
            "? lanes\n\t\t\t\t\t\t\t: lanes;",
            "one cluster's function for all",
        ),
        (
            "engine.c",
            "u % sim->lanes < t ? UINT32_MAX : 0",
            "u % sim->lanes <= t ? UINT32_MAX : 0",
            "a lane behind the tail",
        ),
        ("verify.c", "if (w->visible > cycle)", "if (w->visible > cycle + 1)", "results a cycle early"),
        ("kernels.inc", "UNARY(name, OP_##OP)\n", "UNARY(name, OP_MOV)\n", "no minus"),
    ),
    *faults(
        CORE,
        "tests/lockstep/test_simulator.py",
        (
            "rounds.c",
            "for (; q >> level & 1; level++)",
            "for (; q >> level & 1 && level < 1; level++)",
            "a block is merged once",
        ),
    ),
)
