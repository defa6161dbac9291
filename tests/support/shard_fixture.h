// The manifest that makes a test's hand-made folder of shards count as finished.
#ifndef TERN_TESTS_SHARD_FIXTURE_H
#define TERN_TESTS_SHARD_FIXTURE_H

#include "base/alloc.h"
#include "base/strbuf.h"
#include "formats/shard/shard.h"
#include "tests/support/harness.h"
#include "tern_tools.h"

static void write_manifest(const char *folder) {
    tern_names names = {0};
    tern_strbuf text = {0};
    tern_error err = {0};
    REQUIRE_OK(tern_folder_list(&names, folder, "", ".tern", &err), err);
    tern_strbuf_puts(&text, "{\"shards\": [");
    for (size_t i = 0; i < names.n; i++) {
        char *path = tern_path_join(folder, names.list[i]);
        tern_shard *shard;
        REQUIRE_OK(tern_shard_open(&shard, path, &err), err);
        const tern_shard_info *info = tern_shard_get_info(shard);
        tern_strbuf_printf(&text,
                           "%s{\"file\": \"%s\", \"split\": \"%.5s\", \"tokens\": %llu, "
                           "\"documents\": %llu, \"checksum\": \"%08x\"}",
                           i ? ", " : "", names.list[i], names.list[i],
                           (unsigned long long)info->n_tokens,
                           (unsigned long long)info->n_documents, info->checksum);
        tern_shard_close(shard);
        tern_free(path);
    }
    tern_strbuf_puts(&text, "]}");
    char *path = tern_path_join(folder, "manifest.json");
    REQUIRE_OK(tern_file_write(path, text.ptr, text.len, &err), err);
    tern_free(path);
    tern_strbuf_free(&text);
    tern_names_free(&names);
}

#endif
