/*
 * Rules: table dana.rule.
 */
#ifndef DANA_RULES_H
#define DANA_RULES_H

/* Text of a rule, in the current memory context; an error where there is none */
extern char *dana_rule_text(const char *name);

#endif /* DANA_RULES_H */
