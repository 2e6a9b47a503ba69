/* A provider without the C++ layer: plugin_api.h alone, in C99, on host memory. It has one kernel, LeakyRelu of floats. */
#include <stdlib.h>
#include <string.h>

#include "backplane/plugin_api.h"

/* Opaque to the host, and this plugin's to fill. */
struct bp_device {
  int64_t grain; /* elements a thread takes at a time: the provider's option */
};
struct bp_kernel {
  float slope;
  int64_t grain;
};
struct bp_prepared {
  float slope;
  int64_t grain;
  uint64_t count;
};

static const bp_host_api* host;

/* Statuses are made by the host alone. */
static bp_status* failure(bp_code code, const char* text) {
  return host->status_new(code, text, strlen(text));
}

static float slope_of(const bp_node* node) {
  const bp_attribute* alpha = host->graph->node_attribute(node, "alpha");
  return alpha != NULL && alpha->type == BP_ATTRIBUTE_FLOAT ? alpha->floats[0] : 0.01f;
}

/* What is not handled is refused, with a reason for people: the node goes to the next kernel. */
static bp_status* match(void* self, bp_device* device, const bp_node* node, bp_cost* cost) {
  (void)self;
  (void)device;
  (void)cost;
  if (slope_of(node) >= 0) return NULL;
  return failure(BP_UNSUPPORTED, "plain_c:leaky_relu takes slopes that are not negative");
}

static bp_status* create(void* self, const bp_create_ctx* ctx, const bp_node* node,
                         bp_kernel** out) {
  (void)self;
  *out = malloc(sizeof(**out));
  if (*out == NULL) return failure(BP_OUT_OF_MEMORY, "no memory for a kernel");
  (*out)->slope = slope_of(node);
  (*out)->grain = ctx->device->grain;
  return NULL;
}
static void destroy(bp_kernel* kernel) { free(kernel); }

/* For one set of shapes: says what the output is. What it makes never changes. */
static bp_status* prepare(bp_kernel* kernel, bp_prepare_ctx* ctx, bp_prepared** out) {
  const bp_tensor* x = ctx->inputs[0]->tensor;
  bp_status* status = ctx->api->set_output(ctx, 0, BP_FLOAT, x->rank, x->dims);
  if (status == NULL) status = ctx->api->allow_in_place(ctx, 0, 0);
  if (status != NULL) return status; /* handed on */
  *out = malloc(sizeof(**out));
  if (*out == NULL) return failure(BP_OUT_OF_MEMORY, "no memory for a plan");
  (*out)->slope = kernel->slope;
  (*out)->grain = kernel->grain;
  (*out)->count = x->bytes / sizeof(float);
  return NULL;
}
static void release(bp_prepared* prepared) { free(prepared); }

struct loop {
  const float* x;
  float* y;
  float slope;
};

static void part(void* argument, uint64_t begin, uint64_t end, uint32_t worker) {
  const struct loop* loop = argument;
  (void)worker;
  for (uint64_t i = begin; i < end; ++i)
    loop->y[i] = loop->x[i] < 0 ? loop->slope * loop->x[i] : loop->x[i];
}

/* Many times, on several threads: allocates nothing and takes no lock. */
static bp_status* compute(const bp_prepared* prepared, const bp_kctx* ctx) {
  struct loop loop = {ctx->inputs[0]->tensor->host_ptr, ctx->outputs[0]->tensor->host_ptr,
                      prepared->slope};
  host->parallel_for(ctx->threads, prepared->count, (uint64_t)prepared->grain, part, &loop);
  return NULL;
}

/* The registry: constant data, which stays as it is until `shutdown`. Every struct with a head says its own size, and
 * what is not named is zero. */
static const char* const float_types[] = {"tensor(float)"};
static const bp_type_constraint floats = {
    .struct_size = sizeof(bp_type_constraint), .param = "T", .types = float_types, .type_count = 1};
