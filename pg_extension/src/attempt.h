/*
 * Work whose error somebody else decides about.
 */
#pragma once

/*
 * Runs in a subtransaction, in the caller's memory context and for its resource owner. Returns the error that ended it, or
 * NULL. What an attempt wrote stays only if it had no error and `keep` is set. The caller raises errors that are not its
 * own again, with ReThrowError().
 */
extern ErrorData *dana_attempt(void (*run)(void *state), void *state, bool keep);
