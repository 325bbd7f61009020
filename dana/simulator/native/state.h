/*
 * The simulator's core: types that its parts share.
 *
 * In: a machine and a Bundle as plain arrays (dana/simulator/native.py fills them), then pages. Out: scratchpad rows and
 * an epoch's counters, bit for bit and cycle for cycle those of docs/machine.md. No part may call Python, allocate while
 * an epoch runs, or trust a byte of a page. What is true of a loaded program (addresses within memories, targets within
 * the program) is checked once, by verify.c and walk.c, so that inner loops need no checks.
 *
 *   core.c     load, rows, epochs: what is exported           strider.c  one page, instruction by instruction
 *   verify.c   is the program one that the machine allows?    walk.c     one page, all of its rows at once
 *   engine.c   instructions, rows chosen by data              unpack.c   columns become tuples and rounds
 *   pipeline.c results that overlap                           values.c   columns' bytes to tuple memory
 *   rounds.c   the sequencer                                  clock.c    when all of this happens, memo.c
 *   kernels.c  inner loops, chosen by the processor's kind    way.c      what a row can be, for walk.c
 *   kernels.inc, portable.c  the loops, for any processor     number.h   an element of a column
 *   records.c  tables in external record memory               pattern.c  rows alike, mixed.c  of several ways: walk.h
 *   watch.h    rows chosen again, which end a batch
 *   compiled.c a rule's own code in the place of engine.c and all that serves it
 *   shared.c   an epoch that repeats pages, by several threads with a simulator each
 *   join.c     batches over parts of the rows, each in a machine of its own
 */
#ifndef DANA_SIMULATOR_STATE_H
#define DANA_SIMULATOR_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contract.h"

#define CACHE_LINE 64
#define SIM_EXPORT __attribute__((visibility("default")))

struct sim_shape; /* walk.h */
struct sim_walk;

struct sim_code
{
	const struct sim_instruction *first;
	int32_t n; /* END is not among them */
	int32_t end_wait;
	int64_t cycles; /* SECTION_START + length; 0: the program has no such section */
};

#define SIM_BEGINNING 3 /* words of a page's beginning */

/* What a program has come to before its loop, where a page begins with these bits; strider.c */
struct sim_beginning
{
	int32_t pc; /* of the loop's `bentr`; 0: unknown */
	int32_t gap;
	uint32_t executed, registers[SIM_TEMPORARIES];
	uint64_t bytes[SIM_BEGINNING], masks[SIM_BEGINNING];
};

#define SIM_MAX_STRIDERS 64
#define SIM_MAX_QUEUE	 1024
#define SIM_MAX_STAGES	 8

/* Inner loops for one kind of processor. A result may lie where an operand does, not partly over it. */
struct sim_kernels
{
	/* d <- op(a, b), n floats of each */
	void (*apply)(int op, size_t n, float *d, const float *a, const float *b);
	/* What an exchange brings together: for units with the bit clear both are of a, for the others of b */
	void (*cross)(int n, int bit, const float *a, const float *b, float *own, float *partner);
	/* a column's n elements of tuples one after the other, tuple k's from page + at[k] + offset to d + k * step */
	void (*convert)(int type, int n, float *d, ptrdiff_t step, const uint8_t *page, const uint32_t *at, uint32_t offset,
					int tuples);
};

extern const struct sim_kernels portable_kernels;
const struct sim_kernels *sim_choose_kernels(const char *name);

#define SIM_STAMP_BITS 11

/* Rows that a round's tuples write: of tuples that have begun, and of the one to come; watch.h */
struct sim_watch
{
	struct sim_watched
	{
		int32_t earlier, own;
		uint16_t written; /* rows of the epoch, modulo what this holds */
	} n;
	uint64_t rows[SIM_MAX_WATCHED];
	uint16_t last[1 << SIM_STAMP_BITS]; /* by a row's hash: `written` when one of those was */
};

/* --- tables in the record memory: records.c --- */

