/* A sink for tests: counts pages and LP_NORMAL line pointers, at a chosen speed. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define PAGE 8192

struct tally
{
	uint64_t pages;
	uint64_t tuples;
	uint64_t checksum;
	uint64_t delay_ns; /* slept for each page */
	uint64_t fail_at;  /* page at which to fail; 0: never */
};

int
tally(void *context, const uint8_t *pages, size_t n)
{
	struct tally *t = context;

	for (size_t i = 0; i < n; i++)
	{
		const uint8_t *page = pages + i * PAGE;
		uint16_t lower;

		memcpy(&lower, page + 12, sizeof lower);
		for (size_t at = 24; at + 4 <= lower && at + 4 <= PAGE; at += 4)
		{
			uint32_t item;

			memcpy(&item, page + at, sizeof item);
			t->tuples += (item >> 15 & 3) == 1;
		}
		for (size_t at = 0; at < PAGE; at += 8)
		{
			uint64_t word;

			memcpy(&word, page + at, sizeof word);
			t->checksum += word;
		}
		t->pages++;
		if (t->delay_ns > 0)
		{
			struct timespec pause = {(time_t)(t->delay_ns / 1000000000u), (long)(t->delay_ns % 1000000000u)};

			nanosleep(&pause, NULL);
		}
		if (t->fail_at != 0 && t->pages == t->fail_at)
			return 7;
	}
	return 0;
}
