/*
 * Roles.
 */
#pragma once

/* an error if there is no such role */
extern void dana_require_role(Oid role);