static const bp_type_constraint* const constraints[] = {&floats};
static const bp_kernel_def leaky_relu = {.struct_size = sizeof(bp_kernel_def),
                                         .domain = "",
                                         .op_type = "LeakyRelu",
                                         .name = "plain_c:leaky_relu",
                                         .since_min = 6,
                                         .since_max = INT32_MAX, /* and what comes later */
                                         .constraints = constraints,
                                         .constraint_count = 1,
                                         .match = match,
                                         .create = create,
                                         .destroy = destroy,
                                         .prepare = prepare,
                                         .release = release,
                                         .compute = compute};

static bp_status* kernels(bp_device* device, void* sink_ctx, bp_kernel_sink sink) {
  (void)device;
  return sink(sink_ctx, &leaky_relu);
}
static void close_device(bp_device* device) { free(device); }

/* On host memory, nothing about buffers, streams, fences and copies is needed. */
static const bp_device_api device_api = {
    .struct_size = sizeof(bp_device_api), .kernels = kernels, .close = close_device};
static const bp_device_info device_info = {.struct_size = sizeof(bp_device_info),
                                           .name = "loops in C",
                                           .vendor = "",
                                           .driver = "",
                                           .flags = BP_DEVICE_HOST_MEMORY,
                                           .type = BP_DEVICE_TYPE_CPU,
                                           .score = 1};

static bp_status* enumerate(void* self, void* sink_ctx, bp_device_sink sink) {
  (void)self;
  return sink(sink_ctx, &device_info);
}

/* The options were checked by the host, and all of them are there. */
static bp_status* open_device(void* self, const bp_device_info* info, const bp_open_ctx* ctx,
                              bp_device** out, const bp_device_api** api) {
  (void)self;
  (void)info;
  *out = malloc(sizeof(**out));
  if (*out == NULL) return failure(BP_OUT_OF_MEMORY, "no memory for a device");
  (*out)->grain = 0;
  for (uint64_t i = 0; i < ctx->option_count; ++i) {
    const bp_str key = ctx->options[i].key, value = ctx->options[i].value;
    if (key.size != strlen("grain") || memcmp(key.data, "grain", key.size) != 0) continue;
    for (uint64_t k = 0; k < value.size; ++k) /* whole, and not terminated */
      (*out)->grain = 10 * (*out)->grain + (value.data[k] - '0');
  }
  *api = &device_api;
  return NULL;
}

static const bp_option grain = {.struct_size = sizeof(bp_option),
                                .name = "grain",
                                .doc = "Elements that a thread takes at a time.",
                                .default_value = "16384",
                                .range = "1..1000000",
                                .type = BP_OPTION_INT};
static const bp_option* const options[] = {&grain};
static const bp_provider provider = {.struct_size = sizeof(bp_provider),
                                     .name = "plain_c",
                                     .version = "1.0.0",
                                     .options = options,
                                     .option_count = 1,
                                     .enumerate = enumerate,
                                     .open = open_device};
static const bp_provider* const providers[] = {&provider};

static bp_status* init(void* self, const bp_host_api* table) {
  (void)self;
  host = table;
  return NULL;
}
static void shut_down(void* self) {
  (void)self;
  host = NULL;
}

static const bp_plugin plugin = {.struct_size = sizeof(bp_plugin),
                                 .abi_minor_built = BP_ABI_MINOR,
                                 .abi_minor_required = 0, /* it uses nothing newer than 1.0 */
                                 .name = "c_provider",
                                 .vendor = "",
                                 .version = "1.0.0",
                                 .providers = providers,
                                 .provider_count = 1,
                                 .init = init,
                                 .shutdown = shut_down};

#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
bp_code
bp_plugin_query_v1(const bp_query_args* args, const bp_plugin** out) {
  if (args->host_major != BP_ABI_MAJOR) return BP_INCOMPATIBLE;
  *out = &plugin;
  return BP_OK;
}
