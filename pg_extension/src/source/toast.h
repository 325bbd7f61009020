/*
 * Values stored out of line, read in the order of their chunks.
 */
#pragma once

typedef struct dana_toast dana_toast;

/* A reader; it opens a TOAST table when a value needs it, and keeps the last one open */
extern dana_toast *dana_toast_begin(void);

/* A varlena value in line, perhaps still compressed, in the current memory context; or as it was given */
extern Datum dana_toast_fetch(dana_toast *reader, Datum value);

/* Closes what is open; after an error the transaction's end does */
extern void dana_toast_end(dana_toast *reader);
