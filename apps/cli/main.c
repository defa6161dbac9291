// tern: the commands, and their help.
#include "apps/cli/console/cli.h"

#include <stdlib.h>
#include <string.h>
#include "apps/system/system.h"

const command cli_commands[] = {
    {"run", "MODEL [TEXT] [options]", "complete a text; without one: talk", cmd_run, NULL},
    {"chat", "MODEL [options]", "talk with a model", cmd_chat, NULL},
    {"serve", "[MODEL...] [options]", "answer programs over HTTP, as OpenAI and others do",
     cmd_serve, NULL},
    {"mcp", "[MODEL...] [--memory DIR] [options]",
     "tools for a program that starts it and speaks the Model Context Protocol", cmd_mcp, NULL},
    {"pull", "NAME | hf:OWNER/NAME[/FILE][:TYPE][@REVISION] | --list [options]",
     "bring a model from a hub", cmd_pull, NULL},
    {"list", "[options]", "the models that are here", cmd_list, NULL},
    {"show", "NAME [options]", "what a model is", cmd_show, NULL},
    {"ps", "[options]", "the models that a running server has in memory", cmd_ps, NULL},
    {"rm", "NAME... [options]", "remove models", cmd_rm, NULL},
    {"inspect", "MODEL [options]", "metadata, tensors, bits per weight, bytes per token",
     cmd_inspect, NULL},
    {"graph", "MODEL [options]", "the graph after each pass and the plan of its buffers", cmd_graph,
     NULL},
    {"compute", "MODEL [--graph NAME] [--in NAME=FILE --out NAME=FILE ...] [options]",
     "one of a model's graphs on arrays; without --in: what it takes and makes", cmd_compute, NULL},
    {"embed", "MODEL [TEXT... | -f FILE] [options] | --rerank QUERY | --similarity A B",
     "vectors of texts, and how similar they are", cmd_embed, NULL},
    {"classify", "MODEL IMAGE... [--top N] [--labels FILE] [--json] [options]", "what images show",
     cmd_classify, NULL},
    {"transcribe", "MODEL FILE... [--json | --srt | --vtt] [options]", "transcribe recordings",
     cmd_transcribe, NULL},
    {"speak", "MODEL --codec MODEL [TEXT] -o FILE [options]", "say a text", cmd_speak, NULL},
    {"memory", "add|recall|list|show|forget|import|export|stats|compact|rules ...",
     "texts that are found by what they say", NULL, memory_jobs},
    {"ask", "MODEL QUESTION --memory DIR [options]", "answer from a memory, and say from where",
     cmd_ask, NULL},
    {"agent", "MODEL TASK [--tool FILE ...] [--mcp SERVER ...] [options]",
     "do a task with tools: programs, MCP servers, files", cmd_agent, NULL},
    {"tokenize", "MODEL [TEXT] [options]", "text to token ids", cmd_tokenize, NULL},
    {"detokenize", "MODEL [IDS] [options]", "token ids to text", cmd_detokenize, NULL},
    {"logits", "MODEL --ids FILE -o FILE [options]", "scores of every next token", cmd_logits,
     NULL},
    {"convert", "IN OUT [options]", "GGUF or Hugging Face folder to GGUF or safetensors",
     cmd_convert, NULL},
    {"imatrix", "MODEL -f TEXT [options]", "which columns of weights matter, for convert",
     cmd_imatrix, NULL},
    {"bench", "MODEL [options]", "speed compared with what the machine can do", cmd_bench, NULL},
    {"diagnose", "[MODEL] [options]", "is the device sound, and right with a model?", cmd_diagnose,
     NULL},
    {"data", "tokenizer|build|inspect ...", "text to train on: a vocabulary, shards of tokens",
     NULL, data_jobs},
    {"datagen", "MODEL -p PROMPT [--seeds FILE] [-o FILE] [options]",
     "text to train on that a model writes: prompts from a template, answers that pass",
     cmd_datagen, NULL},
    {"train", "--data DIR -o DIR [options] | plot LOG... -o FILE",
     "train a model from shards of text", cmd_train, train_jobs},
    {"ternarize", "MODEL -o FILE --data TEXT... [options]",
     "make a float model ternary, and say what that costs", cmd_ternarize, NULL},
    {"eval", "ppl|choice|paper [options]", "perplexity, multiple choice, and what the paper says",
     NULL, eval_jobs},
    {"mine", "MODEL [SHARD|FOLDER...] [options]",
     "chains of tokens for speculation, from shards of text or the model's own", cmd_mine, NULL},
    {0},
};

