// Words that complete a line: the names of files.
#include "line.h"

#include <stdlib.h>
#include <string.h>
#include "base/os/os_file.h"

char *line_join(const char *front, const char *back) {
    size_t n = strlen(front) + strlen(back) + 1;
    char *joined = must_alloc(NULL, n, 1);
    snprintf(joined, n, "%s%s", front, back);
    return joined;
}

void line_add_word(string_list *out, const char *word) {
    out->items = must_alloc(out->items, out->n + 1, sizeof *out->items);
    out->items[out->n++] = line_join(word, "");
}

void line_complete_path(const char *path, string_list *out) {
    const char *name = tern_path_name(path);
    tern_names names = {0};
    char *shown = line_join(path, "");
    shown[name - path] = 0;
    char *folder = strncmp(shown, "~/", 2) ? NULL : user_file(USER_HOME, shown + 1);
    if (!folder) folder = line_join(*shown ? shown : "./", "");
    tern_folder_list(&names, folder, name, "", NULL);
    for (size_t i = 0; i < names.n; i++) {
        if (names.list[i][0] == '.' && !*name) continue; // hidden, unless requested
        char *found = line_join(shown, names.list[i]), *real = line_join(folder, names.list[i]);
        char *word = line_join(found, tern_folder_is(real) ? "/" : "");
        line_add_word(out, word);
        free(word);
        free(real);
        free(found);
    }
    tern_names_free(&names);
    free(folder);
    free(shown);
}