struct sim_records
{
	int32_t records; /* 0: there is no such table */
	int32_t floats;	 /* of a record, in rows of lanes */
};

/* A symbol of a table, which lies once, as code has it */
struct sim_values
{
	struct sim_held is;
	float *first;
};

/* What a watched column of a tuple says */
struct sim_named
{
	const struct sim_column *column; /* NULL: nothing yet */
	int32_t record;
};

/* Records as they were, each time that one was stored */
struct sim_journal
{
	size_t n, most;
	int32_t spacing; /* floats from one's contents to the next one's */
	uint64_t sum;	 /* of all records */
	struct sim_stored
	{
		int32_t table, record;
	} *entries;
	float *contents, *others; /* [n][spacing]: as they were; as the engine left them */
};

/* --- the whole --- */

/* A column with numbers that set entries of ordered instructions: clock.c */
struct sim_order
{
	int32_t instructions; /* ordered ones */
	int32_t bound;
	int64_t position; /* of the next entry; what lies further back than the window counts for nothing */
	int64_t *last;	  /* [bound]: of a number's last entry */
};

#define SIM_MAX_ORDERS 8

/* Which round and batch the next tuple is of */
struct sim_phase
{
	int32_t half;
	int32_t in_round, room; /* tuples that are complete, and that the round still takes */
	uint32_t in_batch;		/* tuples of the batch's earlier rounds */
	uint32_t q;				/* rounds of the batch before this one */
	bool cut;				/* the batch ends before the next tuple, which chooses a row again */
};

/* clock.c. Times are cycles of docs/machine.md, section 5. */
struct sim_clock
{
	struct sim_phase phase;
	bool on_page;	 /* the page has arrived and not ended */
	int32_t state;	 /* that the clocks are in, where only `last` is up to date; 0: all are */
	uint64_t pages, busy, merging, batches;
	uint64_t beats;	 /* of the unpacker */
	uint64_t waited; /* of it, for a half of tuple memory */
	int64_t turn;				  /* of the Strider's next instruction */
	int64_t takes[SIM_MAX_QUEUE]; /* take of the page's last entries */
	uint32_t pushes;			  /* entries of the page */
	int64_t take;				  /* of the last entry */
	int64_t at[SIM_MAX_STAGES];	  /* at of the last entries, as many as there are stages */
	int32_t stage;				  /* of `at`: the oldest */
	int64_t done;				  /* of the last entry */
	int64_t requested, last;	  /* request and last beat of the page before */
	int64_t released[SIM_MAX_STRIDERS];
	int64_t end_at;				  /* at of the last page's end */
	int64_t idle;				  /* the engine, after the rounds handed over */
	int64_t half_free[2];
	int64_t watched;   /* at of the last watched column */
	int64_t cut_known; /* when it is known that the tuple to come ends the batch; NEVER if it does not */
	int64_t ahead;	   /* when it is known where the tuple goes that went ahead; 0 if none did */
	bool moves;		   /* it begins a round */
	int64_t settled;   /* when the tuple before is where it stays */
	int64_t handed;	   /* when what was handed over for it was */
	int64_t stored;	 /* the round before, where there are tables in the record memory */
	int64_t ordered; /* cycles that ordered instructions of the round wait */
	struct sim_watch watch;
};

/* Of the tuples that pages have, those that are taken: not the next `skip`, then `take` */
struct sim_window
{
	bool narrow; /* else all are */
	uint64_t skip, take;
	uint64_t seen; /* taken or not */
};

/* Of the epoch whose cycles were counted, how many tuples there were before each page: shared.c */
struct sim_begun
{
	uint64_t *tuples; /* [room] */
	size_t pages, room;
	bool whole; /* every page is in it, and begins with a tuple */
};

