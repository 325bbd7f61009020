/* Driver of a board: see dana.h. Another way to its registers than a pointer is put into these macros. */
#include "dana.h"

#ifndef DANA_READ32
#define DANA_READ32(board, address) ((board)->registers[(address) / 4])
#define DANA_WRITE32(board, address, word) ((void)((board)->registers[(address) / 4] = (word)))
#endif

enum { DIGITS = 8 };

union number {
  uint32_t word;
  float value;
};

static const uint32_t machine[][2] = {DANA_MACHINE};
static const uint32_t bases[] = {DANA_PAGE_BASES};

static uint64_t get64(const struct dana *board, uint32_t address) {
  uint32_t high = DANA_READ32(board, address + 4), low, again;
  /* a counter that runs: the halves belong together where the upper one stands still */
  for (;;) {
    low = DANA_READ32(board, address);
    again = DANA_READ32(board, address + 4);
    if (again == high) return (uint64_t)high << 32 | low;
    high = again;
  }
}

enum dana_result dana_identify(const struct dana *board) {
  size_t k;
  if (DANA_READ32(board, DANA_ID) != DANA_IDENTITY_MACHINE || DANA_READ32(board, DANA_BOARD_ID) != DANA_IDENTITY_BOARD)
    return DANA_OTHER;
  for (k = 0; k < sizeof machine / sizeof machine[0]; k++)
    if (DANA_READ32(board, machine[k][0]) != machine[k][1]) return DANA_OTHER;
  return DANA_OK;
}

/* The next 8 digits; -1 where there are none. */
static int number(const char *text, uint32_t *value) {
  int k;
  for (*value = 0, k = 0; k < DIGITS; k++) {
    char c = text[k];
    uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                            : 16;
    if (digit == 16) return -1;
    *value = *value << 4 | digit;
  }
  return 0;
}

enum dana_result dana_load(const struct dana *board, const char *text, size_t length) {
  const char *end = text + length;
  uint32_t address, word;
  dana_stop(board);
  while (text < end) {
    if (*text == '\n' || *text == '\r') {
      text++;
    } else if (end - text < 2 * DIGITS || number(text, &address) || number(text + DIGITS, &word)) {
      return DANA_TEXT;
    } else {
      DANA_WRITE32(board, address, word);
      text += 2 * DIGITS;
    }
  }
  return DANA_OK;
}

enum dana_result dana_start(const struct dana *board, const struct dana_training *training) {
  uint64_t base = training->base;
  size_t k;
  if (DANA_READ32(board, DANA_BOARD_STATUS) & (DANA_STATUS_BUSY | DANA_STATUS_UNANSWERED) || !training->pages)
    return DANA_NOT_READY;
  DANA_WRITE32(board, DANA_PAGES, training->pages);
  DANA_WRITE32(board, DANA_BOARD_EPOCHS, training->epochs);
  DANA_WRITE32(board, DANA_BOARD_SLOTS, training->slots ? training->slots : training->pages);
  for (k = 0; k < DANA_BUSES; k++, base += training->part) {
    DANA_WRITE32(board, bases[k], (uint32_t)base);
    DANA_WRITE32(board, bases[k] + 4, (uint32_t)(base >> 32));
  }
  DANA_WRITE32(board, DANA_BOARD_PAGES_READY, training->slots ? 0 : DANA_ENDLESS);
  DANA_WRITE32(board, DANA_BOARD_LOSS_AT, DANA_LOSS_WORD);
  DANA_WRITE32(board, DANA_BOARD_CONVERGENCE_AT, DANA_CONVERGENCE_WORD);
  DANA_WRITE32(board, DANA_BOARD_INTERRUPT, 1);
  DANA_WRITE32(board, DANA_BOARD_INTERRUPT_ENABLE, 1);
  DANA_WRITE32(board, DANA_BOARD_COMMAND, DANA_COMMAND_TRAIN);
  return DANA_OK;
}

enum dana_result dana_poll(const struct dana *board) {
  uint32_t status = DANA_READ32(board, DANA_BOARD_STATUS);
  if (status & DANA_STATUS_UNANSWERED) return DANA_SILENT;
  if (status & DANA_STATUS_BUSY) return DANA_BUSY;
  DANA_WRITE32(board, DANA_BOARD_INTERRUPT, 1);
  if (status >> 8 & 0xff) return DANA_FAULT;
  return status & DANA_STATUS_STOPPED ? DANA_STOPPED : DANA_OK;
}

void dana_offer(const struct dana *board, uint32_t pages) { DANA_WRITE32(board, DANA_BOARD_PAGES_READY, pages); }

uint32_t dana_pages_read(const struct dana *board) { return DANA_READ32(board, DANA_BOARD_PAGES_READ); }

void dana_stop(const struct dana *board) {
  DANA_WRITE32(board, DANA_BOARD_COMMAND, DANA_COMMAND_STOP);
  while (DANA_READ32(board, DANA_BOARD_STATUS) & DANA_STATUS_BUSY) {
  }
}

uint32_t dana_epochs(const struct dana *board) { return DANA_READ32(board, DANA_BOARD_EPOCHS_RUN); }

uint64_t dana_cycles(const struct dana *board) { return get64(board, DANA_BOARD_CYCLES); }

float dana_loss(const struct dana *board, uint32_t epoch) {
  float value;
  dana_read(board, DANA_REGION_LOSSES + 4 * (epoch % DANA_LOSSES), &value, 1);
  return value;
}

struct dana_fault dana_fault(const struct dana *board) {
  struct dana_fault found;
  found.code = DANA_READ32(board, DANA_BOARD_STATUS) >> 8 & 0xff;
  found.page = DANA_READ32(board, found.code == DANA_FAULT_BUS ? DANA_BOARD_FAILED_PAGE : DANA_FAULT_PAGE);
  found.pointer = DANA_READ32(board, DANA_FAULT_POINTER);
  return found;
}

void dana_read(const struct dana *board, uint32_t address, float *values, size_t count) {
  size_t k;
  for (k = 0; k < count; k++) {
    union number found;
    found.word = DANA_READ32(board, address + 4 * (uint32_t)k);
    values[k] = found.value;
  }
}

void dana_write(const struct dana *board, uint32_t address, const float *values, size_t count) {
  size_t k;
  for (k = 0; k < count; k++) {
    union number given;
    given.value = values[k];
    DANA_WRITE32(board, address + 4 * (uint32_t)k, given.word);
  }
}