static const command *find_command(const char *name) {
    for (const command *c = cli_commands; c->name; c++)
        if (strcmp(c->name, name) == 0) return c;
    return NULL;
}

// Finds a command's job by the second word.
static const command *find_job(const command *c, const char *word) {
    for (const command *j = c->jobs; j && j->name; j++)
        if (strcmp(strchr(j->name, ' ') + 1, word) == 0) return j;
    return NULL;
}

static int no_command(const char *name) {
    guess g = {.word = name, .length = strlen(name)};
    for (const command *c = cli_commands; c->name; c++) guess_try(&g, c->name);
    return bad_usage("there is no command '%s' (%stern help lists them)", name,
                     guess_text(&g, "tern "));
}

static int print_commands(FILE *f) {
    fprintf(f, "usage: tern COMMAND [options]\n\n");
    for (const command *c = cli_commands; c->name; c++)
        fprintf(f, "  %-12s %s\n", c->name, c->summary);
    fprintf(f, "\n`tern COMMAND --help` lists a command's options, `tern help --all` all of them,\n"
               "docs/cli.md and, once installed, `man tern` tell more.\n");
    return f == stdout ? EXIT_OK : EXIT_USAGE;
}

static int print_jobs(const command *c) {
    printf("usage: tern %s %s\n\n%s\n\n", c->name, c->usage, c->summary);
    for (const command *j = c->jobs; j->name; j++)
        printf("  tern %s %s\n      %s\n", j->name, j->usage, j->summary);
    printf("\n`tern %s %s --help` lists a job's options, and so on.\n", c->name,
           strchr(c->jobs->name, ' ') + 1);
    return EXIT_OK;
}

// argv[0] is the command's name.
static int run_command(const command *c, int argc, char **argv) {
    const command *job = argc > 1 ? find_job(c, argv[1]) : NULL;
    if (job) return job->run(job, argc - 1, argv + 1);
    if (c->run) return c->run(c, argc, argv);
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) return print_jobs(c);
    if (argc > 1 && argv[1][0] == '-')
        return bad_usage("%s: unknown option '%s' (usage: tern %s %s)", c->name, argv[1], c->name,
                         c->usage);
    if (argc < 2)
        return bad_usage("%s: which job? (usage: tern %s %s)", c->name, c->name, c->usage);
    guess g = {.word = argv[1], .length = strlen(argv[1])};
    for (const command *j = c->jobs; j->name; j++) guess_try(&g, strchr(j->name, ' ') + 1);
    return bad_usage("%s: there is no job '%s' (%susage: tern %s %s)", c->name, argv[1],
                     guess_text(&g, ""), c->name, c->usage);
}

static int ask_help(const command *c, const char *form) {
    char name[32], word[16];
    snprintf(name, sizeof name, "%s", c->name);
    snprintf(word, sizeof word, "--help%s", form);
    char *ask[] = {name, word, NULL};
    return c->run ? c->run(c, 2, ask) : EXIT_OK;
}

// Prints the options of every command and job: as in --help, or as lines for programs.
static int help_all(bool tsv) {
    const char *form = tsv ? "=tsv" : "";
    for (const command *c = cli_commands; c->name; c++) {
        ask_help(c, form);
        if (!tsv && c->run) putchar('\n');
        for (const command *j = c->jobs; j && j->name; j++) {
            ask_help(j, form);
            if (!tsv) putchar('\n');
        }
    }
    return EXIT_OK;
}

static int help(int argc, char **argv) {
    if (argc < 3) return print_commands(stdout);
    if (!strcmp(argv[2], "--all")) return help_all(argc > 3 && !strcmp(argv[3], "--tsv"));
    const command *c = find_command(argv[2]);
    if (!c) return no_command(argv[2]);
    const command *job = argc > 3 ? find_job(c, argv[3]) : NULL;
    return job ? ask_help(job, "") : c->jobs && !c->run ? print_jobs(c) : ask_help(c, "");
}

int main(int argc, char **argv) {
    system_begin();
    if (argc < 2) return print_commands(stderr);
    const char *name = argv[1];
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        printf("tern %s (ABI %d)\n", tern_version(), tern_abi_version());
        return close_out(EXIT_OK);
    }
    if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h"))
        return close_out(help(argc, argv));
    const command *c = find_command(name);
    if (!c) return no_command(name);
    return close_out(run_command(c, argc - 1, argv + 1));
}
