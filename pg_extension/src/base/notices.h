/*
 * What is reported about a training's data; `hint` may be NULL.
 */
#pragma once

/* Holds what is told back, and then tells it or forgets it */
extern void dana_notices_hold(void);
extern void dana_notices_let_go(bool tell);
extern void dana_notice(int level, const char *hint, const char *format, ...) pg_attribute_printf(3, 4);
extern void dana_notices_merge(void); /* for the rest of the statement each thing comes once */
extern void dana_notices_about(const char *model); /* what follows is of one of many; NULL: no longer */
extern void dana_notices_keep(void);  /* in this process, which is a job's */
extern Datum dana_notices_kept(void); /* text[] */
