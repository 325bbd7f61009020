/*
 * Reports on a training's data; `hint` may be NULL.
 */
#pragma once

/* Holds messages back; then reports them or drops them */
extern void dana_notices_hold(void);
extern void dana_notices_let_go(bool report);
extern void dana_notice(int level, const char *hint, const char *format, ...) pg_attribute_printf(3, 4);
/* Takes reports elsewhere, while it is set */
extern void (*dana_notices_to)(int level, const char *hint, const char *message);
extern void dana_notices_merge(void); /* report each message once for the rest of the statement */
extern void dana_notices_about(const char *model); /* messages that follow concern one of many models; NULL: no more */
extern void dana_notices_keep(void);  /* in this process, which runs a job */
extern Datum dana_notices_kept(void); /* text[] */
