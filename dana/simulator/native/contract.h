/* What hwgen/spec and dana/simulator/structures.py say, in C. Written by python -m dana.generated. */
#ifndef DANA_SIMULATOR_CONTRACT_H
#define DANA_SIMULATOR_CONTRACT_H

#include <stdbool.h>
#include <stdint.h>

/* Of all below: a core that was built from another text is not used */
#define SIM_CONTRACT UINT64_C(0xf152e581a3128c9b)
#define SIM_CLUSTER 8
#define SIM_TEMPORARIES 32
#define SIM_REGISTERS 64
#define SIM_WHOLE_EPOCH UINT32_C(0xffffffff)
#define SIM_UNKNOWN_PAGE UINT32_C(0xffffffff)
#define SIM_ENGINE_CODES 64
#define SIM_LANE_CODES 32
#define SIM_MAX_WATCHED 256
#define SIM_SECTIONS 12
#define SIM_BLOCK 16

enum sim_opcode
{
	SIM_END = 0,
	SIM_MOV = 1,
	SIM_ADD = 2,
	SIM_SUB = 3,
	SIM_MUL = 4,
	SIM_MAX = 5,
	SIM_MIN = 6,
	SIM_LT = 7,
	SIM_GT = 8,
	SIM_LE = 9,
	SIM_GE = 10,
	SIM_EQ = 11,
	SIM_NEG = 12,
	SIM_ABS = 13,
	SIM_MOVC = 14,
	SIM_SETX = 15,
	SIM_LOW = 16,
	SIM_HIGH = 17,
	SIM_SIGMOID = 32,
	SIM_GAUSSIAN = 33,
	SIM_EXP = 34,
	SIM_LOG = 35,
	SIM_SQRT = 36,
	SIM_DIV = 37,
	SIM_TANH = 38,
	SIM_SINPI = 39
};

enum sim_source
{
	SIM_MEMORY = 0,
	SIM_LANE_XOR = 1,
	SIM_THREAD_XOR = 2
};

enum sim_tuple_mask
{
	SIM_MASK_NONE = 0,
	SIM_MASK_PAIR = 1,
	SIM_MASK_SINGLE = 2
};

enum sim_section
{
	SIM_INIT = 0,
	SIM_TUPLE = 1,
	SIM_MERGE = 2,
	SIM_PUSH = 3,
	SIM_BATCH = 4,
	SIM_EPOCH = 5,
	SIM_TUPLE_1 = 6,
	SIM_TUPLE_2 = 7,
	SIM_TUPLE_4 = 8,
	SIM_TUPLE_8 = 9,
	SIM_TUPLE_16 = 10,
	SIM_TUPLE_32 = 11
};

enum sim_strider_opcode
{
	SIM_READB = 0,
	SIM_EXTRB = 1,
	SIM_WRITEB = 2,
	SIM_EXTRBI = 3,
	SIM_CLN = 4,
	SIM_INS = 5,
	SIM_AD = 6,
	SIM_SUBTRACT = 7,
	SIM_MULTIPLY = 8,
	SIM_BENTR = 9,
	SIM_BEXIT = 10,
	SIM_BEQ = 11,
	SIM_BNE = 12,
	SIM_BLT = 13,
	SIM_JMP = 14,
	SIM_CTL = 15
};

enum sim_control
{
	SIM_CTL_END = 0,
	SIM_CTL_SKIP = 1,
	SIM_CTL_FAIL = 2,
	SIM_CTL_POP = 3
};

enum sim_condition
{
	SIM_COND_EQ = 0,
	SIM_COND_NE = 1,
	SIM_COND_LT = 2,
	SIM_COND_GE = 3
};

enum sim_fault
{
	SIM_FAULT_NONE = 0,
	SIM_FAULT_OUT_OF_PAGE = 1,
	SIM_FAULT_PAGE_HEADER = 2,
	SIM_FAULT_LINE_POINTER = 3,
	SIM_FAULT_TUPLE_HEADER = 4,
	SIM_FAULT_TUPLE_SHORT = 5,
	SIM_FAULT_TOASTED = 6,
	SIM_FAULT_COMPRESSED = 7,
	SIM_FAULT_ARRAY_SHAPE = 8,
	SIM_FAULT_ARRAY_NULLS = 9,
	SIM_FAULT_STACK = 10,
	SIM_FAULT_BAD_INSTRUCTION = 11,
	SIM_FAULT_RUNAWAY = 12,
	SIM_FAULT_BUS = 13,
	SIM_FAULT_INDEX = 14,
	SIM_FAULT_TUPLE_PARTS = 15
};

