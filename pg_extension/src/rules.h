/*
 * Rules: table dana.rule.
 */
#pragma once

/* Text of a rule, in the current memory context; an error where there is none */
extern char *dana_rule_text(const char *name);
