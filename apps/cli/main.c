// tern: the commands, and help on them.
#include "cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const command cli_commands[] = {
    {"run", "-m MODEL -p TEXT [options]", "complete a text", cmd_run},
    {"chat", "-m MODEL [options]", "talk with a model", cmd_chat},
    {"inspect", "MODEL [options]", "metadata, tensors, bits per weight, bytes per token",
     cmd_inspect},
    {"graph", "MODEL [options]", "the graph after each pass and the plan of its buffers",
     cmd_graph},
    {"tokenize", "-m MODEL [options] < TEXT", "text to token ids", cmd_tokenize},
    {"detokenize", "-m MODEL [options] < IDS", "token ids to text", cmd_detokenize},
    {"logits", "-m MODEL --ids FILE -o FILE [options]", "scores of every next token", cmd_logits},
    {"convert", "IN OUT [options]", "GGUF or Hugging Face folder to GGUF or safetensors",
     cmd_convert},
    {"bench", "-m MODEL [options]", "speed beside what the machine can do", cmd_bench},
    {"diagnose", "[-m MODEL] [options]", "is the device sound, and right with a model?",
     cmd_diagnose},
    {"data", "tokenizer|build|inspect ...", "text to train on: a vocabulary, shards of tokens",
     cmd_data},
    {"train", "--data DIR -o DIR [options] | plot LOG... -o FILE",
     "train a model from shards of text", cmd_train},
    {"eval", "ppl|choice|paper [options]", "perplexity, multiple choice, and what the paper says",
     cmd_eval},
    {"mine", "-m MODEL [SHARD|FOLDER...] [options]",
     "chains of tokens for speculation, from shards of text or the model's own", cmd_mine},
    {0},
};

static int complain(int status, const char *format, va_list args) {
    char *line = NULL; // of any length: a name in it may be
    if (vasprintf(&line, format, args) < 0) {
        fprintf(stderr, "tern: out of memory\n");
        return status;
    }
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127) *c = '?'; // one line, and no terminal codes
    fprintf(stderr, "tern: %s\n", line);
    free(line);
    return status;
}

int fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = complain(EXIT_FAILED, format, args);
    va_end(args);
    return status;
}

int bad_usage(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = complain(EXIT_USAGE, format, args);
    va_end(args);
    return status;
}

int exit_status(tern_status status, const tern_error *err) {
    return status == TERN_OK || ferror(stdout) ? EXIT_OK : fail("%s", err->message);
}

static const command *find_command(const char *name) {
    for (const command *c = cli_commands; c->name; c++)
        if (strcmp(c->name, name) == 0) return c;
    return NULL;
}

static int print_commands(FILE *f) {
    fprintf(f, "usage: tern COMMAND [options]\n\n");
    for (const command *c = cli_commands; c->name; c++)
        fprintf(f, "  %-12s %s\n", c->name, c->summary);
    fprintf(f, "\n`tern COMMAND --help` lists a command's options, `man tern` tells more.\n");
    return f == stdout ? EXIT_OK : EXIT_USAGE;
}

static int help(int argc, char **argv) {
    if (argc < 3) return print_commands(stdout);
    const command *c = find_command(argv[2]);
    if (!c) return bad_usage("there is no command '%s' (tern help lists them)", argv[2]);
    char *ask[] = {argv[2], (char[]){"--help"}, NULL};
    return c->run(c, 2, ask);
}

int main(int argc, char **argv) {
    signal(SIGXFSZ, SIG_IGN); // a limit on file sizes is then a failing write, as a full disk is
    if (argc < 2) return print_commands(stderr);
    const char *name = argv[1];
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        printf("tern %s\n", tern_version());
        return close_out(EXIT_OK);
    }
    if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h"))
        return close_out(help(argc, argv));
    const command *c = find_command(name);
    if (!c) return bad_usage("there is no command '%s' (tern help lists them)", name);
    return close_out(c->run(c, argc - 1, argv + 1));
}