enum sim_column_type
{
	SIM_FLOAT4 = 0,
	SIM_FLOAT8 = 1,
	SIM_INT2 = 2,
	SIM_INT4 = 3,
	SIM_INT8 = 4,
	SIM_BOOL = 5
};

enum sim_problem_kind
{
	SIM_FITS = 0,
	SIM_NO_MEMORY = 1,
	SIM_DST_OUTSIDE = 2,
	SIM_A_OUTSIDE = 3,
	SIM_B_OUTSIDE = 4,
	SIM_TOO_SHORT = 5,
	SIM_WRITES_COLLIDE = 6,
	SIM_RESULTS_OUTSTAND = 7,
	SIM_INDEX_OVERLAPS = 8
};

/* Column types: X(NAME, C's type, conversion) */
#define SIM_COLUMN_TYPES(X) X(FLOAT4, float, dn_from_float32) X(FLOAT8, double, dn_from_float64) X(INT2, int16_t, dn_from_int16) X(INT4, int32_t, dn_from_int32) X(INT8, int64_t, dn_from_int64) X(BOOL, uint8_t, dn_from_bool)

/* Operations of a property: bit SIM_X of a word */
#define SIM_WITH_B UINT64_C(0x2000034ffc) /* that read an operand b */
#define SIM_SPECIAL UINT64_C(0xff00000000) /* of a cluster's units */

static inline bool
sim_is(uint64_t property, int32_t op)
{
	return op >= 0 && op < SIM_ENGINE_CODES && (property >> op & 1) != 0;
}

/* lanes, two operands, an identity */
#define SIM_REDUCTIONS(X) X(ADD, add) X(MUL, mul) X(MAX, max) X(MIN, min)
/* lanes, two operands, without an identity */
#define SIM_BINARIES(X) X(SUB, sub) X(LT, lt) X(GT, gt) X(LE, le) X(GE, ge) X(EQ, eq)
/* lanes, one operand */
#define SIM_UNARIES(X) X(MOV, mov) X(NEG, neg) X(ABS, abs)
/* a cluster's, one operand */
#define SIM_FUNCTIONS(X) X(SIGMOID, sigmoid) X(GAUSSIAN, gaussian) X(EXP, exp) X(LOG, log) X(SQRT, sqrt) X(TANH, tanh) X(SINPI, sinpi)
/* e with x op e = x, as bits; +0.0 of all others */
#define SIM_IDENTITIES(X) X(ADD, 0x80000000u) X(MUL, 0x3f800000u) X(MAX, 0xff800000u) X(MIN, 0x7f800000u)

/* Code made from a rule's graph, which runs in the place of the engine's instructions: dana/jit, compiled.c. tuples:
 * where each tuple's inputs lie, one tuple's after the other's. */
typedef void sim_compiled_function(float *state, const float *const *tuples, const int64_t *slots, int64_t carry);
/* Batches of one tuple each; `loss`: of the epoch, and its correction */
typedef void sim_compiled_rows(float *state, const float *const *tuples, float *loss, int64_t count);

/* Of struct sim_observer */
struct sim_column;
struct sim_handed;
typedef void sim_observe_tuples(void *context, const uint8_t *page, const struct sim_handed *handed, int32_t n_handed,
		int32_t row, int32_t count);
typedef void sim_observe_column(void *context, const struct sim_column *column, const uint8_t *from);
typedef void sim_observe_end(void *context);

/* hwgen.spec.config.MachineConfig and hwgen.spec.cycles. special_latency 0: the machine has no such function. */
struct sim_machine
{
	int32_t threads, clusters, striders, page_size, scratch_depth, tuple_depth, program_depth, strider_depth,
		descriptor_depth, index_depth, watch_depth, queue_depth, page_cycles, link_latency, result_latency,
		section_start, min_instruction, round_start, strider_start, strider_bound, unpack_stages, unpack_latency,
		watch_latency, page_release;
	int32_t strider_cycles[16];
	int32_t special_latency[64], special_interval[64];
};

/* hwgen.spec.engine.Instruction. */
struct sim_instruction
{
	int32_t op, wait, inner, outer, dst, dst_inner, dst_outer, dst_level, a, a_tuple, a_inner, a_outer, a_level,
		b, b_tuple, b_inner, b_outer, source, distance, mask, tail_a, tail_b, tail, scalar, a_index, dst_index;
};

/* hwgen.spec.strider.Instruction. */
struct sim_strider_instruction
{
	int32_t op, a, b, c;
};

