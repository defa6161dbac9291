// Events and errors of the GPU: JavaScript queues them, InstanceProcessEvents takes them.
//
// Calls from the page poll: they look once and return. Many polls in vain mean that C waits in a
// loop; then the module is suspended until the next event, in browsers that can (JSPI). In others
// the wait ends with an error.
#include "gpu_objects.h"

#include <string.h>
#include "base/alloc.h"
#include "gpu_js.h"

#define LOOKS_BEFORE_WAIT 64     // polls in vain in one call that mean a wait
#define LOOKS_AT_MOST     100000 // limit if the module cannot be suspended

static wgpu_instance instances;
static wgpu_device devices;
static struct {
    bool may_wait;
    uint32_t n_looks; // polls in vain, since the page's call or the last event
} call;

typedef struct expected_map {
    int32_t id; // 0: free
    wgpu_instance instance;
    wgpu_map_callback callback;
} expected_map;
static expected_map *maps;
static size_t n_maps, maps_capacity;
static int32_t last_id;

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

int32_t gpu_events_expect_map(wgpu_instance instance, const wgpu_map_callback *callback) {
    size_t i = 0;
    while (i < n_maps && maps[i].id) i++;
    if (i == n_maps) {
        if (tern_array_reserve(TERN_MEM_MISC, &maps, &maps_capacity, n_maps, 1) != 0) return 0;
        n_maps++;
    }
    last_id = last_id == INT32_MAX ? 1 : last_id + 1;
    maps[i] = (expected_map){last_id, instance, *callback};
    return last_id;
}

static wgpu_text text_of(const char *s) { return (wgpu_text){s, strlen(s)}; }

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

// handle 0: no adapter; why: the reason.
static void answer_adapter(wgpu_instance in, int32_t handle, const char *why) {
    wgpu_adapter_callback wanted = in->wanted;
    if (!wanted.callback) return;
    in->wanted.callback = NULL;
    wgpu_adapter a = handle ? tern_alloc(TERN_MEM_MISC, sizeof *a) : NULL;
    if (a)
        *a = (struct wgpu_adapter_){handle, in};
    else if (handle)
        js_gpu_release(handle);
    wanted.callback(a ? WGPU_SUCCESS : 0, a,
                    text_of(a        ? ""
                            : handle ? "out of memory"
                                     : why),
                    wanted.u1, wanted.u2);
}

// JavaScript keeps one adapter at a time: an instance that finds it taken requests another.
static void ask_for_adapter(wgpu_instance in) {
    char why[400];
    int32_t there = js_gpu_request(why, sizeof why);
    if (there > 0) answer_adapter(in, js_gpu_take_adapter(), "the adapter was taken");
    if (there < 0) answer_adapter(in, 0, why);
}

static void on_adapter(bool there, const char *why) {
    for (wgpu_instance in = instances, next; in; in = next) {
        next = in->next; // the callback may close it
        if (!in->wanted.callback) continue;
        if (there)
            ask_for_adapter(in);
        else
            answer_adapter(in, 0, why);
    }
}

static bool take_one(void) {
    int32_t numbers[2];
    char text[400];
    switch (js_gpu_take(numbers, text, sizeof text)) {
    case GPU_EVENT_MAP: on_map(numbers[0], numbers[1] != 0); return true;
    case GPU_EVENT_ERROR: on_error(numbers[0], text, false); return true;
    case GPU_EVENT_LOST: on_error(numbers[0], text, true); return true;
    case GPU_EVENT_ADAPTER: on_adapter(numbers[1] != 0, text); return true;
    default: return false;
    }
}

// ---- Waiting ----------------------------------------------------------------------------------

static bool expects_something(void) {
    bool any = false;
    for (wgpu_instance in = instances; in; in = in->next) any = any || in->wanted.callback;
    for (size_t i = 0; i < n_maps; i++) any = any || maps[i].id != 0;
    return any;
}

static void give_up(void) {
    static const char why[] = "this browser cannot wait for its GPU in the middle of a call";
    for (wgpu_device d = devices; d; d = d->next)
        d->error.callback(&d, 0, text_of(why), d->error.u1, d->error.u2);
    for (size_t i = 0; i < n_maps; i++)
        if (maps[i].id) end_map(i, false);
    on_adapter(false, why);
}

void gpu_events_process(void) {
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

// ---- Instances ---------------------------------------------------------------------------------

wgpu_instance gpu_events_open(void) {
    wgpu_instance in = tern_alloc(TERN_MEM_MISC, sizeof *in);
    if (!in) return NULL;
    in->next = instances;
    instances = in;
    return in;
}

void gpu_events_close(wgpu_instance in) {
    answer_adapter(in, 0, "WebGPU was closed");
    for (size_t i = 0; i < n_maps; i++)
        if (maps[i].id && maps[i].instance == in) end_map(i, false);
    wgpu_instance *at = &instances;
    while (*at != in) at = &(*at)->next;
    *at = in->next;
    tern_free(in);
}

void gpu_events_request_adapter(wgpu_instance in, wgpu_adapter_callback callback) {
    in->wanted = callback;
    ask_for_adapter(in);
}
