// Silero VAD (version 5, 16 kHz): the probability of speech for each hop of 512 samples, with
// weights from the makers' ONNX file.
//
//   s = |STFT of 64 samples before the hop, the hop, and 64 mirrored ones|   129 x 4
//   s = relu(conv s + b), four times: 128 x 4, 64 x 2, 64 x 1, 128 x 1
//   h, c = LSTM(s, h, c);  p = sigmoid(w relu(h) + b)
//
// The file has the network twice, for 8 and for 16 kHz, each in a branch of an If: among tensors of
// one name the one with the shape for 16 kHz is taken.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file/blob.h"
#include "media/sound.h"

#define HOP     TERN_VOICE_HOP
#define CONTEXT 64
#define WINDOW  256
#define STEP    128
#define FRAMES  4 // windows of CONTEXT + HOP + CONTEXT samples
#define BINS    129
#define WIDTH   128

// ---- The file ----------------------------------------------------------------------------------
//
// ONNX is a protocol buffers message: fields with a number and a kind. A model's tensors need two
// kinds: numbers (0) and bytes (2), which may be messages themselves.

typedef struct bytes {
    const uint8_t *at;
    size_t n;
} bytes;

typedef struct field {
    uint64_t number, value; // value: for kind 0
    unsigned kind;
    bytes part; // for kind 2
} field;

