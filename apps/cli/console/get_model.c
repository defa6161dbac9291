// Finding a model by its name, and getting it from a hub if it is not here.
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "apps/hub/hub.h"

// ---- Where models are --------------------------------------------------------------------------

char *user_file(user_folder which, const char *name) {
    const char *parts[2];
    text t = {0};
    if (!system_user_folder(which, parts)) return NULL;
    for (int i = 0; i < 2; i++) text_puts(&t, parts[i]);
    text_puts(&t, name);
    return t.ptr;
}

const char *models_folder(const char *given) {
    static char *found;
    const char *usual = getenv("TERN_MODELS");
    if (given || (usual && *usual)) return given ? given : usual;
    if (!found) found = user_file(USER_DATA, "/tern/models");
    return found ? found : "models";
}

bool takes_downloads;

const char *size_text(uint64_t bytes, char out[24]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double n = (double)bytes;
    size_t unit = 0;
    while (n >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        n /= 1000;
        unit++;
    }
    snprintf(out, 24, n < 9.95 && unit ? "%.1f %s" : "%.0f %s", n, units[unit]);
    return out;
}

// ---- Pulling ------------------------------------------------------------------------------------

typedef struct pull_view {
    double began;
    uint64_t first; // bytes present at the start
    progress_clock clock;
    bool is_terminal, has_begun;
} pull_view;

static bool show_pull(void *user, const hub_pull_progress *p) {
    pull_view *v = user;
    char done[24], all[24], speed[24], left[48];
    if (!v->has_begun && !p->is_checking && p->done > 0) {
        v->has_begun = true;
        v->began = seconds_now();
        v->first = p->done;
    }
    if (!v->is_terminal || !p->file || was_cancelled()) return !was_cancelled();
    double seconds = seconds_now() - v->began;
    fprintf(stderr, "\r\033[K%s %s of %s", p->is_checking ? "checking" : "getting",
            size_text(p->done, done), size_text(p->all, all));
    if (p->all) fprintf(stderr, " (%d%%)", (int)((double)p->done / (double)p->all * 100));
    if (v->has_begun && seconds > 1 && p->done > v->first)
        fprintf(stderr, ", %s/s",
                size_text((uint64_t)((double)(p->done - v->first) / seconds), speed));
    if (p->all && v->has_begun && !p->is_checking)
        fputs(time_left(&v->clock, (double)p->done / (double)p->all, left), stderr);
    if (p->n_files > 1) fprintf(stderr, ", file %zu of %zu", p->i_file + 1, p->n_files);
    fflush(stderr);
    return !was_cancelled();
}

int pull_model(hub_pull_desc *desc, char **name, size_t *n_new) {
    pull_view view = {.is_terminal = isatty(STDERR_FILENO)};
    tern_error err = {0};
    desc->on_progress = show_pull;
    desc->user = &view;
    tern_status pulled = hub_pull(desc, name, n_new, &err);
    end_progress();
    return exit_status(pulled, &err);
}

// ---- Offers -------------------------------------------------------------------------------------

static bool begins(const char *s, const char *front) {
    return strncmp(s, front, strlen(front)) == 0;
}

// Whether the hub may have a name that was not found here. A mistyped path, whose first folder
// exists, is not sent to a hub.
static bool is_of_hub(const char *name) {
    text first = {0};
    const char *slash = strchr(name, '/');
    if (hub_find_short(name, strlen(name)) || begins(name, "hf:") || begins(name, "hf.co/") ||
        begins(name, "https://huggingface.co/"))
        return true;
    if (!slash || slash == name || strchr(".~", name[0]) || strchr(slash + 1, '/')) return false;
    text_append(&first, name, (size_t)(slash - name));
    bool is_here = access(first.ptr, F_OK) == 0;
    free(first.ptr);
    return !is_here;
}

// "640 MB, licence apache-2.0". Facts that the hub does not give are left out.
static void describe(const hub_offer *o, char *out, size_t size) {
    char bytes[24];
    snprintf(out, size, "%s%s%s", o->bytes ? size_text(o->bytes, bytes) : "size unknown",
             o->licence[0] ? ", licence " : ", no licence named", o->licence);
}

// Asks on the terminal, once; anything but a yes is a no, and earlier input is discarded.
static bool says_yes(void) {
    char line[16] = "";
    terminal_forget();
    fprintf(stderr, "Download it? [y/N] ");
    fflush(stderr);
    if (!fgets(line, sizeof line, stdin)) fputc('\n', stderr);
    return line[0] == 'y' || line[0] == 'Y';
}

// Gets a model that is not here: with -hf and -y without a question. False after saying why not.
static bool get_model(const char *folder, const char *name, const char *why) {
    bool by_hf = begins(name, "hf://"), is_asked_for = takes_downloads || by_hf;
    const char *typed = by_hf ? name + strlen("hf://") : name;
    const hub_short *known = hub_find_short(name, strlen(name));
    const char *token = getenv("HF_TOKEN");
    hub_pull_desc desc = {.folder = folder,
                          .name = name,
                          .endpoint = getenv("HF_ENDPOINT"),
                          .token = token && *token ? token : NULL,
                          .n_retries = 5};
    char what[160], size[24], *own = NULL;
    hub_offer offer;
    tern_error err = {0};
    size_t n_new;
    if (!is_asked_for && !(isatty(STDIN_FILENO) && isatty(STDERR_FILENO))) {
        if (known)
            fail("'%s' is not here: `tern pull %s` gets it (about %s, licence %s), or -y does",
                 typed, typed, size_text((uint64_t)known->megabytes * 1000000, size),
                 known->licence);
        else
            fail("%s; -y gets it from the hub", why);
        return false;
    }
    if (hub_look(&desc, &offer, &err) != TERN_OK) {
        fail("'%s' is not here, and %s", typed, err.message);
        return false;
    }
    describe(&offer, what, sizeof what);
    text line = {0}; // it quotes the hub, so put_plain prints it
    const char *const parts[] = {
        name, " is not here. On the hub: ", offer.source, ", ", offer.shown, " (", what, ")"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) text_puts(&line, parts[i]);
    put_plain(stderr, line.ptr);
    fputc('\n', stderr);
    free(line.ptr);
    if (!is_asked_for && !says_yes()) {
        fail("'%s': not downloaded", typed);
        return false;
    }
    const interrupt_fn before = system_on_interrupt(NULL, false);
    cancel_on_signals(PULL_LEFT);
    bool ok = pull_model(&desc, &own, &n_new) == EXIT_OK;
    if (ok && own) {
        put_plain(stderr, own);
        fprintf(stderr, " is in %s\n", folder);
    }
    system_on_interrupt(before, false); // the command's own
    free(own);
    return ok;
}

const char *resolve_model(const char *folder, const char *name) {
    static string_list paths; // as long as the program lives: options point to them
    char *path;
    tern_error err = {0};
    folder = models_folder(folder);
    tern_status status = hub_resolve(&path, folder, name, &err);
    if (status == TERN_ERR_IO && is_of_hub(name)) {
        if (!get_model(folder, name, err.message)) return NULL;
        status = hub_resolve(&path, folder, name, &err);
    }
    if (status != TERN_OK) {
        fail("%s", err.message);
        return NULL;
    }
    paths.items = must_alloc(paths.items, paths.n + 1, sizeof *paths.items);
    paths.items[paths.n++] = path;
    return path;
}
