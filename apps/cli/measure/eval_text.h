// tern eval: what its parts share.
#ifndef TERN_CLI_EVAL_TEXT_H
#define TERN_CLI_EVAL_TEXT_H

#include "apps/cli/console/cli.h"
#include "tern_tools.h"

enum { OUTPUT_MD, OUTPUT_JSON };
#define OUTPUT_OPTION(o)                                                                           \
    { 'o', "output", OPTION_CHOICE, &(o), "md|json", "how it is printed" }
void print_value(double x); // a cell of a table

int eval_ppl(const command *self, int argc, char **argv);
int eval_compare(const command *self, int argc, char **argv);

#endif
