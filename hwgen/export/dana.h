/* Driver of a board in C99: no allocation, no library, no operating system, one board per struct dana.
 *
 * `registers` is the AXI4-Lite slave, mapped as device memory, DANA_APERTURE bytes of it. Pages lie in memory that the
 * board's m_axi reads; the caller puts them there, and cleans its cache where the memory is not coherent. A board with
 * DANA_BUSES buses, m_axi, m_axi_1 ..., takes DANA_BUS_BYTES of each DANA_CONFIG_LINK_BYTES bytes of a page from each:
 * with two, bytes 0 to 127, 256 to 383 ... lie one behind the other from `base` on, all others from `base + part` on.
 *
 *   struct dana board = {.registers = mapped};
 *   if (dana_identify(&board) == DANA_OK && dana_load(&board, load_hex, load_hex_size) == DANA_OK) {
 *     dana_start(&board, &(struct dana_training){.pages = n, .epochs = 10, .base = address});
 *     while ((result = dana_poll(&board)) == DANA_BUSY) { ... }
 *     dana_read(&board, DANA_MODEL_w, w, DANA_MODEL_w_WORDS);
 *   }
 */
#ifndef DANA_DRIVER_H
#define DANA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "../registers.h"

enum dana_result {
  DANA_OK,        /* done; of dana_poll: all epochs were run, or the convergence test held */
  DANA_BUSY,      /* of dana_poll: the training goes on */
  DANA_OTHER,     /* no board of this package answers there: another identity or another machine */
  DANA_TEXT,      /* of dana_load: the text is not lines of an address and a word, 8 hexadecimal digits each */
  DANA_FAULT,     /* the data or the bus stopped the training: dana_fault, and load again */
  DANA_STOPPED,   /* by dana_stop */
  DANA_SILENT,    /* a memory has not answered for BUS_TIMEOUT cycles; if it never will: dana_stop, then reset both */
  DANA_NOT_READY  /* of dana_start: it trains, or answers of memories are outstanding, or there are no pages */
};

struct dana {
  volatile uint32_t *registers;
};

struct dana_training {
  uint32_t pages;   /* of an epoch */
  uint32_t epochs;  /* at most */
  uint64_t base;    /* of the first slot on m_axi, a multiple of DANA_CONFIG_PAGE_SIZE */
  uint64_t part;    /* with several buses: bytes from that on one bus to that on the next, such a multiple, too */
  uint32_t slots;   /* for a table that streams: pages that the memory has room for, 2 or more; 0: all are there */
};

struct dana_fault {
  uint32_t code;     /* DANA_FAULT_... */
  uint32_t page;     /* of the epoch */
  uint32_t pointer;  /* page address of the line pointer; of DANA_FAULT_BUS it means nothing */
};

/* Whether the board is the one of this package; of a machine of the same shape clock and memory may differ. */
enum dana_result dana_identify(const struct dana *board);

/* Stop what it does, and write the pairs of a text such as images/load.hex. */
enum dana_result dana_load(const struct dana *board, const char *text, size_t length);

/* Train on pages from the model that is there; the board raises its interrupt at the end. */
enum dana_result dana_start(const struct dana *board, const struct dana_training *training);

/* How it stands; clears the interrupt where the training has ended. */
enum dana_result dana_poll(const struct dana *board);

/* For a table that streams: pages that are in their slots since the start. Page k belongs into slot k mod slots, once
 * dana_pages_read() > k - slots. Never all ones but for the last page. */
void dana_offer(const struct dana *board, uint32_t pages);
uint32_t dana_pages_read(const struct dana *board);

/* Stop the training and wait until the board is idle. */
void dana_stop(const struct dana *board);

uint32_t dana_epochs(const struct dana *board);            /* epochs that came to their end */
uint64_t dana_cycles(const struct dana *board);            /* of the training */
float dana_loss(const struct dana *board, uint32_t epoch); /* sum over the epoch, one of the last 1,024 */
struct dana_fault dana_fault(const struct dana *board);

/* Values between trainings, at addresses of registers.h: a word is a binary32. */
void dana_read(const struct dana *board, uint32_t address, float *values, size_t count);
void dana_write(const struct dana *board, uint32_t address, const float *values, size_t count);

#endif
