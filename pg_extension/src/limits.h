/*
 * Settings that bound what a training may use.
 */
#ifndef DANA_LIMITS_H
#define DANA_LIMITS_H

extern int dana_max_epochs;

#endif /* DANA_LIMITS_H */