/* What an epoch has come to */
struct sim_epoch
{
	struct sim_window window;
	uint64_t pages, tuples, skipped;
	struct sim_phase phase;
	float *slot;		  /* the tuple being filled: its first row, its thread's lanes */
	int32_t in_slot;	  /* tuples of its thread before it */
	bool open;			  /* a tuple has begun and not ended */
	uint32_t following;	  /* descriptor behind the last column's, where a tuple is open */
	uint32_t end_pointer; /* reported where the epoch ends in a tuple: of the last page's end */

	uint32_t fault, fault_page, fault_pointer;
	int32_t wrong; /* of an INDEX: the tuple's place among those of the round, by thread */

	int32_t named;		 /* records by the tuple to come */
	struct sim_watch watch; /* of the plain path: code takes no notice of batches that are cut */

	/* compiled.c */
	uint64_t joined;	   /* tuples of the batch that have */
	int32_t passed;		   /* tuples of the round that the first pass has run */
	uint64_t packed;	   /* columns of tuples that waited when their page went */
	float loss[2];		   /* sum over the epoch, and of its errors */
	bool joins_on;		   /* join.c: this part has no batch left, and others have */
	uint64_t shared;	   /* tuples that other simulators ran: shared.c */
};

/* Where the unpacker puts tuples: as the engine wants them, or one after the other */
struct sim_fill
{
	int32_t unit;	  /* floats from row to row */
	int32_t group;	  /* tuples of a thread */
	ptrdiff_t stride; /* floats from a tuple to its thread's next */
};

/* Merges of one machine, of its engine or its code, in the order in which parts exchange them */
struct sim_merges
{
	const struct sim_merge *merges;
	int32_t n, passes; /* passes over a batch behind the first */
	void (*copy)(struct sim *sim, const struct sim_merge *merge, float *numbers, bool back);
};

struct sim
{
	struct sim_machine machine;
	const struct sim_kernels *kernels;

	/* engine */
	int32_t lanes, unit; /* floats of a thread's row, of a row */
	int32_t group, tuple_rows, round_tuples, levels, level_stride;
	ptrdiff_t tuple_stride; /* floats from a tuple to its thread's next */
	uint32_t batch;
	bool overlaps; /* results are read before they are visible: pipeline.c */
	struct sim_code sections[SIM_SECTIONS];
	struct sim_instruction *program;
	uint32_t *masks; /* [lanes + 1][unit]: row t is all ones in the lanes below t */
	float *scratch;	 /* [scratch_depth][unit] */
	float *tuples;	 /* [2][group * tuple_rows][unit] */
	float *outbox;	 /* [group * tuple_rows][threads][lanes], where there are tables */
	float *rows;	 /* room for a few rows */
	ptrdiff_t *index; /* [threads][index_depth] */
	struct sim_pending *pending;

	/* access engine */
	struct sim_strider_instruction *strider;
	uint32_t registers[SIM_REGISTERS + 1]; /* the last one is zero: walk.c */
	struct sim_column *columns; /* [descriptor_depth] */
	bool watches;				/* there are watched columns: times depend on values */
	struct sim_order orders[SIM_MAX_ORDERS];
	int32_t n_orders;			/* times depend on values where there are some */
	struct sim_beginning beginning;
	struct sim_walk *walk;
	bool plain;					/* interpret every instruction */
	struct sim_records tables[SIM_MAX_TABLES + 1]; /* from 1 on */
	struct sim_values *held;	/* [n_held] */
	int32_t n_held;
	float *record;				/* room for one */
	int32_t named_columns;		/* watched columns, where there are tables; else 0 */
	int32_t fetched_rows, stored_rows; /* of a tuple's records */
	struct sim_named *named;	/* [round_tuples + 1][named_columns]: the last of the tuple to come */
	struct sim_journal *journal; /* while code is compared with the engine, or NULL */
	struct sim_clock clock;
	struct sim_memo *memo;		/* memo.c */

