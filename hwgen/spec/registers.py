"""The host port's address map: 32-bit words, word addresses of 24 bits. The upper half is the scratchpad's region, the
lower half has eight others, selected by the bits from `REGION_SHIFT` on. It is the same in every machine; on the
control bus regions lie closer together (`hwgen.spec.aperture`).

The port is `addr`, `write`, `wdata`, `read`, `rdata`; a read's data is there `READ_LATENCY` cycles after the cycle in
which `read` is high. All memories are written while the machine is idle.
"""

from hwgen.spec.described import Described

ADDRESS_BITS = 24
REGION_SHIFT = 20
SCRATCH_BITS = ADDRESS_BITS - 1
"""Of a word address in the scratchpad's region: as many words of a thread as a machine that is built can have."""

REGISTERS = 256
"""Words of a region of registers."""
INSTRUCTION_STRIDE = 8
"""Words from one instruction of the engine to the next."""
NO_REGION = 5
"""A number that no region has, nor will."""

READ_LATENCY = 10
IDENTITY = 0xDA7A0004
"""Value of `Register.ID`: product and version of this map."""


class Region(Described):
    """Address bits from `REGION_SHIFT` on; of SCRATCH in its first words."""

    CONTROL = 0, "`Register`"
    PROGRAM = (
        1,
        "Engine program, word address = 8 * instruction + k for 32-bit word k (0 … 5) of the instruction. Write only.",
    )
    STRIDER = 2, "Strider program, one instruction a word. Write only."
    CONSTANT = 3, "%cr0 … %cr31. Write only."
    COLUMN = 4, "Column descriptors, word address = 2 * descriptor + k, k = 0 first. Write only."
    SCRATCH = (
        8,
        "Scratchpad, word address = row * lanes + lane. A write goes to every thread, a read comes from thread 0.",
    )


class Register(Described):
    """Words of the control region; (r) read only, (w) write only: reads as 0, 64-bit counters are two words, low
    first."""

    ID = 0x00, "(r) product and version of the machine's map"
    CONTROL = 0x01, "(w) Write 1: start an epoch. Write 2: reset all but the memories. Write 4: go on after a pause."
    STATUS = (
        0x02,
        "(r) bit 0 busy, bit 1 epoch done, bit 2 paused, bit 3 the epoch's last batch is paused, bits 15:8 fault",
    )
    FAULT_PAGE = 0x03, "(r) page that the fault was found on"
    FAULT_POINTER = 0x04, "(r) low 16 bits of %t0 of the Strider that found it: page address of the line pointer"
    PAGES = 0x05, "(w) Pages of an epoch"
    BATCH = 0x06, "(w) Tuples of a batch; all ones: all tuples of the epoch"
    GROUP_LOG2 = 0x07, "(w) Binary logarithm of the tuples that a thread takes in a round"
    TUPLE_ROWS = 0x08, "(w) Rows of one tuple in tuple memory"
    LEVEL_STRIDE = 0x09, "(w) Rows of one level of the merge stack"
    LEVELS = 0x0A, "(w) Levels that the merge stack has"
    INIT = 0x0B, "(w) First instruction of section init; 0xffff: the program has no such section, here and below"
    TUPLE = 0x0C, "(w) First instruction of section tuple"
    MERGE = 0x0D, "(w) First instruction of section merge"
    PUSH = 0x0E, "(w) First instruction of section push"
    BATCH_SECTION = 0x0F, "(w) First instruction of section batch"
    EPOCH = 0x10, "(w) First instruction of section epoch"
    TUPLE_1 = 0x11, "(w) First instruction of section tuple1"
    TUPLE_2 = 0x12, "(w) First instruction of section tuple2"
    TUPLE_4 = 0x13, "(w) First instruction of section tuple4"
    TUPLE_8 = 0x14, "(w) First instruction of section tuple8"
    TUPLE_16 = 0x15, "(w) First instruction of section tuple16"
    TUPLE_32 = 0x16, "(w) First instruction of section tuple32"
    PAUSE = 0x17, "(w) Bit 0: pause before section `batch`, of machines with `pause`"
    TABLES = 0x40, "(w) Tables in the record memory, `TABLE_WORDS` words each, table 1 first: `TableWord`"
    CYCLES = 0x20, "(r, 64 bits) cycles of the last epoch, from the start to its end"
    TUPLES = 0x22, "(r, 64 bits) tuples of the last epoch"
    SKIPPED = 0x24, "(r, 64 bits) rows skipped in the last epoch"
    ENGINE_BUSY = 0x26, "(r, 64 bits) cycles in which the engine ran a section"
    MERGING = 0x28, "(r, 64 bits) cycles of these in sections `merge` and `push`"
    WAITING_FOR_ENGINE = 0x2A, "(r, 64 bits) cycles in which the unpacker waited for a half of tuple memory"
    WAITING_FOR_PAGES = (
        0x2C,
        "(r, 64 bits) cycles until the end of the last page in which the unpacker had nothing to unpack",
    )
    BATCHES = 0x2E, "(r, 64 bits) batches of the last epoch"
    PAUSED = 0x30, "(r, 64 bits) cycles in which the machine was paused"


class TableWord(Described):
    """Words of a table, from TABLES + 8 * (table - 1) on."""

    RECORDS = 0, "How many it has; 0: there is no such table, or it lies in the scratchpad"
    ROWS = 1, "Rows of lanes of a record"
    SHIFT = 2, "Binary logarithm of the bytes from one record to the next"
    BASE = 4, "(64 bits) Address of record 0; a multiple of 4,096"


TABLE_WORDS = 8

RESUME = 4
"""What is written to CONTROL to go on after a pause."""

NO_SECTION = 0xFFFF
"""Start of a section that the program does not have."""