/* hwgen.spec.columns.Column; then bytes on the page, cycles of the unpacker, whether its use is a BAD_INSTRUCTION, and
 * the input that code reads where it lies, or -1, which the core works out. */
struct sim_column
{
	int32_t count, row, lane, type, scalar, first, last, follows, table, writes, bytes, beats, bad, input;
};

/* A column of rows that are alike: row k's lies at page + address[k] + offset. gap: cycles from the previous push, or
 * from the iteration's start, until it could be pushed. */
struct sim_handed
{
	const struct sim_column *column;
	const uint32_t *address;
	uint32_t offset;
	int32_t gap;
};

/* What looks at an epoch's values, in the pages' order, before anything else is made of them. tuples: rows of a page
 * from `row` on, which are whole tuples and alike; column: one by itself, of a tuple that may end on another page; end:
 * of the epoch. NULL: nobody looks. */
struct sim_observer
{
	sim_observe_tuples *tuples;
	sim_observe_column *column;
	sim_observe_end *end;
	void *context;
};

/* Scratchpad rows of a hwgen.spec.bundle.Symbol. */
struct sim_symbol_rows
{
	int32_t row, rows;
};

/* hwgen.spec.bundle.Bundle; constants of SIM_TEMPORARIES words, image of [image_rows][lanes], -1 for a section that is
 * not there. */
struct sim_bundle
{
	const struct sim_instruction *program;
	const struct sim_strider_instruction *strider;
	const struct sim_column *columns;
	const uint32_t *constants, *image;
	const struct sim_symbol_rows *symbols;
	int32_t n_program, n_strider, n_columns, image_rows, n_symbols;
	int32_t sections[12];
	int32_t group, tuple_rows, level_stride, levels;
	uint32_t batch;
};

/* Why a Bundle was refused, the section and the instruction; dana/simulator/problems.py has the words for it. */
struct sim_problem
{
	int32_t kind, section, position;
	int64_t found, limit;
};

/* A merge's stack: levels of `size` floats from `first` on; level k holds 2 to the power of k tuples. It is joined at
 * the end of pass number `pass`, from 0. */
struct sim_compiled_merge
{
	int64_t first, size;
	int32_t op, pass;
};

/* A pass over a batch's tuples behind the first: between: what precedes it, from what is merged till then; block, one:
 * as of the first. The batch's tuples are all there. */
struct sim_compiled_pass
{
	sim_compiled_function *between, *block, *one;
};

/* Rows of a hwgen.spec.bundle.Symbol, and where it lies in `state`: `leading` vectors of `last` floats; first -1: the
 * epoch's loss. broadcast: each float in a row of its own. into, out: read from the scratchpad before an epoch, written
 * to it after one. */
struct sim_compiled_symbol
{
	int32_t row, leading, last;
	int64_t first, stride;
	int32_t broadcast, into, out;
};

/* An element of an input of each tuple, which chooses a row, and the model's rows; input -1: it is computed. */
struct sim_compiled_index
{
	int32_t input, element, rows;
};

/* An input of each tuple: its first float where tuples are packed; the column that is all of it, or -1; floats that
 * code may read of it as it lies on a page, or 1: a number, which is packed beside those of other tuples. */
struct sim_compiled_input
{
	int32_t first, column, floats;
};

/* A rule's code. begin: of an epoch. before, after: of a batch; last: the epoch's last. block: SIM_BLOCK tuples, or
 * NULL; one: a tuple. rows, last_row: in the place of all but `begin` where batches are of one tuple; the epoch's last.
 * slots: of each merge, where in its stack a batch's result lies. indices: in the order of the faults' tags. loss:
 * which of the merges; -1: none. wrong: where in `state` code notes the first number that is no row's; -1: it does not
 * look. */
struct sim_compiled
{
	sim_compiled_function *begin, *before, *block, *one, *after, *last;
	sim_compiled_rows *rows, *last_row;
	float *state;
	int64_t *slots;
	const struct sim_compiled_merge *merges;
	const struct sim_compiled_pass *passes;
	const struct sim_compiled_symbol *symbols;
	const struct sim_compiled_index *indices;
	const struct sim_compiled_input *inputs;
	int64_t wrong;
	int32_t n_merges, n_passes, n_symbols, n_indices, n_inputs, loss;
};

/* hwgen.spec.counters.EpochCounters. */
struct sim_counters
{
	uint64_t cycles, tuples, skipped, engine_busy, merging, waiting_for_engine, waiting_for_pages, batches;
	uint32_t fault, fault_page, fault_pointer;
};

#endif
