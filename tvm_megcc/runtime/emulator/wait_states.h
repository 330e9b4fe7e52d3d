/* SPDX-License-Identifier: Apache-2.0
 *
 * What counting.c asks the model of slow flash in wait_states.c.
 */
#ifndef WAIT_STATES_H
#define WAIT_STATES_H
#include <stdint.h>

#define FAST 0x80 /* of a byte of the file of costs: the instruction is in memory without wait states */

/* The modelled cycles since the start. */
extern uint64_t wait_states_clock;

/* Reads an option of the plugin, such as "flash=0:400000:8:5:5:1". Returns 0 for any that is not of the model. */
int wait_states_option(const char *option);
/* Whether there is a model: its options were given. */
int wait_states_modelled(void);
/* The modelled cycles of the instruction at an address, without waiting. */
unsigned wait_states_cost(uint64_t address);
/* The flash's word that an address is in; UINT64_MAX: memory without wait states. */
uint64_t wait_states_word(uint64_t address);
/* The core executes an instruction of a word, or loads `bytes` bytes. Returns the cycles that it waits. */
uint64_t wait_states_fetched(uint64_t word);
uint64_t wait_states_loaded(uint64_t address, unsigned bytes);
#endif
