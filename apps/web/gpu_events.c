// What the GPU finished, and what went wrong: JavaScript queues it, InstanceProcessEvents takes it.
//
// Calls from the page poll: they look once and return. Only where C waits in a loop does nothing
// happen again and again; then the module is suspended until something does, in browsers that can
// (JSPI). In others the wait is given up, with a sentence.
#include "gpu_objects.h"

#include <string.h>
#include "base/alloc.h"
#include "gpu_js.h"

#define LOOKS_BEFORE_WAIT 64     // in vain, in one call: then somebody waits
#define LOOKS_AT_MOST     100000 // where it cannot be suspended

static wgpu_device devices;
static struct {
    bool may_wait;
    uint32_t n_looks; // in vain, since the page called or something happened
} call;

typedef struct expected_map {
    int32_t id; // 0: free
    wgpu_map_callback callback;
} expected_map;
static expected_map *maps;
static size_t n_maps, maps_capacity;
static int32_t last_id;

static wgpu_adapter_callback wants_adapter; // callback: NULL if nobody does

void web_gpu_enter(bool may_wait) {
    call.may_wait = may_wait;
    call.n_looks = 0;
}

void gpu_events_add_device(wgpu_device d) {
    d->next = devices;
    devices = d;
}

void gpu_events_remove_device(const struct wgpu_device_ *d) {
    wgpu_device *at = &devices;
    while (*at && *at != d) at = &(*at)->next;
    if (*at) *at = d->next;
}

int32_t gpu_events_expect_map(const wgpu_map_callback *callback) {
    size_t i = 0;
    while (i < n_maps && maps[i].id) i++;
    if (i == n_maps) {
        if (tern_array_reserve(TERN_MEM_MISC, &maps, &maps_capacity, n_maps, 1) != 0) return 0;
        n_maps++;
    }
    last_id = last_id == INT32_MAX ? 1 : last_id + 1;
    maps[i] = (expected_map){last_id, *callback};
    return last_id;
}

static wgpu_text text_of(const char *s) {
    return (wgpu_text){s, strlen(s)};
}

// ---- What happened ----------------------------------------------------------------------------

static void end_map(size_t i, bool good) {
    wgpu_map_callback callback = maps[i].callback;
    maps[i].id = 0; // first: the callback may map again
    callback.callback(good ? WGPU_SUCCESS : 0, (wgpu_text){0}, callback.u1, callback.u2);
}

static void on_map(int32_t id, bool good) {
    for (size_t i = 0; i < n_maps; i++)
        if (maps[i].id == id) {
            end_map(i, good);
            return;
        }
}

static void on_error(int32_t handle, const char *text, bool lost) {
    wgpu_device d = devices;
    while (d && d->handle != handle) d = d->next;
    if (!d) return; // closed meanwhile
    if (lost)
        d->lost.callback(&d, 0, text_of(text), d->lost.u1, d->lost.u2);
    else
        d->error.callback(&d, 0, text_of(text), d->error.u1, d->error.u2);
}

static void answer_adapter(const char *why_not) {
    wgpu_adapter_callback wanted = wants_adapter;
    if (!wanted.callback) return;
    wants_adapter.callback = NULL;
    int32_t handle = why_not ? 0 : js_gpu_take_adapter();
    wanted.callback(handle ? WGPU_SUCCESS : 0, gpu_object(handle), text_of(why_not ? why_not : ""),
                    wanted.u1, wanted.u2);
}

static bool take_one(void) {
    int32_t numbers[2];
    char text[400];
    switch (js_gpu_take(numbers, text, sizeof text)) {
    case GPU_EVENT_MAP: on_map(numbers[0], numbers[1] != 0); return true;
    case GPU_EVENT_ERROR: on_error(numbers[0], text, false); return true;
    case GPU_EVENT_LOST: on_error(numbers[0], text, true); return true;
    case GPU_EVENT_ADAPTER: answer_adapter(numbers[1] ? NULL : text); return true;
    default: return false;
    }
}

// ---- Waiting ----------------------------------------------------------------------------------

static bool expects_something(void) {
    bool any = wants_adapter.callback != NULL;
    for (size_t i = 0; i < n_maps; i++) any = any || maps[i].id != 0;
    return any;
}

static void give_up(void) {
    static const char why[] = "this browser cannot wait for its GPU in the middle of a call";
    for (wgpu_device d = devices; d; d = d->next)
        d->error.callback(&d, 0, text_of(why), d->error.u1, d->error.u2);
    for (size_t i = 0; i < n_maps; i++)
        if (maps[i].id) end_map(i, false);
    answer_adapter(why);
}

void gpu_events_process(wgpu_instance instance) {
    (void)instance;
    bool any = false;
    while (take_one()) any = true;
    if (any || !expects_something()) {
        call.n_looks = 0;
        return;
    }
    if (++call.n_looks < LOOKS_BEFORE_WAIT) return;
    if (call.may_wait && js_gpu_wait()) {
        web_gpu_enter(true); // others may have called meanwhile
        while (take_one()) {
        }
    } else if (call.n_looks > LOOKS_AT_MOST)
        give_up();
}

wgpu_future gpu_events_request_adapter(wgpu_instance instance, const wgpu_adapter_options *options,
                                       wgpu_adapter_callback callback) {
    char why[400];
    (void)instance;
    (void)options; // the page chose it
    wants_adapter = callback;
    int32_t there = js_gpu_request(why, sizeof why);
    if (there != 0) answer_adapter(there > 0 ? NULL : why);
    return (wgpu_future){1};
}