	struct sim_observer observer;	 /* what looks at the epoch, or zeros */
	bool trains;					 /* the epoch does */
	bool counts;					 /* and works its cycles out */
	bool counted;					 /* the epoch before trained, to its end: what `counters` says of it */
	struct sim_counters counters;
	bool again;						 /* the epoch repeats the pages of that one */
	struct sim_begun before;		 /* each of its pages */
	struct sim *const *helpers;		 /* [n_helpers]: simulators of the same Bundle and code, the caller's */
	int32_t n_helpers;
	struct sim_compiled compiled;	 /* what runs instead of the engine; state NULL: nothing */
	struct sim_join join;			 /* what joins its merges with those of other parts */
	const struct sim_merge *merges; /* [n_merges]: of the Bundle, if the machine pauses to have them joined */
	int32_t n_merges;
	int64_t pause;					 /* cycles of such a pause */
	float *parts;					 /* room for merges: this part's, then those of all */
	int64_t parts_size;				 /* floats */
	float *batched;					 /* tuples for it, one after the other: what does not lie on a page as it is read */
	float *numbers;					 /* [n_inputs][most + 1]: of those, inputs that are one number */
	const float **places;			 /* [most + 1][n_inputs]: where it reads them */
	const uint8_t *until;			 /* the end of the pages that have come */
	int32_t most;					 /* tuples that it takes at a time */
	float *unproved;				 /* room for a scratchpad, until it was compared with the engine */
	bool differs;					 /* it computed something else */
	bool spoilt;					 /* and changed records that no tuple named */
	bool fast;						 /* the epoch is run by it */
	bool ahead_of_scratch;			 /* its symbols are newer than the scratchpad's */
	struct sim_fill fill;
	bool loaded, begun;				 /* `begun`: init has run */
	struct sim_epoch e;
};

/* core.c */
void sim_clear(void *memory, size_t size);

/* engine.c */
bool sim_engine_prepare(struct sim *sim, const struct sim_bundle *bundle);
void sim_row_apply(const struct sim *sim, const struct sim_instruction *in, int32_t rows, float *d, const float *a,
				   const float *b);
void sim_engine_run(struct sim *sim, enum sim_section section, int32_t half, int32_t m, int32_t level);

/* pipeline.c */
bool sim_pipeline_prepare(struct sim *sim);
void sim_pipeline_settle(struct sim *sim, int64_t cycle);
void sim_pipeline_issue(struct sim *sim, const struct sim_instruction *in, float *d, const float *a, const float *b,
						int64_t cycle);

/* verify.c */
int32_t sim_interval(const struct sim *sim, const struct sim_instruction *in);
int32_t sim_latency(const struct sim *sim, const struct sim_instruction *in);
bool sim_verify(struct sim *sim, const struct sim_bundle *bundle, struct sim_problem *problem);

/* values.c */
bool sim_columns_prepare(struct sim *sim, const struct sim_bundle *bundle);
void sim_copy(const struct sim *sim, const struct sim_column *column, const uint8_t *page, const uint32_t *at,
			  uint32_t offset, int32_t tuples);

/* clock.c */
void sim_phase_open(const struct sim *sim, struct sim_phase *phase);
bool sim_phase_last(const struct sim *sim, const struct sim_phase *phase);
void sim_phase_next(const struct sim *sim, struct sim_phase *phase, bool batch_last);
bool sim_clock_prepare(struct sim *sim); /* memo.c, as the next one */
bool sim_orders_prepare(struct sim *sim, const struct sim_bundle *bundle);
void sim_clock_restore(struct sim *sim);
void sim_clock_pass(struct sim *sim, const struct sim_shape *shape, const uint8_t *page);
void sim_clock_begin(struct sim *sim);
void sim_phase_cut(struct sim_phase *phase);
void sim_clock_column(struct sim *sim, const struct sim_column *column, const uint8_t *from, int32_t gap);
void sim_clock_page_end(struct sim *sim, int32_t gap);
void sim_clock_page(struct sim *sim, const struct sim_shape *shape, const uint8_t *page);
uint64_t sim_clock_end(struct sim *sim);

