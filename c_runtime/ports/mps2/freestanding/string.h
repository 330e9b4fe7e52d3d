/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of <string.h> that a firmware needs, for toolchains without a C library; start.c defines them.
 */
#ifndef MEGCC_FREESTANDING_STRING_H
#define MEGCC_FREESTANDING_STRING_H

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *one, const void *other, size_t bytes);
size_t strlen(const char *text);

#endif
