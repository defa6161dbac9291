// tern convert: between model files.
#include "apps/cli/console/cli.h"
#include "tern_tools.h"

#include <ctype.h>
#include <string.h>

// The names of all types, after a text that introduces them.
typedef struct type_list {
    char text[600];
} type_list;

static type_list list_types(const char *before) {
    type_list list;
    size_t n = (size_t)snprintf(list.text, sizeof list.text, "%s", before);
    for (int type = 1; strcmp(tern_type_name((tern_type)type), "auto") != 0; type++) {
        char *name = list.text + n;
        n += (size_t)snprintf(name, sizeof list.text - n, "%s%s", type > 1 ? ", " : "",
                              tern_type_name((tern_type)type));
        for (; *name; name++) *name = (char)tolower((unsigned char)*name);
    }
    return list;
}

static bool read_type(const char *where, const char *name, tern_type *out) {
    *out = name ? tern_type_from_name(name) : TERN_TYPE_AUTO;
    if (!name || *out != TERN_TYPE_AUTO || !strcmp(name, "auto")) return true;
    bad_usage("convert: --%s '%s': expected %s", where, name, list_types("").text);
    return false;
}

static void show_note(void *user, const char *note) {
    (void)user;
    end_progress();
    fputs("note: ", stderr), put_plain(stderr, note), fputc('\n', stderr);
}

int cmd_convert(const command *self, int argc, char **argv) {
    const char *in = NULL, *out = NULL, *type = NULL, *head_type = NULL;
    tern_convert_desc desc = {0};
    tern_error err = {0};
    string_list loras = {0};
    int status, n;
    const type_list types =
        list_types("of the weight matrices (ternary ones: i2_s; others: as they are): ");
    const option options[] = {
        {'m', "model", OPTION_TEXT, &in, "IN", "a .gguf file, a Hugging Face folder or a name",
         .position = 1},
        HUB_OPTIONS,
        {0, "type", OPTION_TEXT, &type, "TYPE", types.text},
        {0, "head-type", OPTION_TEXT, &head_type, "TYPE", "of embedding and output head, likewise"},
        {0, "imatrix", OPTION_TEXT, &desc.imatrix, "FILE",
         "of tern imatrix: which columns matter when weights become codes of few bits"},
        {0, "group-size", OPTION_COUNT, &desc.group_size, "N",
         "columns that share a scale in mlx-q4 and mlx-q8: 32, 64 or 128 (64)", 32, 128},
        {'t', "threads", OPTION_COUNT, &desc.n_threads, "N", "threads, 0: one for each core (0)", 0,
         1024},
        {0, "split", OPTION_SIZE, &desc.split_bytes, "SIZE",
         "begin a new file after this many bytes"},
        LORA_OPTION(loras),
        {0, "force", OPTION_FLAG, &desc.force_ternary, NULL,
         "round floats to types of trits or signs, and the sum of ternary weights and an adapter"},
        {0, "arch", OPTION_TEXT, &desc.arch, "NAME", "the architecture name to write"},
        {0, "mmproj", OPTION_TEXT, &desc.mmproj, "FILE|none",
         "to a folder: what a GGUF sees with; default: mmproj-NAME.gguf beside NAME.gguf, or the "
         "only mmproj*.gguf there"},
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, &out, 1, &n, &status)) return status;
    if (!in || !out)
        return bad_usage("convert: two names are needed (usage: tern convert %s)", self->usage);
    if (!read_type("type", type, &desc.type) || !read_type("head-type", head_type, &desc.head_type))
        return EXIT_USAGE;
    in = resolve_model(NULL, in);
    if (!in) return EXIT_FAILED;
    if (desc.mmproj && !strcmp(desc.mmproj, "none")) desc.mmproj = "";
    desc.on_note = show_note;
    desc.on_progress = show_progress;
    cancel_on_signals("nothing was written");
    tern_lora *adapters = read_loras(&loras);
    desc.loras = adapters;
    desc.n_loras = loras.n;
    tern_status converted = tern_convert(in, out, &desc, &err);
    free_loras(adapters, loras.n);
    if (converted != TERN_OK) end_progress();
    return exit_status(converted, &err);
}
