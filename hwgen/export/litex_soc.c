/* The program of litex_soc.py: loads the board, trains on the pages in the SoC's memory, and compares. */
#include "dana.c"
#include "soc.h" /* written by litex_soc.py: addresses, the texts load, writes, expected, and what records must be */

enum { LINE = 2 * DIGITS + 1, END = 1, WRONG, COMPARED, STOPPED, WRONG_RECORD };

enum { ROW_WORDS = sizeof records[0] / sizeof records[0][0] / 2 };

static const struct dana board = {(volatile uint32_t *)SOC_BOARD};

__attribute__((naked, section(".start"))) void start(void) { __asm__("li sp, %0\nj train" ::"i"(SOC_STACK_END)); }

static void put(uint32_t kind, uint32_t value) { *(volatile uint32_t *)SOC_REPORT = kind << 28 | value; }

static void end(void) {
  put(END, 0);
  for (;;) {
  }
}

static void must_be_done(enum dana_result result) {
  if (result != DANA_OK) {
    put(STOPPED, result);
    end();
  }
}

static void pair(const char *line, uint32_t *address, uint32_t *word) {
  must_be_done(number(line, address) || number(line + DIGITS, word) ? DANA_TEXT : DANA_OK);
}

void train(void) {
  const char *line;
  uint32_t address, word, compared = 0, row, lane, bus;
  must_be_done(dana_identify(&board));
  must_be_done(dana_load(&board, load, sizeof load - 1));
  /* the last of these writes starts the training; the testbench's pages are elsewhere */
  for (line = writes; line < writes + sizeof writes - 1; line += LINE) {
    pair(line, &address, &word);
    for (bus = 0; bus < DANA_BUSES; bus++) {
      if (address == bases[bus]) word = SOC_MEMORY + bus * SOC_PART;
      if (address == bases[bus] + 4) word = 0;
    }
    DANA_WRITE32(&board, address, word);
  }
  while (!*(volatile uint32_t *)SOC_INTERRUPT) {
  }
  must_be_done(dana_poll(&board));
  if (*(volatile uint32_t *)SOC_INTERRUPT) must_be_done(DANA_BUSY);
  for (line = expected; line < expected + sizeof expected - 1; line += LINE, compared++) {
    pair(line, &address, &word);
    if (DANA_READ32(&board, address) != word) put(WRONG, compared);
  }
  for (row = 0; row < RECORD_ROWS; row++) {
    const uint32_t *must = records[row] + 1, *held = must + ROW_WORDS;
    const volatile uint32_t *is = (const volatile uint32_t *)SOC_RECORDS + ROW_WORDS * records[row][0];
    for (lane = 0; lane < ROW_WORDS; lane++) {
      if ((is[lane] ^ must[lane]) & held[lane]) put(WRONG_RECORD, row);
    }
  }
  put(COMPARED, compared + RECORD_ROWS);
  end();
}