static bool take_number(bytes *b, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64 && b->n > 0; shift += 7) {
        uint8_t byte = *b->at++;
        b->n--;
        *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

// The next field; false: the end, or an invalid message.
static bool take_field(bytes *b, field *out) {
    uint64_t key, n = 0;
    if (b->n == 0 || !take_number(b, &key)) return false;
    *out = (field){.number = key >> 3, .kind = (unsigned)(key & 7)};
    switch (out->kind) {
    case 0: return take_number(b, &out->value);
    case 1: n = 8; break;
    case 5: n = 4; break;
    case 2:
        if (!take_number(b, &n)) return false;
        break;
    default: return false;
    }
    if (n > b->n) return false;
    out->part = (bytes){b->at, (size_t)n};
    b->at += n;
    b->n -= (size_t)n;
    return true;
}

typedef struct weight {
    const char *name;
    uint64_t dims[3];
    size_t offset; // of its numbers in the net's array
    bool found;
} weight;

enum {
    STFT,
    CONV0,
    BIAS0,
    CONV1,
    BIAS1,
    CONV2,
    BIAS2,
    CONV3,
    BIAS3,
    IN,
    REC,
    IN_BIAS,
    REC_BIAS,
    OUT,
    OUT_BIAS,
    N_WEIGHTS
};
static const weight wanted[N_WEIGHTS] = {
    [STFT] = {.name = "stft.forward_basis_buffer", .dims = {2 * BINS, 1, WINDOW}},
    [CONV0] = {.name = "encoder.0.reparam_conv.weight", .dims = {128, BINS, 3}},
    [BIAS0] = {.name = "encoder.0.reparam_conv.bias", .dims = {128}},
    [CONV1] = {.name = "encoder.1.reparam_conv.weight", .dims = {64, 128, 3}},
    [BIAS1] = {.name = "encoder.1.reparam_conv.bias", .dims = {64}},
    [CONV2] = {.name = "encoder.2.reparam_conv.weight", .dims = {64, 64, 3}},
    [BIAS2] = {.name = "encoder.2.reparam_conv.bias", .dims = {64}},
    [CONV3] = {.name = "encoder.3.reparam_conv.weight", .dims = {128, 64, 3}},
    [BIAS3] = {.name = "encoder.3.reparam_conv.bias", .dims = {128}},
    [IN] = {.name = "decoder.rnn.weight_ih", .dims = {4 * WIDTH, WIDTH}},
    [REC] = {.name = "decoder.rnn.weight_hh", .dims = {4 * WIDTH, WIDTH}},
    [IN_BIAS] = {.name = "decoder.rnn.bias_ih", .dims = {4 * WIDTH}},
    [REC_BIAS] = {.name = "decoder.rnn.bias_hh", .dims = {4 * WIDTH}},
    [OUT] = {.name = "decoder.decoder.2.weight", .dims = {1, WIDTH, 1}},
    [OUT_BIAS] = {.name = "decoder.decoder.2.bias", .dims = {1}},
};

typedef struct tern_voice_net {
    weight weights[N_WEIGHTS];
    float *numbers;
    float before[CONTEXT]; // the last samples of the previous hop
    float h[WIDTH], c[WIDTH];
} voice_net;

static size_t n_of(const weight *w) {
    size_t n = 1;
    for (int i = 0; i < 3 && w->dims[i]; i++) n *= (size_t)w->dims[i];
    return n;
}

typedef struct tensor {
    bytes name, raw;
    uint64_t dims[4], type;
    int n_dims;
} tensor;

static tensor read_tensor(bytes b) {
    tensor t = {.n_dims = 0};
    field f;
    while (take_field(&b, &f)) {
        if (f.number == 1 && f.kind == 0 && t.n_dims < 4) t.dims[t.n_dims++] = f.value;
        for (uint64_t d; f.number == 1 && f.kind == 2 && t.n_dims < 4 && take_number(&f.part, &d);)
            t.dims[t.n_dims++] = d;
        if (f.number == 2) t.type = f.value;
        if (f.number == 8) t.name = f.part;
        if (f.number == 9) t.raw = f.part;
    }
    return t;
}

static bool is_it(const tensor *t, const weight *w) {
    size_t n = strlen(w->name);
    bool fits = t->type == 1 && t->raw.n == n_of(w) * sizeof(float) && t->name.n >= n &&
                memcmp(t->name.at + t->name.n - n, w->name, n) == 0;
    for (int i = 0; i < 3; i++) fits &= (i < t->n_dims ? t->dims[i] : 0) == w->dims[i];
    return fits && t->n_dims <= 3;
}

static void take_tensor(voice_net *net, const tensor *t) {
    for (int i = 0; i < N_WEIGHTS; i++) {
        weight *w = &net->weights[i];
        if (!is_it(t, w)) continue;
        memcpy(net->numbers + w->offset, t->raw.at, t->raw.n); // both are little-endian
        w->found = true;
    }
}

// Reads a graph's tensors and those in its nodes' attributes, including nested graphs.
#define DEPTH_MAX 8
static void read_graph(voice_net *n, bytes graph, int depth);

// Whether the graph itself, not a nested one, has the STFT for 16 kHz.
static bool is_of_rate(bytes graph) {
    field node, attribute, f;
    while (take_field(&graph, &node)) {
        bytes b = node.part;
        while (node.number == 1 && node.kind == 2 && take_field(&b, &attribute)) {
            bytes a = attribute.part;
            while (attribute.number == 5 && attribute.kind == 2 && take_field(&a, &f)) {
                tensor t = f.number == 5 && f.kind == 2 ? read_tensor(f.part) : (tensor){0};
                if (is_it(&t, &wanted[STFT])) return true;
            }
        }
    }
    return false;
}

// Takes the tensors of the graph that has the STFT for 16 kHz, this one or a nested one: some
// tensors have the same shape in both networks.
#define DEPTH_MAX 8
static void read_graph(voice_net *n, bytes graph, int depth) {
    bool mine = is_of_rate(graph);
    field node, attribute, f;
    while (take_field(&graph, &node)) {
        bytes b = node.part;
        while (node.number == 1 && node.kind == 2 && take_field(&b, &attribute)) {
            bytes a = attribute.part;
            while (attribute.number == 5 && attribute.kind == 2 && take_field(&a, &f)) {
                tensor t = f.number == 5 && f.kind == 2 ? read_tensor(f.part) : (tensor){0};
                if (mine && t.raw.n) take_tensor(n, &t);
                if (f.number == 6 && f.kind == 2 && depth < DEPTH_MAX)
                    read_graph(n, f.part, depth + 1);
            }
        }
    }
}

static tern_status read_net(voice_net *n, bytes model, tern_error *err) {
    size_t total = 0;
    field f;
    memcpy(n->weights, wanted, sizeof wanted);
    for (int i = 0; i < N_WEIGHTS; i++) {
        n->weights[i].offset = total;
        total += n_of(&n->weights[i]);
    }
    n->numbers = tern_alloc_array(TERN_MEM_WEIGHTS, total, sizeof *n->numbers);
    if (!n->numbers) return tern_fail_memory(err, total * sizeof *n->numbers);
    while (take_field(&model, &f))
        if (f.number == 7 && f.kind == 2) read_graph(n, f.part, 0);
    for (int i = 0; i < N_WEIGHTS; i++)
        if (!n->weights[i].found)
            return tern_fail(err, TERN_ERR_FORMAT,
                             "this is no Silero VAD (version 5 as ONNX) of 16 kHz: it has no %s",
                             n->weights[i].name);
    for (size_t i = 0; i < total; i++)
        if (!isfinite(n->numbers[i]))
            return tern_fail(err, TERN_ERR_FORMAT, "some of its numbers are not numbers");
    return TERN_OK;
}

// ---- The network -------------------------------------------------------------------------------

static const float *numbers(const voice_net *n, int which) {
    return n->numbers + n->weights[which].offset;
}

// n: a multiple of 8. Eight sums, which compilers vectorize.
static float dot(const float *a, const float *b, size_t n) {
    float sums[8] = {0}, sum = 0;
    for (size_t i = 0; i < n; i += 8)
        for (size_t k = 0; k < 8; k++) sums[k] += a[i + k] * b[i + k];
    for (size_t k = 0; k < 8; k++) sum += sums[k];
    return sum;
}

// y[o][t] of x[c][t], three taps around t * step, zeros beyond the ends; relu.
typedef struct layer {
    int which, n_in, n_out, step;
} layer;

static int convolve(const voice_net *n, layer l, const float *x, int n_x, float *y) {
    const int which = l.which, n_in = l.n_in, n_out = l.n_out, step = l.step;
    const float *w = numbers(n, which), *b = numbers(n, which + 1);
    int n_y = (n_x - 1) / step + 1;
    for (int o = 0; o < n_out; o++)
        for (int t = 0; t < n_y; t++) {
            float sum = b[o];
            for (int j = 0; j < 3; j++) {
                int at = t * step + j - 1;
                if (at < 0 || at >= n_x) continue;
                for (int c = 0; c < n_in; c++) sum += w[(o * n_in + c) * 3 + j] * x[c * n_x + at];
            }
            y[o * n_y + t] = sum > 0 ? sum : 0;
        }
    return n_y;
}

static float logistic(float x) { return 1 / (1 + expf(-x)); }

static void recur(voice_net *n, const float *x) {
    float gates[4 * WIDTH]; // in, forget, new, out
    for (size_t i = 0; i < 4 * WIDTH; i++)
        gates[i] = dot(numbers(n, IN) + i * WIDTH, x, WIDTH) + numbers(n, IN_BIAS)[i] +
                   dot(numbers(n, REC) + i * WIDTH, n->h, WIDTH) + numbers(n, REC_BIAS)[i];
    for (size_t i = 0; i < WIDTH; i++) {
        n->c[i] =
            logistic(gates[WIDTH + i]) * n->c[i] + logistic(gates[i]) * tanhf(gates[2 * WIDTH + i]);
        n->h[i] = logistic(gates[3 * WIDTH + i]) * tanhf(n->c[i]);
    }
}

static float likelihood(voice_net *n, const float *hop) {
    float x[CONTEXT + HOP + CONTEXT], a[BINS * FRAMES], b[WIDTH * FRAMES];
    memcpy(x, n->before, sizeof n->before);
    memcpy(x + CONTEXT, hop, HOP * sizeof *x);
    for (int i = 0; i < CONTEXT; i++) x[CONTEXT + HOP + i] = x[CONTEXT + HOP - 2 - i];
    memcpy(n->before, hop + HOP - CONTEXT, sizeof n->before);
    for (size_t k = 0; k < BINS; k++)
        for (size_t t = 0; t < FRAMES; t++) {
            float re = dot(numbers(n, STFT) + k * WINDOW, x + t * STEP, WINDOW);
            float im = dot(numbers(n, STFT) + (BINS + k) * WINDOW, x + t * STEP, WINDOW);
            a[k * FRAMES + t] = sqrtf(re * re + im * im);
        }
    int n_t = convolve(n, (layer){CONV0, BINS, 128, 1}, a, FRAMES, b);
    n_t = convolve(n, (layer){CONV1, 128, 64, 2}, b, n_t, a);
    n_t = convolve(n, (layer){CONV2, 64, 64, 2}, a, n_t, b);
    convolve(n, (layer){CONV3, 64, WIDTH, 1}, b, n_t, a);
    recur(n, a);
    float y[WIDTH];
    for (int i = 0; i < WIDTH; i++) y[i] = n->h[i] > 0 ? n->h[i] : 0;
    return logistic(dot(numbers(n, OUT), y, WIDTH) + numbers(n, OUT_BIAS)[0]);
}

// ---- The whole ---------------------------------------------------------------------------------

tern_status tern_voice_net_open(tern_voice_net **out, const char *path, tern_error *err) {
    tern_blob_file *file;
    tern_blob all;
    tern_hold hold;
    *out = NULL;
    TERN_TRY(tern_blob_open(&file, path, false, &all, err));
    tern_voice_net *net = tern_alloc(TERN_MEM_MISC, sizeof *net);
    tern_status status = net ? TERN_OK : tern_fail_memory(err, sizeof *net);
    if (status == TERN_OK) status = tern_blob_hold(&all, &hold, err);
    if (status == TERN_OK) {
        status = read_net(net, (bytes){hold.data, (size_t)all.n}, err);
        if (status == TERN_ERR_FORMAT) tern_fail_prefix(err, status, path);
        tern_blob_release(&hold);
    }
    tern_blob_close(file);
    if (status == TERN_OK)
        *out = net;
    else
        tern_voice_net_close(net);
    return status;
}

void tern_voice_net_close(tern_voice_net *net) {
    if (net) tern_free(net->numbers);
    tern_free(net);
}

void tern_voice_net_begin(tern_voice_net *net) {
    memset(net->before, 0, sizeof net->before);
    memset(net->h, 0, sizeof net->h);
    memset(net->c, 0, sizeof net->c);
}

float tern_voice_net_next(tern_voice_net *net, const float *samples, int64_t n) {
    float last[HOP] = {0};
    if (n >= HOP) return likelihood(net, samples);
    if (n > 0) memcpy(last, samples, (size_t)n * sizeof *last);
    return likelihood(net, last);
}
