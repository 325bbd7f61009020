/*
 * Rules: table dana.rule.
 */
#pragma once

/* a rule, in the current memory context; an error if it does not exist */
typedef struct dana_rule
{
	char  *text;
	Jsonb *description; /* the worker's description of its models, inputs and outputs */
} dana_rule;

extern dana_rule dana_rule_read(const char *name);

/* The rule with a text, which the worker checks; it need not be registered */
extern dana_rule dana_rule_check(char *text);