/* records.c */
bool sim_records_prepare(struct sim *sim, const struct sim_bundle *bundle, float *const *held);
void sim_records_free(struct sim *sim);
bool sim_record_named(struct sim *sim, const struct sim_column *column, const uint8_t *from);
void sim_records_begin(struct sim *sim);
void sim_records_fetch(struct sim *sim, int32_t half, int32_t m);
bool sim_records_store(struct sim *sim, int32_t m);
bool sim_records_rows(struct sim *sim, int32_t table, int64_t row, int64_t count, uint32_t *words, bool write);
bool sim_journal_open(struct sim *sim, size_t pages);
void sim_journal_swap(struct sim *sim);
bool sim_journal_settle(struct sim *sim);
void sim_journal_free(struct sim *sim);

/* unpack.c */
bool sim_fault(struct sim *sim, uint32_t code, uint32_t pointer);
bool sim_engine_fault(struct sim *sim, uint32_t code, uint32_t pointer);
bool sim_column(struct sim *sim, const uint8_t *page, uint32_t descriptor, uint32_t address, int32_t gap,
				uint32_t pointer);
bool sim_tuples(struct sim *sim, const uint8_t *page, const struct sim_handed *handed, int32_t n_handed, int32_t row,
				int32_t count);
void sim_page_end(struct sim *sim, uint32_t pointer);
uint64_t sim_epoch_end(struct sim *sim);

/* rounds.c */
void sim_epoch_begin(struct sim *sim);
bool sim_round(struct sim *sim, bool batch_last, bool epoch_last);
struct sim_merges sim_round_merges(const struct sim *sim);

/* compiled.c */
void sim_choose_path(struct sim *sim, bool fast);
int32_t sim_compiled_in_row(const struct sim *sim, const struct sim_compiled_symbol *symbol);
int32_t sim_compiled_of_vector(const struct sim *sim, const struct sim_compiled_symbol *symbol);
void sim_compiled_give_row(const struct sim *sim, const struct sim_compiled_symbol *symbol, int32_t row, int32_t n, float *to);
void sim_compiled_end_losses(struct sim *sim);
int32_t sim_partner_bit(const struct sim *sim, const struct sim_instruction *in);
void sim_compiled_prove(struct sim *sim, const uint8_t *pages, size_t n_pages);
void sim_compiled_begin(struct sim *sim);
bool sim_compiled_run(struct sim *sim, bool epoch_last);
struct sim_merges sim_compiled_merges(const struct sim *sim);
void sim_compiled_end(struct sim *sim);
void sim_compiled_settle(struct sim *sim);
void sim_compiled_open(struct sim *sim);
void sim_compiled_give(const struct sim *sim, int32_t row, int32_t count, int32_t lanes, float *rows);
void sim_compiled_keep(struct sim *sim, const uint8_t *pages);

/* join.c */
void sim_join_merge(int32_t op, int64_t size, const float *first, const float *second, float *to);
bool sim_join_pass(struct sim *sim, const struct sim_merges *of, int32_t pass, bool epoch_last);
bool sim_join_others(struct sim *sim, const struct sim_merges *of);

/* shared.c */
void sim_note_page(struct sim *sim);
bool sim_share_pages(struct sim *sim, const uint8_t *pages, size_t n_pages);

/* strider.c */
bool sim_strider_prepare(struct sim *sim, const struct sim_bundle *bundle);
bool sim_page(struct sim *sim, const uint8_t *page);

/* Which section a round of m tuples runs: the shortest that has room for it */
static inline enum sim_section
sim_tuple_section(const struct sim *sim, int32_t m)
{
	for (int32_t s = SIM_TUPLE_1, room = 1; s <= SIM_TUPLE_32; s++, room *= 2)
		if (m <= room && sim->sections[s].cycles != 0)
			return (enum sim_section)s;
	return SIM_TUPLE;
}

#endif
